"""A job and its tasks as the engine knows them: rules, columns, queues, attempts. Pure data and its moves.

Only `apply` functions call the moves. A bag is a few parts, each a struct that saves itself (saving.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from windfall import graph as graphs
from windfall.core.events import QUEUED, JobRules, TaskClass
from windfall.core.state.agenda import Agenda
from windfall.core.state.jobs.attempts import Attempts
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, WAITING, Columns
from windfall.core.state.jobs.queues import Queues, TaskQueue
from windfall.core.state.saving import Bytes, Floats, Ints
from windfall.quick import quickly_set

FINAL = frozenset({DONE, FAILED, CANCELLED})
Due = tuple[float, int, int, int]
"""(deadline, job, task, attempt)."""


class Terms(Struct, frozen=True, array_like=True):
    """What a bag asks for and may have: all that ranking looks at apart from its queues."""

    rules: JobRules
    classes: list[TaskClass]
    tail: bool = False


@quickly_set
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
    wasted_core_s: dict[str, float] = field(default_factory=dict)
    """Core-seconds of rented machines that went into attempts whose results do not count, by why (jobs.attempts)."""

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
    grown: list[int] = field(default_factory=list)
    """Tasks that died of too little memory and were tried again with more, each once."""

    def forget(self, task: int) -> None:
        """The task is done: what was noted of its attempts until then means nothing any more."""
        self.forget_checkpoint(task)
        self.interrupted_s.pop(task, None)
        self.memory.pop(task, None)
        self.votes.pop(task, None)

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
    arrival_class = None  # type: tuple[Terms, int, object] | None

    @classmethod
    def new(cls, number: int, rules: JobRules, classes: list[TaskClass], t: float) -> Bag:
        return cls(number, t, Terms(rules, classes), Queues([TaskQueue() for _ in classes]))

    # What runs for every attempt reads `_terms` itself: a property costs ten times as much.
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
        """In its tail, with tasks that run: one that streams, and a workflow, only if its policy says so.

        Tasks that take whole hosts have no replicas: several of them would wait for each other's hosts.
        """
        rules = self._terms.rules
        if not self._terms.tail or not self.attempts.live or rules.paused:
            return False
        if any(each.nodes for each in self._terms.classes):
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
        return self._terms.classes[self.class_of(task)].memory_for(attempt)

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
        columns, counts, replicas = self.columns, self.counts, self.queues.replicas
        column = columns.state
        counts[column[task]] -= 1
        column[task] = to
        counts[to] += 1
        if replicas:
            # It is over, or it waits again itself.
            replicas.pop(task, None)
        if to >= DONE:
            columns.order.append(task)
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


CROWD = 16
"""Jobs that are ready: up to this many can be looked at for each asking host."""
MOVES_KEPT = 10_000
ENDED_KEPT = 256
"""Results after which deadlines of ended attempts are dropped; before, they only wake a driver early."""


class Bags(dict[int, Bag]):
    """All jobs by number, and which of them have something to hand out."""

    __slots__ = (
        "_ended", "_in_order", "_ready", "by_key", "crowded", "cycled", "deadlines", "moves", "moves_before", "next",
        "revision", "shapes", "tails", "unfinished",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.next = 1
        self.by_key: dict[str, int] = {}
        """Job numbers by submission key."""
        self.shapes: dict[str, graphs.Graph] = {}
        """The shapes of workflows, each once, however many jobs have it."""
        self.deadlines: Agenda[Due] = Agenda()
        """Deadlines of attempts; those of attempts that have ended are dropped when they surface, now and then."""
        self._ended = 0
        """Results since the deadlines were last looked through for those of ended attempts."""
        self._ready: dict[int, Bag] = {}
        self._in_order = True
        self.tails: dict[int, Bag] = {}
        """Bags in their tail phase with attempts out: the ones whose tasks may be replicated. In no order."""
        self.cycled: dict[int, Bag] = {}
        """Those of `tails` whose replicas wait in the queue: each has a replication cycle."""
        self.unfinished: dict[int, None] = {}
        """Bags that may run and have not ended, whether their tasks wait or run."""
        self.revision = 0
        """Grows with every change of `ready`, of bags in `tails` that are not ready, and of any bag's terms: nothing
        else may be ranked by."""

        self.crowded = False
        """Whether more jobs are ready than are looked at for each asking host."""
        self.moves: list[int] = []
        """Jobs of which a task began or ended, in order; told while it is crowded (`core.matching.served`)."""
        self.moves_before = 0
        """How many were told before these, and are forgotten."""

    def changed(self) -> None:
        self.revision += 1
        self.crowded = len(self._ready) > CROWD

    def moved(self, number: int) -> None:
        """A task of this job began or ended; told if there is a crowd."""
        if len(self.moves) >= MOVES_KEPT:
            self.moves_before += len(self.moves)
            self.moves = []
        self.moves.append(number)

    def note_ended(self) -> None:
        """Attempts may have ended, whose deadlines mean nothing any more."""
        self._ended = ended = self._ended + 1
        if ended >= ENDED_KEPT:
            self.forget_ended()

    def forget_ended(self) -> None:
        """Drop deadlines of ended attempts from the front: the first one is then of an attempt that is out.

        Changes nothing that is decided or saved: it may happen at any time.
        """
        self._ended = 0
        deadlines = self.deadlines
        while front := deadlines.front:
            if self.is_out(front[0]):
                return
            deadlines.pop()

    def is_out(self, due: Due) -> bool:
        """Whether a deadline is that of an attempt that is still out."""
        deadline, job, task, number = due
        bag = self.get(job)
        # Nearly all have ended long before: then the task has no live attempt.
        live = None if bag is None else bag.attempts.live.get(task)
        if live is not None:
            for attempt in live:
                if attempt.number == number and attempt.deadline == deadline:
                    return True
        return False

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
        """Keep `ready` and `tails` true to the bag."""
        number, queues, rules = bag.number, bag.queues, bag._terms.rules
        # `bag.dispatchable` without its call: asked after every attempt.
        waits = bag.counts[WAITING] > queues.held + queues.reserved_ready
        if waits and (bag.sealed or rules.streaming) and not bag.stopped and not rules.paused:
            if number not in self._ready:
                self._in_order &= next(reversed(self._ready), 0) < number
                self._ready[number] = bag
                self.unfinished[number] = None
                self.changed()
        else:
            if self._ready.pop(number, None) is not None:
                self.changed()
            if bag.finished_t is None and (bag.sealed or rules.streaming):
                self.unfinished[number] = None
            else:
                self.unfinished.pop(number, None)
        if bag._terms.tail and bag.replicable:
            if number not in self.tails:
                self.tails[number] = bag
                if number not in self._ready:
                    # A bag with tasks to hand out is ranked as before, whether it may have replicas or not.
                    self.changed()
            if bag.queues_replicas:
                self.cycled[number] = bag
            elif self.cycled:
                self.cycled.pop(number, None)
        elif self.tails and self.tails.pop(number, None) is not None:
            self.cycled.pop(number, None)
            if number not in self._ready:
                self.changed()

    def replicable(self) -> list[Bag]:
        """Bags of which only replicas are left to make, by number."""
        return [bag for _, bag in sorted(self.tails.items()) if not bag.waiting and not bag.stopped]


def blocked_tasks(bag: Bag) -> frozenset[int]:
    """Waiting tasks of a workflow whose ancestors include one that failed or was cancelled."""
    state = bag.columns.state
    if bag.shape is None or not bag.queues.held:
        return frozenset()
    over = [task for task, value in enumerate(state) if value in (FAILED, CANCELLED)]
    return frozenset(task for task in bag.shape.descendants(over) if state[task] == WAITING)
