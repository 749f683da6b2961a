"""A job and its tasks as the engine knows them: rules, columns, queues, attempts. Pure data and its moves.

Only `apply` functions call the moves. A bag is a few parts, each a struct that saves itself (saving.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from windfall import graph as graphs
from windfall.core.events import QUEUED, JobRules, TaskClass
from windfall.core.state.agenda import Agenda
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, WAITING, Columns
from windfall.core.state.saving import Bytes, Floats, Ints

FINAL = frozenset({DONE, FAILED, CANCELLED})
Due = tuple[float, int, int, int]
"""(deadline, job, task, attempt)."""


class Attempt(Struct, array_like=True, gc=False):
    """One execution of a task on one host that the server still counts on, or has given up but may yet hear of."""

    number: int
    host: int
    sent: float
    deadline: float | None = None
    why: int = 0


class TaskQueue:
    """The waiting tasks of one class: ranges of fresh ones, and single ones that come back. O(1) at both ends."""

    __slots__ = ("again", "fresh", "size")

    def __init__(self) -> None:
        self.fresh: deque[tuple[int, int]] = deque()
        self.again: deque[int] = deque()
        self.size = 0

    def add_range(self, first: int, end: int) -> None:
        if end > first:
            self.fresh.append((first, end))
            self.size += end - first

    def add(self, task: int) -> None:
        """One fresh task; those that become ready side by side make a range again."""
        if self.fresh and self.fresh[-1][1] == task:
            self.fresh[-1] = (self.fresh[-1][0], task + 1)
        else:
            self.fresh.append((task, task + 1))
        self.size += 1

    def give_back(self, task: int) -> None:
        self.again.append(task)
        self.size += 1

    def take(self, first: int, count: int) -> None:
        """Remove what a decision has assigned: the front of the fresh ranges, or one of those that came back."""
        if self.fresh and self.fresh[0][0] == first:
            start, end = self.fresh[0]
            if start + count == end:
                self.fresh.popleft()
            else:
                self.fresh[0] = (start + count, end)
        elif self.again and self.again[0] == first:
            self.again.popleft()
        else:
            self.again.remove(first)
        self.size -= count

    def discard(self, task: int) -> None:
        """Remove one task wherever it stands (a cancellation, or a late result of a task that waits again)."""
        self.size -= 1
        if task in self.again:
            self.again.remove(task)
            return
        pieces: deque[tuple[int, int]] = deque()
        for start, end in self.fresh:
            if start <= task < end:
                pieces += [piece for piece in ((start, task), (task + 1, end)) if piece[1] > piece[0]]
            else:
                pieces.append((start, end))
        self.fresh = pieces

    def discard_all(self, tasks: set[int]) -> None:
        """Remove many at once: costs what stands in the queue, not that times what goes."""
        self.size -= len(tasks)
        self.again = deque(task for task in self.again if task not in tasks)
        pieces: deque[tuple[int, int]] = deque()
        ordered = sorted(tasks)
        for start, end in self.fresh:
            for task in ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]:
                if task > start:
                    pieces.append((start, task))
                start = task + 1
            if end > start:
                pieces.append((start, end))
        self.fresh = pieces

    def clear(self) -> None:
        self.fresh.clear()
        self.again.clear()
        self.size = 0

    def __iter__(self) -> Iterator[int]:
        yield from self.again
        for start, end in self.fresh:
            yield from range(start, end)

    def saved(self) -> Any:
        return [list(self.fresh), list(self.again)]

    @classmethod
    def restored(cls, values: Any) -> TaskQueue:
        queue = cls()
        fresh, again = values
        for first, end in fresh:
            queue.add_range(first, end)
        queue.again.extend(again)
        queue.size += len(again)
        return queue


class Terms(Struct, frozen=True, array_like=True):
    """What a bag asks for and may have: all that ranking looks at apart from its queues."""

    rules: JobRules
    classes: list[TaskClass]
    tail: bool = False


class Queues(Struct, array_like=True):
    """Where waiting tasks stand: in the queue of their class, reserved for a machine, or behind their parents."""

    by_class: list[TaskQueue]
    held: int = 0
    """Waiting tasks that stand in no queue because a parent is not done."""
    reserved: dict[int, int] = field(default_factory=dict)
    """Waiting tasks that a plan has reserved for a machine, and its number: they stand in no queue either."""
    reserved_ready: int = 0
    """Reserved tasks whose parents are all done."""
    parents_left: Ints = field(default_factory=Ints)
    """In a workflow: how many parents of each task are not done."""
    replicas: dict[int, int] = field(default_factory=dict)
    """Running tasks of which replicas wait to be sent, in the order in which they entered, and how many."""
    replicated_t: float = 0.0
    """When the running tasks were last looked at for replicas that wait in the queue."""

    @property
    def queued_replicas(self) -> int:
        return sum(self.replicas.values())

    def add_replica(self, task: int) -> None:
        self.replicas[task] = self.replicas.get(task, 0) + 1

    def take_replica(self, task: int) -> None:
        """One replica of the task is sent, if one waits."""
        left = self.replicas.pop(task, 1) - 1
        if left:
            self.replicas[task] = left


class Attempts(Struct, array_like=True):
    """The attempts of a bag that are out."""

    live: dict[int, list[Attempt]] = field(default_factory=dict)
    given_up: dict[int, list[Attempt]] = field(default_factory=dict)
    """No longer counted on; a late result is still accepted."""
    levels: dict[int, OrderedDict[int, None]] = field(default_factory=dict)
    """Running tasks by the number of their live attempts, each level in the order of sending.

    Ordered dicts: a plain one that is emptied from its front walks over the removed entries at every look.
    """
    released: dict[int, dict[int, int]] = field(default_factory=dict)
    """Attempts of unfinished tasks that went with their host, by task and number: a success counts from it alone."""

    def find(self, task: int, number: int) -> Attempt | None:
        """The live attempt of this number; None if it has ended or was given up."""
        for attempt in self.live.get(task, ()):
            if attempt.number == number:
                return attempt
        return None

    def add(self, task: int, attempt: Attempt) -> None:
        attempts = self.live.get(task)
        if attempts is None:
            self.live[task] = [attempt]
            first = self.levels.get(1)
            if first is None:
                first = self.levels[1] = OrderedDict()
            first[task] = None
        else:
            attempts.append(attempt)
            self._level(task, len(attempts) - 1, len(attempts))

    def drop(self, task: int, number: int) -> Attempt | None:
        """Take a live attempt off; None if it is not live."""
        attempts = self.live.get(task)
        if attempts is None:
            return None
        for attempt in attempts:
            if attempt.number == number:
                level = len(attempts)
                if level == 1:
                    del self.live[task]
                else:
                    attempts.remove(attempt)
                self._level(task, level, level - 1)
                return attempt
        return None

    def drop_all(self, task: int) -> list[Attempt]:
        attempts = self.live.pop(task, [])
        self._level(task, len(attempts), 0)
        return attempts

    def _level(self, task: int, old: int, new: int) -> None:
        if old:
            level = self.levels[old]
            del level[task]
            if not level:
                del self.levels[old]
        if new:
            if new not in self.levels:
                self.levels[new] = OrderedDict()
            self.levels[new][task] = None


class Tally(Struct, array_like=True):
    """What has come of a bag so far, for reports and for blame."""

    attempts: int = 0
    waste: int = 0
    run_s: float = 0.0
    """Sum of the run times of accepted results; divided by counts[DONE] it is their mean."""
    last_result_t: float | None = None
    turnarounds: dict[int, int] = field(default_factory=dict)
    """Seconds from handing out to result, counted in cells (core.matching.turnarounds)."""
    causes: dict[int, int] = field(default_factory=dict)
    """Failed tasks by the cause of their last failure."""
    blame: dict[int, list[int]] = field(default_factory=dict)
    """Hosts on which a task failed; they are blamed when it succeeds elsewhere."""
    lost_by_pool: dict[str, int] = field(default_factory=dict)
    """Attempts that were lost with their hosts, by the pool of the host."""
    by_class: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """Of a workflow, by class: results, their run times in all, and the longest, in seconds."""
    peaks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By class: attempts that ended and said what memory they took, and the most that one took, in bytes."""

    def note_peak(self, index: int, rss_bytes: int) -> None:
        count, peak = self.peaks.get(index, (0, 0))
        self.peaks[index] = (count + 1, max(peak, rss_bytes))


