"""The worker's main process: exchanges with the server, keeps its slots busy, ends in good order. Touches everything.

One thread decides (this one); HTTP and blobs have threads that only transfer. Short tasks are handled in batches: after
a turn with results the loop pauses for a moment, so that the results that gather meanwhile cost one wake-up.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from windfall.wire import VERSION, frames, other_version
from windfall.wire.messages import NO_WORK
from windfall.worker import batch_job, identity, metadata, pace
from windfall.worker.running import containers, devices, isolation, system
from windfall.worker.running.processor_time import ProcessorTime
from windfall.worker.running.slot_pool import SlotPool
from windfall.worker.transport.link import Address, Link, OtherVersion, Refused, TooLarge
from windfall.worker.transport.outbox import Outbox, Result
from windfall.worker.transport.spool import Spool
from windfall.worker.transport.transfers import Transfers

_TICK_S = 0.5
_SPOOL_AFTER_S = 1.0
_LIVE_WAIT_S = 0.3
_AD_EVERY_S = 60.0
_PRIVATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_LAST_EXCHANGE_S = 5.0
_RECLAIMED, _REBALANCE = "reclaimed", "rebalance recommendation"


@dataclass
class Options:
    """The options of the command line."""

    address: Address
    folder: str
    slots: int
    name: str | None = None
    pool: str | None = None
    machine: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    lifetime_s: float | None = None
    idle_exit_s: float | None = None
    unreachable_exit_s: float | None = None
    parent_pid: int | None = None
    notice_file: str | None = None
    memory_mb: int | None = None
    grace_s: float | None = None
    quiet: bool = False
    token_file: str | None = None
    forget_token_file: bool = False
    """Remove the file of the token before the first task, and keep the host's secret in memory alone."""
    notices: str | None = None
    """`ec2`: read the notices of its metadata service."""
    notices_every_s: float = metadata.EVERY_S
    rebalance: str = metadata.DRAIN
    least_cpu: float | None = None
    """End when tasks get less than this share of the processor time that they ask for, over `least_cpu_over_s`."""
    least_cpu_over_s: float = 300.0
    resources: dict[str, int] = field(default_factory=dict)
    """Units of resources that the host is said to have; GPUs are found otherwise."""
    isolate: bool = False
    """Run every task in a sandbox."""
    isolate_network: bool = False
    """Tasks in a sandbox have the network of the host."""


