"""The agent's side of a slot: its runner, perhaps a warm Python process, and what they have in hand. Touches processes.

The attempts of a slot run in the order in which they were handed over, so the first of `in_hand` is the one that runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from windfall.worker.running import channel
from windfall.worker.running.specs import JobSpec

_MAX_SPECS = 256

SOURCE = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))
"""The folder or zip file of this package, from which runners load it."""

_START = "import sys; sys.path.insert(0, {source!r}); from windfall.worker.running.{module} import main; main()"


class Held:
    """An attempt that this worker holds and has not reported yet."""

    __slots__ = (
        "argv", "attempt", "ending", "ident", "job", "live_offsets", "payload", "slot", "spec", "start_reported",
        "task", "watched",
    )  # fmt: skip

    def __init__(
        self, ident: int, job: Any, task: Any, attempt: int, argv: list[str] | None, spec: JobSpec, payload: bytes
    ) -> None:
        self.ident = ident
        self.job = job
        self.task = task
        self.attempt = attempt
        self.argv = argv
        self.spec = spec
        self.payload = payload
        self.slot: Slot | None = None
        self.start_reported = False
        self.ending = False
        self.watched = False
        self.live_offsets = [0, 0]

    @property
    def key(self) -> tuple[Any, Any, int]:
        return self.job, self.task, self.attempt


class Warm:
    """A warm Python process under a slot's runner, with a queue and a line of its own."""

    def __init__(self, ident: int, key: tuple[Any, ...], label: str) -> None:
        self.ident = ident
        self.key = key
        self.label = label
        self.queue = channel.Queue()
        ours, self.far_end = socket.socketpair()
        self.line = channel.Line(ours)
        self.known: set[int] = set()
        self.up = False