class Vote(Struct, frozen=True, array_like=True, gc=False):
    """A success of a volunteer's host that waits for others to agree."""

    attempt: int
    host: int
    owner: str
    digest: str
    cpu_s: float = 0.0


class Progress(Struct, array_like=True):
    """Estimated run times, checkpoints and votes of tasks, where known."""

    estimates: Floats = field(default_factory=Floats)
    """Estimated seconds at speed 1, one entry per task; empty without estimates."""
    saved: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """Checkpoints by task: (attempt, seconds of work at speed 1)."""
    checkpoints: dict[int, str] = field(default_factory=dict)
    """The blobs that hold the newest checkpoints."""
    interrupted_s: dict[int, float] = field(default_factory=dict)
    """Seconds (at speed 1) that interrupted attempts had run: a lower bound of the run time."""
    memory: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Tasks that died of too little memory: (attempt, bytes) from which attempt on they get how much."""
    votes: dict[int, list[Vote]] = field(default_factory=dict)
    """Successes of volunteers' hosts by task, until enough agree."""

    def forget_checkpoint(self, task: int) -> None:
        """The task is done, or it failed: a failed task begins at its beginning."""
        self.saved.pop(task, None)
        self.checkpoints.pop(task, None)


class Bag(Struct, array_like=True, dict=True):
    """A job: its rules, its tasks as columns, its queues, and the attempts that are out. With a shape: a workflow."""

    number: int
    submitted_t: float
    _terms: Terms
    queues: Queues
    sealed: bool = False
    stopped: str = ""
    finished_t: float | None = None
    shape_key: str = ""
    columns: Columns = field(default_factory=Columns)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])
    attempts: Attempts = field(default_factory=Attempts)
    tally: Tally = field(default_factory=Tally)
    progress: Progress = field(default_factory=Progress)

    # Not saved: the shape, shared by all jobs that have it, the index that hears of changed terms, and the class of
    # arrivals with the terms and the number of tasks that it was made of.
    shape = None  # type: graphs.Graph | None
    index = None  # type: Bags | None
    arrival_class = None  # type: tuple[Terms, int, Any] | None

    @classmethod
    def new(cls, number: int, rules: JobRules, classes: list[TaskClass], t: float) -> Bag:
        return cls(number, t, Terms(rules, classes), Queues([TaskQueue() for _ in classes]))

    @property
    def rules(self) -> JobRules:
        return self._terms.rules

    @property
    def classes(self) -> list[TaskClass]:
        return self._terms.classes

    @property
    def tail(self) -> bool:
        return self._terms.tail

    @property
    def terms(self) -> Terms:
        return self._terms

    @terms.setter
    def terms(self, terms: Terms) -> None:
        """The only way to change what ranking reads: it invalidates everything that was computed from the old terms."""
        self._terms = terms
        if self.index is not None:
            self.index.changed()

    @property
    def waiting(self) -> int:
        """Tasks that could be handed out to any host."""
        return self.counts[WAITING] - self.queues.held - self.queues.reserved_ready

    @property
    def total(self) -> int:
        return len(self.columns.state)

    @property
    def dispatchable(self) -> bool:
        queues, rules = self.queues, self._terms.rules
        if self.counts[WAITING] <= queues.held + queues.reserved_ready or self.stopped or rules.paused:
            return False
        return self.sealed or rules.streaming

    @property
    def replicable(self) -> bool:
        """In its tail, with tasks that run: one that streams, and a workflow, only if its policy says so."""
        rules = self._terms.rules
        if not self._terms.tail or not self.attempts.live or rules.paused:
            return False
        whole = not rules.streaming and self.shape is None
        return whole or "ReplicationRequirements" in rules.policies

    @property
    def queues_replicas(self) -> bool:
        return self._terms.rules.replication == QUEUED

    @property
    def state(self) -> str:
        if self.finished_t is None:
            if not (self.sealed or self.rules.streaming):
                return "open"
            return "paused" if self.rules.paused else "running"
        if self.counts[FAILED]:
            return "failed"
        return "cancelled" if self.counts[CANCELLED] else "done"

    def class_of(self, task: int) -> int:
        # Nearly every bag has one class; asked for each attempt.
        segments = self.columns.segments
        return segments[0][1] if len(segments) == 1 else self.columns.class_of(task)

    def memory_for(self, task: int, attempt: int) -> int:
        """Bytes that an attempt of a task asks for; 0: it does not say."""
        for first, memory_bytes in reversed(self.progress.memory.get(task, ()) if self.progress.memory else ()):
            if attempt >= first:
                return memory_bytes
        return self.classes[self.class_of(task)].memory_for(attempt)

    def class_key(self, index: int) -> str:
        """Under what run times are kept: the class's own name where it has one, so that jobs learn from each other."""
        key = self.classes[index].name or f"{self.number}.{index}"
        return f"{key} (of its estimate)" if self.progress.estimates else key

    def grow(self, count: int, klass: int) -> None:
        first = self.total
        self.columns.grow(count, klass)
        self.counts[WAITING] += count
        queue = self.queues.by_class[klass]
        if self.shape is None:
            queue.add_range(first, first + count)
            return
        for task in range(first, first + count):
            if self.queues.parents_left[task]:
                self.queues.held += 1
            else:
                queue.add(task)

    def take_shape(self, shape: graphs.Graph) -> None:
        """Become a workflow; it has no tasks yet."""
        self.shape, self.shape_key = shape, shape.key
        self.queues.parents_left = Ints(shape.counters())

    def release_children(self, task: int) -> None:
        """A task is done: children that wait for no other parent enter their queue."""
        if self.shape is None:
            return
        for child in self.shape.finish(self.queues.parents_left, task):
            if child < self.total and self.columns.state[child] == WAITING:
                self.queues.held -= 1
                self.enqueue(child)

    def enqueue(self, task: int) -> None:
        """A waiting task that stands in no queue takes its place in the one of its class, unless it is reserved."""
        if task in self.queues.reserved:
            self.queues.reserved_ready += 1
            return
        queue = self.queues.by_class[self.class_of(task)]
        if self.columns.attempts[task]:
            queue.give_back(task)
        else:
            queue.add(task)

    def withdraw(self, task: int) -> None:
        """A waiting task leaves the place where it waits; the caller moves it on."""
        reserved = self.queues.reserved.pop(task, None)
        if self.is_held(task):
            self.queues.held -= 1
        elif reserved is not None:
            self.queues.reserved_ready -= 1
        else:
            self.queues.by_class[self.class_of(task)].discard(task)

    def is_held(self, task: int) -> bool:
        """Whether it waits for a parent."""
        return self.shape is not None and self.queues.parents_left[task] > 0

    def reserve(self, machine: int, tasks: Sequence[int]) -> None:
        """Waiting tasks are for this machine alone, wherever they stood."""
        queues = self.queues
        fresh = [task for task in tasks if task not in queues.reserved and not self.is_held(task)]
        by_class: dict[int, set[int]] = {}
        for task in fresh:
            by_class.setdefault(self.class_of(task), set()).add(task)
        for klass, members in by_class.items():
            queues.by_class[klass].discard_all(members)
        queues.reserved_ready += len(fresh)
        queues.reserved.update(dict.fromkeys(tasks, machine))

    def unreserve(self, task: int) -> None:
        """It may run anywhere again."""
        del self.queues.reserved[task]
        if not self.is_held(task):
            self.queues.reserved_ready -= 1
            self.enqueue(task)

    def move(self, task: int, to: int) -> None:
        """Change a task's state and the counts with it; queues are the caller's."""
        column = self.columns.state
        self.counts[column[task]] -= 1
        column[task] = to
        self.counts[to] += 1
        if self.queues.replicas:
            # It is over, or it waits again itself.
            self.queues.replicas.pop(task, None)
        if to >= DONE:
            self.columns.order.append(task)
            if self.attempts.released:
                self.attempts.released.pop(task, None)

    def stop(self, reason: str) -> None:
        """No further attempts: what waits is cancelled here, attempts that are out by the caller."""
        self.stopped = reason
        state, order, queues = self.columns.state, self.columns.order, self.queues
        for queue in queues.by_class:
            for start, end in queue.fresh:
                state[start:end] = Bytes(bytes([CANCELLED]) * (end - start))
                order.extend(range(start, end))
            for task in queue.again:
                state[task] = CANCELLED
                order.append(task)
            queue.clear()
        if queues.held or queues.reserved_ready:
            held = [task for task, value in enumerate(state) if value == WAITING]
            for task in held:
                state[task] = CANCELLED
            order.extend(held)
            queues.held = queues.reserved_ready = 0
        queues.reserved.clear()
        released = self.attempts.released
        for task in [task for task in released if state[task] == CANCELLED]:
            del released[task]
        self.counts[CANCELLED] += self.counts[WAITING]
        self.counts[WAITING] = 0