class Agent:
    """One run of the worker, from its first exchange to its exit code."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._identity = identity.claim(options.name, options.address.url)
        self.host = self._identity.host
        self._boot = secrets.token_hex(8)
        folder = os.path.join(options.folder, self.host)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        options.address.secret = options.address.secret or (
            secrets.token_hex(32) if options.forget_token_file else identity.secret(folder)
        )
        self._ad = identity.advertisement(
            self.host, options.slots, options.pool, options.tags, options.folder, options.memory_mb
        )
        address = identity.address_towards(options.address.current)
        if address:
            self._ad["address"] = address
        if options.machine is not None:
            self._ad["machine"] = options.machine
        resources = devices.find(options.resources, identity.claim_device)
        if resources.counts:
            self._ad.update(resources=resources.counts, gpu_vendors=resources.vendors)
        engine = containers.find_engine()
        if engine is not None:
            self._ad["containers"] = engine
        sandbox: dict[str, Any] | None = None
        if options.isolate:
            self._ad["isolation"] = isolation.NAME
            sandbox = isolation.settings_of(options.folder, options.token_file, options.isolate_network)
            sandbox["places"] = [os.path.join(folder, name) for name in ("cache", "run-checkpoints")]
        self._selector = selectors.DefaultSelector()
        self._outbox = Outbox(Spool(os.path.join(folder, "spool"), self._boot))
        self._transfers = Transfers(options.address, folder)
        self._slots = SlotPool(
            self.host, options.slots, os.path.join(folder, "run"), self._selector, self._transfers, self._on_result,
            resources, engine, sandbox,
        )  # fmt: skip
        self._link = Link(options.address, random.Random())
        self._started_s = self._last_work_s = time.monotonic()
        self._sent_s = self._ad_sent_s = self._tick_at_s = 0.0
        self._gap_s = pace.GAP_S
        self._next_s = 1.0  # until the server says
        self._wanted = 0
        """Tasks that the exchange under way asks for."""
        self._round_trip = pace.RoundTrip()
        self._version = VERSION
        """Of the protocol; another one once a server has said that it does not speak it."""
        self._refused: set[int] = set()
        """Versions that were refused since the last answer."""
        self._n = 0
        self._in_flight = False
        self._tell_held = False
        self._told: list[list[Any]] = []
        self._wait_s = 0.0
        self._nudged = False
        self._fresh_results = False
        self._leaving: str | None = None
        self._leave_by_s = 0.0
        self._said_goodbye = False
        self._exit_code: int | None = None
        self._code = 0
        """The exit code once the worker has left."""
        self._reported_down = False
        self._signals: list[int] = []
        self._is_child = os.getppid() == options.parent_pid
        self._metadata = metadata.Watch(options.notices_every_s) if options.notices else None
        # Workers of a pool are told how long they may run; those that end with their parent end with it.
        by_hand = options.lifetime_s is None and options.parent_pid is None
        self._batch_job = batch_job.watch() if by_hand else None
        self._processor = ProcessorTime(options.least_cpu_over_s) if options.least_cpu else None

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until there is a reason to end; return the exit code."""
        self._set_up_signals()
        system.become_subreaper()
        system.hide_memory()
        self._selector.register(self._link, selectors.EVENT_READ, self._on_answer)
        self._selector.register(self._transfers, selectors.EVENT_READ, self._transfers.finish)
        if self._metadata is not None:
            self._metadata.start()
        if self._batch_job is not None:
            self._batch_job.start()
        self._say(f"worker {self.host}: {self._options.slots} slots for {self._options.address.url}")
        with contextlib.suppress(OSError):  # the first task says what is wrong
            self._slots.start_first()
        try:
            while self._exit_code is None:
                registered = self._selector.get_map()
                for key, _ in self._wait(self._timeout_s()):
                    # Handling one event may close the descriptor of another event of the same batch.
                    if registered.get(key.fd) is key:
                        key.data()
                self._turn()
                if self._fresh_results:
                    self._fresh_results = False
                    time.sleep(pace.pause_s(self._slots.slots.least_in_hand(), self._slots.durations.mean_s()))
        finally:
            self._close()
        return self._exit_code

    def _wait(self, timeout_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events. If this host was hibernated meanwhile, shift all deadlines by that time."""
        before_s = time.monotonic()
        ready = self._selector.select(timeout_s)
        if slept_s := system.frozen_s(time.monotonic() - before_s, timeout_s):
            self._say(f"frozen for {slept_s:.1f} s")
            self._slots.was_frozen(slept_s)
            self._last_work_s += slept_s
            self._leave_by_s += slept_s
            self._link.was_frozen(slept_s)
        return ready

    def _timeout_s(self) -> float:
        if self._slots.slots.needs_a_look:
            return 0.05
        if self._in_flight:
            return _TICK_S
        return min(_TICK_S, max(0.0, self._sent_s + self._least_gap_s() - time.monotonic()))

    def _turn(self) -> None:
        now_s = time.monotonic()
        while self._signals:
            self._on_signal(self._signals.pop(0))
        if self._slots.slots.needs_a_look:
            self._slots.check_calls()
            self._slots.balance()
        if now_s >= self._tick_at_s:
            self._tick_at_s = now_s + _TICK_S
            self._tick(now_s)
        self._speak(now_s)

    def _tick(self, now_s: float) -> None:
        """Checks made every half second: outages, lifetimes, notices, parents, checkpoints."""
        self._slots.balance()
        self._slots.look_at_checkpoints(now_s)
        self._slots.wake_stopped(now_s)
        down_since_s = self._link.down_since_s
        if down_since_s is not None and now_s - down_since_s > _SPOOL_AFTER_S:
            self._keep_results()
            if not self._reported_down:
                self._reported_down = True
                self._say(f"the server cannot be reached ({self._link.last_failure}); going on and trying again")
        elif down_since_s is None and self._reported_down:
            self._reported_down = False
            self._say("the server answers again")
        if len(self._slots):
            self._last_work_s = now_s
        if self._batch_job is not None and self._batch_job.found is not None:
            self._end_with_job(*self._batch_job.found)
        options = self._options
        if self._is_orphan():
            self._abandon()
        elif self._is_reclaimed():
            self._code = metadata.RECLAIMED
            self._leave(_RECLAIMED, self._grace_left_s(), notice=True)
        elif self._leaving:
            if now_s > self._leave_by_s:
                self._exit_code = self._code
        elif options.notice_file and os.path.exists(options.notice_file):
            self._leave("notice", None, notice=True)
        elif options.unreachable_exit_s is not None and self._link.silent_s(now_s) > options.unreachable_exit_s:
            self._code = 3  # an exit code other than 0: its results did not reach the server
            self._leave("the server cannot be reached", None)
        elif self._metadata is not None and self._metadata.rebalance and options.rebalance != metadata.IGNORE:
            self._rebalance()
        elif self._lifetime_is_over(now_s):
            self._leave("lifetime", None)
        elif options.idle_exit_s is not None and now_s - self._last_work_s > options.idle_exit_s:
            self._leave(NO_WORK, None)
        elif self._processor is not None:
            share = self._processor.share(now_s, bool(len(self._slots)))
            if share is not None and share < (options.least_cpu or 0.0):
                self._leave(f"too little processor time: {share:.0%} of what its tasks ask for", None)

    # -- notices of the cloud ---------------------------------------------------------------------------------------

    def _is_reclaimed(self) -> bool:
        """Whether the machine will end or be stopped. One that is hibernated goes on where it was."""
        watch = self._metadata
        return (
            watch is not None
            and watch.action in (metadata.TERMINATE, metadata.STOP)
            and self._leaving != _RECLAIMED
        )  # fmt: skip

    def _grace_left_s(self) -> float | None:
        """The grace time of running tasks if less is left than their own; None: their own."""
        assert self._metadata is not None
        left_s = max(0.0, self._metadata.at_t - time.time() - _LAST_EXCHANGE_S)
        return left_s if left_s < self._slots.slots.longest_grace_s() else None

    def _rebalance(self) -> None:
        if self._options.rebalance == metadata.LEAVE:
            self._leave(_REBALANCE, None, notice=True)
            return
        self._begin_to_leave(_REBALANCE)
        self._leave_by_s = float("inf")
        self._slots.hand_back(f"the worker leaves: {_REBALANCE}")

    # -- signals ----------------------------------------------------------------------------------------------------

    def _set_up_signals(self) -> None:
        read, write = os.pipe()
        for fd in (read, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._selector.register(read, selectors.EVENT_READ, lambda: os.read(read, 4096))
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(signum, lambda number, _: self._signals.append(number))
        if self._is_child:
            system.die_with_parent(signal.SIGTERM)

    def _on_signal(self, signum: int) -> None:
        if self._is_orphan():
            self._abandon()
        elif signum == signal.SIGUSR1:
            self._leave("notice", None, notice=True)
        elif self._leaving == "signal":
            self._slots.preempt("the worker was told twice to stop", 0.0, False)
        else:
            self._leave("signal", None)

    # -- leaving ----------------------------------------------------------------------------------------------------

    def _leave(self, reason: str, grace_s: float | None, notice: bool = False) -> None:
        """Hand back waiting tasks, end running ones with their grace time, report all of them, end."""
        self._begin_to_leave(reason)
        grace_s = self._options.grace_s if grace_s is None else grace_s
        self._slots.preempt(f"the worker leaves: {reason}", grace_s, notice)

    def _begin_to_leave(self, reason: str) -> None:
        if self._leaving is None:
            self._say(f"leaving: {reason}")
        self._leaving = reason
        patience_s = 10.0 if self._link.down_since_s is None else 1.0
        self._leave_by_s = time.monotonic() + self._slots.slots.longest_grace_s() + patience_s

    def _is_orphan(self) -> bool:
        """Whether the parent process has ended (a zombie keeps its number, so the number alone does not tell)."""
        parent_pid = self._options.parent_pid
        if parent_pid is None:
            return False
        if self._is_child:
            return os.getppid() != parent_pid
        try:
            os.kill(parent_pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def _abandon(self) -> None:
        """The parent process has ended, and its server with it: end now, keep the results."""
        self._slots.preempt("the process that started this worker has ended", 0.0, False)
        self._exit_code = 0

    def _end_with_job(self, job: str, end_t: float) -> None:
        """Take the end of the batch job for the end of this host, and tell the server with the next exchange."""
        self._batch_job = None
        left_s = max(0.0, end_t - time.time())
        self._options.lifetime_s = time.monotonic() + left_s - self._started_s
        self._ad_sent_s = -_AD_EVERY_S
        self._say(f"{job} ends in {left_s:.0f} s: this worker ends in good order before")

    def _lifetime_left_s(self, now_s: float) -> float | None:
        lifetime_s = self._options.lifetime_s
        return None if lifetime_s is None else self._started_s + lifetime_s - now_s

    def _margin_s(self) -> float:
        """Seconds needed to end in good order: the longest grace time of the tasks and a last exchange."""
        return min(self._slots.slots.longest_grace_s() + 2.0, (self._options.lifetime_s or 0.0) / 4)

    def _lifetime_is_over(self, now_s: float) -> bool:
        """Whether to end running tasks now; earlier if none runs and no further task would finish in time."""
        left_s = self._lifetime_left_s(now_s)
        if left_s is None:
            return False
        return left_s < self._margin_s() or (not len(self._slots) and self._lifetime_is_short(now_s))

    def _lifetime_is_short(self, now_s: float) -> bool:
        """Whether less time is left than the mean run time of the tasks so far."""
        left_s = self._lifetime_left_s(now_s)
        if left_s is None:
            return False
        return left_s - self._margin_s() < (self._slots.durations.mean_s() or 0.0)

    def _close(self) -> None:
        self._link.close()
        self._transfers.close()
        self._slots.close()
        self._keep_results()

    def _keep_results(self) -> None:
        try:
            self._outbox.save()
        except OSError as error:
            self._say(f"results could not be kept on disk: {error}")

    # -- exchanges --------------------------------------------------------------------------------------------------

    def _on_result(self, result: Result) -> None:
        self._fresh_results = True
        self._outbox.add(result)

    def _speak(self, now_s: float) -> None:
        """Exchange if it is due; break off a long poll if there are results or a goodbye to send."""
        if self._in_flight:
            urgent = self._outbox.waiting or (self._leaving and not len(self._slots))
            if urgent and self._wait_s > 2 * pace.GAP_S and not self._nudged:
                self._nudged = True
                self._link.nudge()
            return
        if self._leaving and not len(self._slots):
            if self._said_goodbye and not len(self._outbox):
                self._exit_code = self._code if self._leaving == _RECLAIMED else 0
                return
        elif now_s - self._sent_s < self._least_gap_s():
            return
        self._exchange(now_s)

    def _least_gap_s(self) -> float:
        """Least time between two exchanges: at least `_gap_s` if there is nothing to report."""
        busy_s = pace.gap_s(self._options.slots, len(self._slots), self._slots.durations.mean_s())
        return busy_s if self._outbox.waiting else max(busy_s, self._gap_s)

    def _exchange(self, now_s: float) -> None:
        self._n += 1
        self._sent_s = now_s
        results = self._outbox.take()
        mean_s = self._slots.mean_s(now_s)
        leaving = self._leaving if not len(self._slots) and not self._outbox.waiting else None
        self._said_goodbye = leaving is not None
        want = room = 0
        if not self._leaving and not self._lifetime_is_short(now_s):
            # What waits for other hosts takes no slot: an ask that wants something may wait for its answer.
            want = pace.want(self._options.slots, len(self._slots) - self._slots.unbegun_parts, mean_s)
            room = pace.room(self._options.slots, len(self._slots) + want)
        self._wanted = want
        live_rows, live_data = self._live()
        busy = len(self._slots) - self._slots.unbegun_parts
        self._wait_s = 0.0 if leaving or self._outbox.waiting else pace.wait_s(busy, mean_s, self._next_s)
        if self._slots.slots.watched():
            self._wait_s = min(self._wait_s, _LIVE_WAIT_S)
        header = {
            "v": self._version,
            "host": self.host,
            "boot": self._boot,
            "n": self._n,
            "ad": self._advertisement(now_s),
            "want": want,
            "room": room,
            "slots": self._options.slots,
            "results": [result.row(now_s, self._version) for result in results],
            "started": self._slots.slots.started(),
            "held": len(self._slots),
            "holds": [*self._slots.keys(), *self._outbox.waiting_keys()] if self._tell_held else None,
            "live": live_rows,
            "leaving": leaving,
        }
        self._told = self._slots.checkpoints.rows[:]
        if self._told:
            header["checkpoints"] = self._told
        attachments = [part for r in results for part in (r.stdout, r.stderr, r.value) if part]
        attachments += live_data
        text = json.dumps(header, separators=(",", ":"))[:-1]
        first, repeat = (
            frames.join(f'{text},"wait_s":{wait_s:g}}}'.encode(), attachments) for wait_s in (self._wait_s, 0)
        )
        self._in_flight, self._nudged = True, False
        self._link.send(first, repeat, self._wait_s)

    def _advertisement(self, now_s: float) -> dict[str, Any] | None:
        left_s = self._lifetime_left_s(now_s)
        is_due = left_s is not None and now_s - self._ad_sent_s >= _AD_EVERY_S
        if self._n > 1 and not is_due and not self._round_trip.is_news and not self._tell_held:
            return None
        self._ad_sent_s = now_s
        if self._round_trip.is_news:
            self._round_trip.told_s = self._round_trip.seconds
        told_s = self._round_trip.told_s
        return {
            **self._ad,
            # Until it ends its tasks: what begins must end before the time that is kept for leaving.
            "lifetime_s": None if left_s is None else round(max(0.0, left_s - self._margin_s()), 1),
            "round_trip_s": None if told_s is None else round(told_s, 3),
        }

    def _live(self) -> tuple[list[list[Any]], list[bytes]]:
        rows, data = [], []
        for held, which, offset, piece in self._slots.take_live():
            position = [offset, len(piece), 0, 0] if which == 0 else [0, 0, offset, len(piece)]
            rows.append([*held.key, *position])
            data.append(piece)
        return rows, data

    def _on_answer(self) -> None:
        outcome = self._link.answer()
        if outcome is None:
            return
        self._in_flight = False
        if isinstance(outcome, OtherVersion) and (other := self._other_version()) is not None:
            # An older server, as before its upgrade, or one that has been upgraded and takes no older version any
            # more. It has not counted the exchange: say the same in its version.
            which = "older" if other < self._version else "newer"
            self._version = other
            self._say(f"the server is {which}; going on with version {other} of the protocol")
            self._outbox.put_back()
            self._sent_s, self._said_goodbye = 0.0, False
            self._n -= 1
        elif isinstance(outcome, Refused):
            self._say(str(outcome), always=True)
            self._exit_code = outcome.exit_code
        elif isinstance(outcome, TooLarge):
            # The server has not counted the exchange: send the same number again with fewer results.
            self._outbox.too_large(outcome.limit_bytes)
            self._n -= 1
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            self._refused.clear()
            self._take(outcome)

    def _other_version(self) -> int | None:
        self._refused.add(self._version)
        return other_version(self._refused)

    def _take(self, body: bytes) -> None:
        raw, payloads = frames.split(body)
        answer = json.loads(bytes(raw))
        if answer["n"] != self._n:
            raise ValueError(f"an answer to exchange {answer['n']} instead of {self._n}")
        if self._options.forget_token_file and self._options.token_file:
            self._forget_token_file(self._options.token_file)
        self._outbox.acknowledged()
        del self._slots.checkpoints.rows[: len(self._told)]
        self._next_s = float(answer.get("next_s") or self._next_s)
        self._tell_held = bool(answer.get("tell"))
        self._round_trip.add(self._link.answered_in_s - float(answer.get("waited_s") or 0.0))
        tasks, cancel = answer.get("tasks") or [], answer.get("cancel") or []
        empty_s = time.monotonic() - self._sent_s
        if tasks or cancel or answer.get("begin") or self._nudged or empty_s >= self._wait_s / 2:
            self._gap_s = pace.GAP_S
        else:
            # The server holds no request of a worker that wants nothing: do not ask again in a tight loop.
            busy_s = 0.0 if answer.get("watch") else float(answer.get("busy_s") or 0.0)
            self._gap_s = pace.quiet_gap_s(self._gap_s, self._next_s, busy_s, self._wanted)
        if tasks:
            self._slots.accept(tasks, answer["jobs"], payloads)
            self._slots.dispatch()
            self._last_work_s = time.monotonic()
        if begin := answer.get("begin"):
            self._slots.begin((job, task, attempt) for job, task, attempt in begin)
        if self._tell_held:
            self._slots.drop_parts("the server has lost track of the hosts of its task")
        if cancel:
            self._slots.cancel((job, task, attempt) for job, task, attempt in cancel)
        if hand_back := answer.get("hand_back"):
            self._slots.return_unbegun((job, task, attempt) for job, task, attempt in hand_back)
        self._slots.watch((job, task, attempt) for job, task, attempt in answer.get("watch") or [])
        if answer.get("token"):
            self._renew_token(str(answer["token"]))
        stop = answer.get("stop")
        if self._leaving:
            self._slots.hand_back(f"the worker leaves: {self._leaving}")
        elif stop == "now":
            self._leave("drained", 0.0)
        elif stop == "save":
            self._leave("recalled by the plan", None, notice=True)
        elif stop:
            self._begin_to_leave("drained")
            self._leave_by_s = float("inf")
            self._slots.hand_back(f"the server drains this worker: {stop}")

    def _forget_token_file(self, file: str) -> None:
        """The server has taken the token, and no task has begun."""
        self._options.token_file = None
        try:
            os.unlink(file)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._say(f"{file} stays: it cannot be removed ({error.strerror}); tasks can read it", always=True)

    def _renew_token(self, token: str) -> None:
        self._options.address.token = token
        file = self._options.token_file
        # A file of ours alone serves a worker that is started again there; a pool's own is the server's to renew.
        if file and os.path.dirname(os.path.abspath(file)) == self._options.folder:
            with contextlib.suppress(OSError):
                with open(os.open(file + ".new", _PRIVATE, 0o600), "w") as new:
                    new.write(token)
                os.replace(file + ".new", file)

    def _say(self, text: str, always: bool = False) -> None:
        if always or not self._options.quiet:
            with contextlib.suppress(OSError):
                print(f"windfall: {text}", file=sys.stderr, flush=True)