class Slot:
    """One place to run an attempt."""

    def __init__(self, index: int, folder: str) -> None:
        self.index = index
        self.folder = folder
        self.in_hand: dict[int, Held] = {}
        self.head_since_s = self.frozen_s = 0.0
        self.warm: Warm | None = None
        self.lent_to: Slot | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.queue: channel.Queue | None = None
        self.line: channel.Line | None = None
        self._known: set[int] = set()
        self._warm_count = 0
        self._pinned: tuple[channel.Queue | None, tuple[int, ...]] = (None, ())
        """The queue whose reader was last told which cores to use, and these; none: those of the worker."""

    @property
    def head(self) -> Held | None:
        return next(iter(self.in_hand.values()), None)

    @property
    def is_free(self) -> bool:
        return not self.in_hand and self.lent_to is None

    def start(self) -> None:
        """Start the runner; it shares only the descriptors with this process."""
        self.queue = channel.Queue()
        ours, theirs = socket.socketpair()
        fds = (self.queue.read_end.fileno(), theirs.fileno())
        label = f"slot{self.index}"
        code = _START.format(source=SOURCE, module="runner")
        self.process = subprocess.Popen(
            # Isolated and without site-packages: the smaller the process, the cheaper its spawns.
            [sys.executable, "-I", "-S", "-c", code, str(fds[0]), str(fds[1]), self.folder, label],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # A signal to the worker's process group must not reach its runners: they have to clear up.
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if k != "WINDFALL_TOKEN"},
        )
        theirs.close()
        self.line = channel.Line(ours)
        self._known = set()

    def pin(self, cores: tuple[int, ...]) -> None:
        """Attempts that are given from now on run on these cores; none: on those of the worker."""
        queue = self.warm.queue if self.warm else self.queue
        if queue is not None and (queue is not self._pinned[0] or cores != self._pinned[1]):
            queue.put(("pin", cores), self.folder)
            self._pinned = (queue, cores)

    def start_warm(self, ident: int, spec: JobSpec) -> Warm:
        """Have the runner start a Python process that takes calls from a queue of its own."""
        assert self.queue and spec.warm_key
        self._warm_count += 1
        warm = Warm(ident, spec.warm_key, f"slot{self.index}-py{self._warm_count}")
        python = spec.warm_key[0]
        argv = [python, "-c", _START.format(source=SOURCE, module="caller"), SOURCE, self.folder, warm.label]
        fields = {**spec.fields, "env": spec.share, "cwd": None, "wall_s": None, "inputs": [], "outputs": []}
        self.queue.put(("warm", ident, fields, argv), self.folder)
        self.queue.put_descriptors([warm.queue.read_end.fileno(), warm.far_end.fileno()])
        warm.far_end.close()
        self.warm = warm
        return warm

    def give(self, held: Held) -> bool:
        """Give an attempt to the slot; False if its queue is full."""
        if held.spec.is_call:
            assert self.warm
            queue, known = self.warm.queue, self.warm.known
        else:
            assert self.queue
            queue, known = self.queue, self._known
        spec = held.spec
        if spec.ident not in known:
            if len(known) >= _MAX_SPECS:
                known.clear()
                queue.put(("forget",), self.folder)
            if not queue.put(("spec", spec.ident, spec.fields), self.folder):
                return False
            known.add(spec.ident)
        kind = "call" if spec.is_call else "task"
        message = (kind, held.ident, spec.ident, str(held.task), held.attempt, held.argv, held.payload)
        if not queue.put(message, self.folder):
            return False
        if not self.in_hand:
            self.head_since_s, self.frozen_s = time.monotonic(), 0.0
        self.in_hand[held.ident] = held
        held.slot = self
        return True

    def take_back(self) -> list[Held]:
        """Take the attempts out of the slot that have not begun, and return them."""
        taken = []
        for queue, known in self._queues():
            for packet in queue.take_back():
                message = channel.message_of(packet)
                if message[0] == "spec":
                    known.discard(message[1])
                elif message[0] == "pin":
                    self._pinned = (None, ())  # not told: it is said again with the next attempt
                elif message[0] in ("task", "call"):
                    held = self.in_hand.pop(message[1])
                    held.slot = None
                    taken.append(held)
        return taken

    def _queues(self) -> list[tuple[channel.Queue, set[int]]]:
        queues = [(self.queue, self._known)] if self.queue and not self.warm else []
        return [*queues, (self.warm.queue, self.warm.known)] if self.warm else queues

    def done(self, ident: int) -> Held | None:
        """An attempt has ended: the next one of the slot runs now."""
        held = self.in_hand.pop(ident, None)
        self.head_since_s, self.frozen_s = time.monotonic(), 0.0
        return held

    def order(self, message: tuple[Any, ...]) -> None:
        """Send the runner a message about its present attempt; a dead runner is noticed elsewhere."""
        if self.line:
            with contextlib.suppress(OSError):
                self.line.send(message)

    def end_running(self, held: Held, cause: str, text: str, grace_s: float | None, notice: bool = False) -> None:
        """End the running attempt. A call is ended by ending its warm process."""
        held.ending = True
        ident = self.warm.ident if held.spec.is_call and self.warm else held.ident
        self.order(("end", ident, cause, text, held.spec.grace_s if grace_s is None else grace_s, notice))

    def output_files(self) -> tuple[str, str]:
        """Where the warm process writes."""
        assert self.warm
        stem = os.path.join(self.folder, self.warm.label)
        return stem + ".out", stem + ".err"

    def close(self) -> None:
        """Close every channel: runner and warm process end by themselves."""
        for part in (self.queue, self.line, *((self.warm.queue, self.warm.line) if self.warm else ())):
            if part:
                part.close()
        self.queue = self.line = self.warm = None


if TYPE_CHECKING:
    _Slots = list[Slot]
else:
    _Slots = list  # Python 3.8 has no list[Slot]


class Slots(_Slots):
    """All slots of a worker, and what is read off them."""

    def watched(self) -> bool:
        return any(slot.head.watched for slot in self if slot.head)

    def started(self) -> list[list[Any]]:
        """Rows for attempts that have been running for more than a second and were not reported before."""
        now_s, rows = time.monotonic(), []
        for slot in self:
            head = slot.head
            if head and not head.start_reported and now_s - slot.head_since_s > 1.0:
                head.start_reported = True
                rows.append([*head.key, round(now_s - slot.head_since_s, 3)])
        return rows

    @property
    def needs_a_look(self) -> bool:
        """Whether `check_calls` or `balance` is needed soon: a call with a limit, or work behind a busy slot."""
        idle = waiting = False
        for slot in self:
            if not slot.in_hand:
                idle = True
                continue
            waiting = waiting or len(slot.in_hand) > 1
            if slot.warm and (head := slot.head) and head.spec.wall_s:
                return True
        return idle and waiting

    def least_in_hand(self) -> int:
        return min(len(slot.in_hand) for slot in self)

    def longest_grace_s(self) -> float:
        return max((slot.head.spec.grace_s for slot in self if slot.head), default=0.0)