class Bags(dict[int, Bag]):
    """All jobs by number, and which of them have something to hand out."""

    __slots__ = (
        "_in_order", "_ready", "by_key", "cycled", "deadlines", "next", "revision", "shapes", "tails", "unfinished",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.next = 1
        self.by_key: dict[str, int] = {}
        """Job numbers by submission key."""
        self.shapes: dict[str, graphs.Graph] = {}
        """The shapes of workflows, each once, however many jobs have it."""
        self.deadlines: Agenda[Due] = Agenda()
        """Deadlines of attempts; those of attempts that have ended are skipped when they surface."""
        self._ready: dict[int, Bag] = {}
        self._in_order = True
        self.tails: dict[int, Bag] = {}
        """Bags in their tail phase with attempts out: the ones whose tasks may be replicated."""
        self.cycled: dict[int, Bag] = {}
        """Those of `tails` whose replicas wait in the queue: each has a replication cycle."""
        self.unfinished: dict[int, None] = {}
        """Bags that may run and have not ended, whether their tasks wait or run."""
        self.revision = 0
        """Grows with every change of `ready`, of `tails` and of any bag's terms: nothing else may be ranked by."""

    def changed(self) -> None:
        self.revision += 1

    def add(self, bag: Bag) -> None:
        self[bag.number] = bag
        bag.index = self
        if bag.rules.key:
            self.by_key[bag.rules.key] = bag.number
        self.next = max(self.next, bag.number + 1)

    def remove(self, bag: Bag) -> None:
        """It is no more. It has ended and no attempt of it is out, so it stands in no index of what could run."""
        del self[bag.number]
        bag.index = None
        if self.by_key.get(bag.rules.key) == bag.number:
            del self.by_key[bag.rules.key]
        if bag.shape_key and not any(other.shape_key == bag.shape_key for other in self.values()):
            del self.shapes[bag.shape_key]

    @property
    def ready(self) -> dict[int, Bag]:
        """Bags with tasks to hand out, by number: the only ones that an asking host costs anything.

        Sorted when somebody looks: of many thousand bags, many become ready between two looks.
        """
        if not self._in_order:
            self._ready, self._in_order = dict(sorted(self._ready.items())), True
        return self._ready

    def refresh(self, bag: Bag) -> None:
        """Keep `ready` and `tails` true to the bag. They are ordered by number, whatever the order of changes."""
        if bag.dispatchable:
            if bag.number not in self._ready:
                self._in_order &= next(reversed(self._ready), 0) < bag.number
                self._ready[bag.number] = bag
                self.unfinished[bag.number] = None
                self.changed()
        else:
            if self._ready.pop(bag.number, None) is not None:
                self.changed()
            if bag.finished_t is None and (bag.sealed or bag._terms.rules.streaming):
                self.unfinished[bag.number] = None
            else:
                self.unfinished.pop(bag.number, None)
        if bag._terms.tail and bag.replicable:
            if bag.number not in self.tails:
                self.tails[bag.number] = bag
                self.tails = dict(sorted(self.tails.items()))
                self.changed()
            if bag.queues_replicas:
                self.cycled[bag.number] = bag
            elif self.cycled:
                self.cycled.pop(bag.number, None)
        elif self.tails and self.tails.pop(bag.number, None) is not None:
            self.cycled.pop(bag.number, None)
            self.changed()

    def replicable(self) -> list[Bag]:
        """Bags of which only replicas are left to make."""
        return [bag for bag in self.tails.values() if not bag.waiting and not bag.stopped]


def blocked_tasks(bag: Bag) -> frozenset[int]:
    """Waiting tasks of a workflow whose ancestors include one that failed or was cancelled."""
    state = bag.columns.state
    if bag.shape is None or not bag.queues.held:
        return frozenset()
    over = [task for task, value in enumerate(state) if value in (FAILED, CANCELLED)]
    return frozenset(task for task in bag.shape.descendants(over) if state[task] == WAITING)
