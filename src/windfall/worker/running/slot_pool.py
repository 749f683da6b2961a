"""All slots of a worker: gives tasks to them, takes back unbegun ones, turns reports into results. Touches slots.

Every attempt that is accepted leaves through `on_result` exactly once, whatever happens to the process that ran it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from windfall.wire import messages as m
from windfall.worker import pace
from windfall.worker.running import system, workdir
from windfall.worker.running.cores import Cores, nodes
from windfall.worker.running.devices import Devices, conflict
from windfall.worker.running.live_output import LiveOutput, Piece
from windfall.worker.running.parts import Parts
from windfall.worker.running.slots import Held, Slot, Slots, Warm
from windfall.worker.running.specs import JobSpec, Specs
from windfall.worker.running.window import read_capped, shrink
from windfall.worker.transport.checkpoints import Checkpoints
from windfall.worker.transport.outbox import Result
from windfall.worker.transport.transfers import Failed, OverQuota, Transfers

_BALANCE_S = 0.05
"""Seconds that an attempt has to run before tasks waiting behind it move to an idle slot."""
_LATE_S = 1.0
"""Seconds after its wall time in which a runner ends an attempt, unless it is stopped."""


class SlotPool:
    """All slots of this worker and every attempt that it holds."""

    def __init__(
        self,
        host: str,
        slots: int,
        folder: str,
        selector: selectors.BaseSelector,
        transfers: Transfers,
        on_result: Callable[[Result], None],
        resources: Devices | None = None,
        engine: str | None = None,
        isolation: dict[str, Any] | None = None,
    ) -> None:
        self._host = host
        self._folder = folder
        workdir.remove(folder)
        os.makedirs(folder, exist_ok=True)
        self._selector = selector
        self._transfers = transfers
        self._on_result = on_result
        self._resources = resources or Devices({}, [])
        self._cores = Cores(slots, nodes())
        self._has_pinned = False
        """Whether a slot was ever pinned: until then nothing is said of cores."""
        self.checkpoints = Checkpoints(f"{folder}-checkpoints", transfers)
        self._specs = Specs(host, self._resources, self.checkpoints.folder, engine, f"{folder}-images", isolation)
        self._parts = Parts(f"{folder}-hosts")
        self.slots = Slots(Slot(index, folder) for index in range(slots))
        self._backlog: deque[Held] = deque()
        self._staging: dict[int, list[Held]] = {}
        self._held: dict[tuple[Any, Any, int], Held] = {}
        self._by_ident: dict[int, Held] = {}
        self._count = 0
        self.durations = pace.Durations()
        self.live = LiveOutput()

    # -- what comes in ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._held)

    def keys(self) -> list[tuple[Any, Any, int]]:
        """Keys of all held attempts, waiting and running."""
        return list(self._held)

    def accept(self, rows: list[list[Any]], jobs: dict[str, dict[str, Any]], payloads: memoryview) -> None:
        """Tasks of an answer, with the specs of their jobs; `payloads` are their attachments, in order."""
        at = 0
        for job, task, attempt, argv, overrides, n_payload in rows:
            payload = bytes(payloads[at : at + n_payload]) if n_payload else b""
            at += n_payload
            key = (job, task, attempt)
            if key in self._held:
                continue
            saved = None
            if overrides and "checkpoint" in overrides:
                overrides = {**overrides}
                saved = overrides.pop("checkpoint")
            if overrides and "gang" in overrides:
                told = self._parts.settings_of(key, overrides["gang"], len(self.slots))
                own = {name: value for name, value in overrides.items() if name != "gang"}
                overrides = {**own, **told, "env": {**own.get("env", {}), **told["env"]}}
            spec = self._specs.of(job, jobs[str(job)], overrides)
            self._count += 1
            held = Held(self._count, job, task, attempt, argv, spec, payload)
            self._held[key] = held
            self._by_ident[held.ident] = held
            if spec.checkpoint_s is not None:
                self._restore(held, saved)
            else:
                self._admit(held)

    def _admit(self, held: Held) -> None:
        if held.spec.missing or held.spec.failure:
            self._stage(held)
        else:
            self._enqueue(held)

    def _enqueue(self, held: Held) -> None:
        """It has its inputs: it begins when a slot is free, or when every other host of its task has its part too."""
        if not len(self._parts) or not self._parts.holds_back(held):
            self._backlog.append(held)

    def begin(self, keys: Iterable[tuple[Any, Any, int]]) -> None:
        """Every host of these tasks holds its part."""
        for key in keys:
            held = self._parts.begin(key)
            if held is not None:
                self._backlog.append(held)
        self.dispatch()

    @property
    def unbegun_parts(self) -> int:
        """Attempts that wait until the other hosts of their tasks have their parts."""
        return len(self._parts)

    def drop_parts(self, reason: str) -> None:
        """Give back what waits for other hosts."""
        for key in self._parts.waiting():
            if (held := self._held.get(key)) is not None:
                self._end([held], m.PREEMPTED, f"not begun: {reason}", None)

    def _restore(self, held: Held, saved: str | None) -> None:
        """Fetch the checkpoint of an earlier attempt first. If that fails, the task starts from its beginning."""

        def fetched(found: str | Failed) -> None:
            if self._held.get(held.key) is held:
                self.checkpoints.place(held, None if isinstance(found, Failed) else found)
                self._admit(held)
                self.dispatch()

        if saved is None:
            self.checkpoints.place(held, None)
            self._admit(held)
        else:
            self._transfers.fetch(saved, fetched)

    def _stage(self, held: Held) -> None:
        """Fetch the inputs first; the attempt is queued when all have arrived."""
        spec = held.spec
        if spec.failure:
            self._fail(held, m.INPUTS, spec.failure)
            return
        waiting = self._staging.setdefault(spec.ident, [])
        waiting.append(held)
        if len(waiting) == 1:
            for sha256 in sorted(spec.missing):
                self._transfers.fetch(sha256, partial(self._fetched, spec, sha256))

    def _fetched(self, spec: JobSpec, sha256: str, found: str | Failed) -> None:
        if isinstance(found, Failed):
            spec.failure = f"input: {found}" if "://" in sha256 else f"input {sha256[:12]}: {found}"
        else:
            spec.fields["inputs"] += [(name, found, mode) for name, sha, mode in spec.inputs if sha == sha256]
        spec.missing.discard(sha256)
        if spec.missing:
            return
        for held in self._staging.pop(spec.ident, []):
            if spec.failure:
                self._fail(held, m.INPUTS, spec.failure)
            else:
                self._enqueue(held)
        if spec.failure:
            # The blob may exist when another task of the job arrives: try again then.
            spec.missing = {sha for _, sha, _ in spec.inputs}
            spec.fields["inputs"], spec.failure = [], None
        self.dispatch()

    # -- handing out ------------------------------------------------------------------------------------------------

    def mean_s(self, now_s: float) -> float | None:
        oldest_s = max((now_s - slot.head_since_s for slot in self.slots if slot.in_hand), default=0.0)
        return self.durations.mean_s(oldest_s)

    def dispatch(self) -> None:
        """Fill every slot up to its target number of tasks."""
        if not self._backlog:
            return
        ahead = pace.hand_ahead(self.mean_s(time.monotonic()))
        while self._backlog:
            held = self._backlog[0]
            slot = self._slot_for(held, ahead)
            if slot is None:
                return
            self._backlog.popleft()
            try:
                if not self._give(slot, held):
                    self._backlog.appendleft(held)
                    return
            except OSError as error:
                self._fail(held, m.LOST, f"could not be handed to a slot: {error}")

    def _slot_for(self, held: Held, ahead: int) -> Slot | None:
        if held.spec.units:
            # The server gives a unit again only when its task has ended; a server that lost its log may not know.
            running = (other.spec.units for slot in self.slots for other in slot.in_hand.values())
            if conflict(held.spec.units, running):
                return None
        if held.spec.cpus > 1:
            free = [slot for slot in self.slots if slot.is_free]
            width = min(held.spec.cpus, len(self.slots))
            if len(free) >= width and held.spec.pin:
                return self.slots[self._cores.together([slot.index for slot in free], width)[0]]
            return free[0] if len(free) >= width else None
        key = held.spec.warm_key
        best: Slot | None = None
        best_load = ahead * 2
        for slot in self.slots:
            load = len(slot.in_hand)
            if load >= ahead or slot.lent_to is not None:
                continue
            if load:
                head = slot.head
                if head is None or head.spec.warm_key != key or head.spec.cpus > 1:
                    continue
            # Among equally loaded slots, prefer one whose warm process fits: it need not be started.
            load = load * 2 + ((slot.warm.key if slot.warm else None) != key)
            if load < best_load:
                best, best_load = slot, load
        return best

    def _give(self, slot: Slot, held: Held) -> bool:
        if slot.process is None:
            self._start(slot)
        if slot.warm and slot.warm.key != held.spec.warm_key:
            self._retire(slot)
        if held.spec.warm_key and slot.warm is None:
            self._count += 1
            warm = slot.start_warm(self._count, held.spec)
            self._selector.register(warm.line, selectors.EVENT_READ, lambda: self._hear_warm(slot, warm))
        lent = self._lent(slot, held.spec) if held.spec.cpus > 1 else []
        if held.spec.pin or self._has_pinned:
            self._has_pinned = True
            slot.pin(self._cores.of([slot.index, *(other.index for other in lent)]) if held.spec.pin else ())
        if not slot.give(held):
            return False
        for other in lent:
            other.lent_to = slot
        return True

    def _lent(self, slot: Slot, spec: JobSpec) -> list[Slot]:
        """Free slots whose cores a wide task uses beside its own."""
        free = [other for other in self.slots if other is not slot and other.is_free]
        if spec.pin:
            chosen = self._cores.together([each.index for each in (slot, *free)], min(spec.cpus, len(self.slots)))
            return [self.slots[index] for index in chosen if index != slot.index]
        return free[: spec.cpus - 1]

    def start_first(self) -> None:
        """Start the runner of one slot before there is a task: it loads while the server is asked."""
        if self.slots[0].process is None:
            self._start(self.slots[0])

    def _start(self, slot: Slot) -> None:
        slot.start()
        self._selector.register(slot.line, selectors.EVENT_READ, lambda: self._hear_runner(slot))  # type: ignore[arg-type]

    def _retire(self, slot: Slot) -> None:
        """End an idle warm process to use its slot for another task."""
        warm = slot.warm
        assert warm and not slot.in_hand
        with contextlib.suppress(KeyError):
            self._selector.unregister(warm.line)
        warm.queue.close()
        warm.line.close()
        slot.order(("end", warm.ident, m.CANCELLED, "", 1.0, False))
        for path in slot.output_files():
            with contextlib.suppress(OSError):
                os.unlink(path)
        slot.warm = None

    def look_at_checkpoints(self, now_s: float) -> None:
        """Send the checkpoints that running attempts have written since the last check."""
        for slot in self.slots:
            head = slot.head
            if head is not None and head.spec.checkpoint_s is not None:
                self.checkpoints.look(head, now_s, now_s - slot.head_since_s)

    def was_frozen(self, seconds: float) -> None:
        """Shift the deadlines of calls by the frozen time; runners do so for commands."""
        for slot in self.slots:
            slot.head_since_s += seconds
            slot.frozen_s += seconds

    def balance(self) -> None:
        """Move tasks that wait behind a long attempt to idle slots."""
        if self._backlog or not any(slot.is_free for slot in self.slots):
            return
        now_s = time.monotonic()
        for slot in self.slots:
            if len(slot.in_hand) > 1 and now_s - slot.head_since_s > _BALANCE_S:
                self._take_back(slot)
        self.dispatch()

    def _take_back(self, slot: Slot) -> None:
        self._backlog.extendleft(reversed(slot.take_back()))
        if not slot.in_hand:
            self._release(slot)  # a wide task that had not begun

    # -- what slots say ---------------------------------------------------------------------------------------------

    def _hear_runner(self, slot: Slot) -> None:
        line = slot.line
        assert line
        for message in line.receive():
            if message[0] == "r":
                self._ended(slot, *message[1:])
            elif message[0] == "o":
                held = self._by_ident.get(message[1])
                if held and held.watched:
                    self.live.add(held, *message[2:])
            elif slot.warm and message[1] == slot.warm.ident:
                self._warm_ended(slot, slot.warm, *message[2:])
        if line.at_end:
            self._runner_died(slot)
        self.dispatch()

    def _hear_warm(self, slot: Slot, warm: Warm) -> None:
        self._read_warm(slot, warm)
        if warm.line.at_end:
            # The runner reports next why it ended.
            self._selector.unregister(warm.line)
        self.dispatch()

    def _read_warm(self, slot: Slot, warm: Warm) -> None:
        for message in warm.line.receive():
            if message[0] == "r":
                # The warm process cannot notice that it was frozen, because it does not wait; the agent does.
                ident, cause, exit_code, run_s, *rest = message[1:]
                self._ended(slot, ident, cause, exit_code, max(0.0, run_s - slot.frozen_s), *rest)
            elif message[0] == "up":
                warm.up = True
                slot.head_since_s = time.monotonic()
            elif message[0] == "need":
                self._transfers.fetch(message[1], partial(self._answer_need, warm, message[1]))

    def _answer_need(self, warm: Warm, sha256: str, found: str | Failed) -> None:
        path, text = (None, str(found)) if isinstance(found, Failed) else (found, "")
        with contextlib.suppress(OSError):
            warm.line.send(("blob", sha256, path, text))

    def _ended(
        self, slot: Slot, ident: int, cause: str, exit_code: int | None, run_s: float, cpu_s: float, rss_bytes: int,
        stdout: bytes, stderr: bytes, value: bytes, more: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        held = slot.done(ident)
        if held is None:
            return
        self._release(slot)
        self.durations.add(run_s)
        result = Result(
            held.job, held.task, held.attempt, cause, exit_code, time.monotonic(), run_s, cpu_s, rss_bytes,
            stdout, stderr, value, more,
        )  # fmt: skip
        if more and "files" in more:
            files, folder = more.pop("files"), more.pop("folder")
            held.slot = None
            self._transfers.send(
                files, lambda sent: self._sent_outputs(held, result, folder, sent), held.spec.destinations, held.key
            )
        elif cause == m.PREEMPTED and held.spec.checkpoint_s is not None:
            # The checkpoint written in the grace time holds the most progress.
            held.slot = None
            self.checkpoints.send(held, run_s, lambda: self._finish(held, result))
        else:
            self._finish(held, result)

    def _release(self, slot: Slot) -> None:
        for other in self.slots:
            if other.lent_to is slot:
                other.lent_to = None

    def _sent_outputs(self, held: Held, result: Result, folder: str | None, sent: Any) -> None:
        if folder:
            workdir.remove(folder)
        if self._held.get(held.key) is not held:
            return  # cancelled meanwhile
        more = dict(result.more or {})
        if isinstance(sent, Failed):
            more["text"] = f"a declared output could not be sent: {sent}"
            result = result._replace(cause=m.QUOTA if isinstance(sent, OverQuota) else m.OUTPUTS)
        else:
            more["outputs"] = [row for row in sent if len(row) == 4]
            if stored := [row for row in sent if len(row) > 4]:
                more["stored"] = [[name, url, size, sha256] for name, sha256, size, _, url in stored]
        self._finish(held, result._replace(more=more))

    def _finish(self, held: Held, result: Result) -> None:
        if self._held.pop(held.key, None) is None:
            return  # told already
        del self._by_ident[held.ident]
        self._parts.forget(held.key)
        if held.spec.checkpoint_s is not None:
            self.checkpoints.forget(held)
        self._on_result(result)

    def _fail(self, held: Held, cause: str, text: str, run_s: float = 0.0, **fields: Any) -> None:
        """Report an attempt that ended without a report of its process."""
        result = Result(
            held.job, held.task, held.attempt, cause, None, time.monotonic(), run_s, 0.0, 0, b"", b"", b"",
            {"text": text},
        )  # fmt: skip
        self._finish(held, result._replace(**fields))

    def _warm_ended(
        self, slot: Slot, warm: Warm, cause: str, exit_code: int | None, rss_bytes: int, stderr: bytes, text: str
    ) -> None:
        """A warm process has ended, and its present call with it; its other calls have not begun."""
        self._read_warm(slot, warm)
        waiting = slot.take_back()
        if not warm.up and waiting and cause not in (m.CANCELLED, m.PREEMPTED, m.TIME):
            # It did not start: fail the call that it was started for, else it would be tried for ever.
            victim = waiting.pop(0)
            slot.in_hand[victim.ident] = victim
        self._backlog.extendleft(reversed(waiting))
        files = slot.output_files()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(warm.line)
        warm.queue.close()
        warm.line.close()
        slot.warm = None
        if cause in (m.DONE, m.EXIT, m.SIGNAL):  # not our doing
            text = f"its Python process ended: {text or 'exit code 0'}"
            cause = m.EXIT if cause == m.DONE else cause
        run_s = time.monotonic() - slot.head_since_s
        for held in list(slot.in_hand.values()):
            slot.done(held.ident)
            cap_bytes = held.spec.fields["output_cap_bytes"]
            stdout, written = (read_capped(path, cap_bytes) for path in files)
            self._fail(held, cause, text, run_s, exit_code=exit_code, rss_bytes=rss_bytes,
                       stdout=stdout, stderr=shrink(stderr + written, cap_bytes)[0])  # fmt: skip
        self._release(slot)
        for path in files:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _runner_died(self, slot: Slot) -> None:
        """A runner was killed from outside: its attempt is lost; its orphans, adopted by this process, are killed."""
        assert slot.process and slot.line
        waiting = slot.take_back()
        if not slot.in_hand and waiting:
            # It died before it began anything: charge one attempt, else it would be tried for ever.
            charged = waiting.pop(0)
            slot.in_hand[charged.ident] = charged
        self._backlog.extendleft(reversed(waiting))
        self._selector.unregister(slot.line)
        if slot.warm:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(slot.warm.line)
        slot.close()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            slot.process.kill()
            slot.process.wait(1)
        slot.process = None
        self.kill_strays()
        for held in list(slot.in_hand.values()):
            run_s = time.monotonic() - slot.head_since_s
            slot.done(held.ident)
            self._fail(held, m.LOST, "the runner of its slot was killed", run_s)
        self._release(slot)

    def kill_strays(self) -> None:
        system.kill_orphans(frozenset(slot.process.pid for slot in self.slots if slot.process))

    # -- orders -----------------------------------------------------------------------------------------------------

    def cancel(self, keys: Iterable[tuple[Any, Any, int]]) -> None:
        """End these attempts, begun or not."""
        targets = [held for key in keys if (held := self._held.get(key))]
        self._end(targets, m.CANCELLED, "cancelled", None)

    def hand_back(self, reason: str) -> None:
        """Return everything that has not been begun."""
        for slot in self.slots:
            self._take_back(slot)
        waiting = [held for group in self._staging.values() for held in group]
        self._staging.clear()
        for held in [*self._backlog, *waiting, *self._parts.ready()]:
            self._fail(held, m.PREEMPTED, f"not begun: {reason}")
        self._backlog.clear()

    def return_unbegun(self, keys: Iterable[tuple[Any, Any, int]]) -> None:
        """Return those of these attempts that have not begun: another host is idle."""
        wanted = {held.ident: held for key in keys if (held := self._held.get(key))}
        for slot in {held.slot for held in wanted.values() if held.slot}:
            self._take_back(slot)
        waiting = [*self._backlog, *(held for group in self._staging.values() for held in group)]
        returned = [held for held in waiting if held.ident in wanted]
        self._backlog = deque(held for held in self._backlog if held.ident not in wanted)
        for ident, group in self._staging.items():
            self._staging[ident] = [held for held in group if held.ident not in wanted]
        for held in returned:
            self._fail(held, m.PREEMPTED, "not begun: another host is idle")
        self.dispatch()

    def preempt(self, reason: str, grace_s: float | None, notice: bool) -> None:
        """Hand back waiting tasks and end running ones, with their grace time or the one given."""
        self.hand_back(reason)
        self._end(list(self._held.values()), m.PREEMPTED, reason, grace_s, notice)

    def _end(self, targets: list[Held], cause: str, text: str, grace_s: float | None, notice: bool = False) -> None:
        for slot in {held.slot for held in targets if held.slot}:
            self._take_back(slot)
        wanted = {held.ident for held in targets}
        self._backlog = deque(held for held in self._backlog if held.ident not in wanted)
        for ident, group in self._staging.items():
            self._staging[ident] = [held for held in group if held.ident not in wanted]
        for held in targets:
            if held.key not in self._held:
                continue
            if held.slot:
                held.slot.end_running(held, cause, text, grace_s, notice)
            else:
                self._fail(held, cause, text)
        self.dispatch()

    def watch(self, keys: Iterable[tuple[Any, Any, int]]) -> None:
        """Follow the output of exactly these attempts."""
        followed = {held.ident: held for key in keys if (held := self._held.get(key))}
        self.live.follow(followed, self._by_ident.values())

    def take_live(self) -> list[Piece]:
        """New output of watched attempts."""
        return self.live.take(self.slots)

    def check_calls(self) -> None:
        """Enforce the wall time of calls: a warm process cannot stop itself."""
        now_s = time.monotonic()
        for slot in self.slots:
            head, warm = slot.head, slot.warm
            if head is None or warm is None or not warm.up or not head.spec.wall_s or head.ending:
                continue
            if now_s - slot.head_since_s > head.spec.wall_s:
                self._end([head], m.TIME, f"over its wall time of {head.spec.wall_s:g} s", None)

    def wake_stopped(self, now_s: float) -> None:
        """Enforce what a runner cannot while it is stopped, as by its own task: the wall time, and an end."""
        for slot in self.slots:
            head = slot.head
            if head is None or slot.process is None or slot.warm is not None:
                continue
            over = head.spec.wall_s is not None and now_s - slot.head_since_s > head.spec.wall_s + _LATE_S
            if (over or head.ending) and system.is_stopped(slot.process.pid):
                if not head.ending:
                    self._end([head], m.TIME, f"over its wall time of {head.spec.wall_s:g} s", 0.0)
                os.kill(slot.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Close all slots and kill every process that is left."""
        for slot in self.slots:
            if slot.line:
                self._selector.unregister(slot.line)
            slot.close()
        deadline_s = time.monotonic() + 5.0
        for slot in self.slots:
            if slot.process:
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    system.wait_for(slot.process, max(0.0, deadline_s - time.monotonic()))
        system.kill_orphans()
        workdir.remove(self._folder)
