"""The engine's state: bags, hosts, attempts, and how they are saved. Pure data with the few moves that keep it whole.

Only `apply` (engine.py) calls the moves. How it is saved stands in snapshot.py, what must hold in it in invariants.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from msgspec import Struct

from windfall.core.events import Assigned, JobRules, Key, Settings, TaskClass
from windfall.core.liveness.reliability import Reliability
from windfall.core.sites.instances import SiteState
from windfall.core.sites.view import SiteView
from windfall.core.state import dag
from windfall.core.state.agenda import Agenda
from windfall.core.state.columns import CANCELLED, DONE, FAILED, WAITING, Columns
from windfall.core.state.fleet import MachineState, PlanState, Seen
from windfall.core.supply.overlay import Matching, PoolState
from windfall.planning.estimates import Record as RunTimes
from windfall.planning.offers import Offer
from windfall.timeouts.online import Decision, Memory

LIVE, UNKNOWN, GONE, ASLEEP = "live", "unknown", "gone", "asleep"
"""`ASLEEP`: its machine is hibernated, so its silence means nothing."""
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


class Bag:
    """A job: its rules, its tasks as columns, its queues, and the attempts that are out. With a shape: a workflow."""

    # With slots, as Python keeps more than thirty attributes in a dict of their own, which is slower to look into.
    __slots__ = (
        "aside", "attempts", "blame", "causes", "checkpoints", "classes", "columns", "counts", "estimates",
        "finished_t", "given_up", "held", "last_result_t", "left", "levels", "live", "number", "order", "queues", "ran",
        "reserved", "rules", "run_s", "saved", "sealed", "segments", "shape", "stopped", "submitted_t", "tail",
        "turnarounds", "waste",
    )  # fmt: skip

    def __init__(self, number: int, rules: JobRules, classes: list[TaskClass], t: float) -> None:
        self.number = number
        self.rules = rules
        self.classes = classes
        self.submitted_t = t
        self.sealed = False
        self.stopped = ""
        self.finished_t: float | None = None
        self.last_result_t: float | None = None
        self.columns = Columns()
        self.segments: list[tuple[int, int]] = []
        """(first task, class), ascending; a class may come back."""
        self.queues = [TaskQueue() for _ in classes]
        self.live: dict[int, list[Attempt]] = {}
        self.given_up: dict[int, list[Attempt]] = {}
        self.tail = False
        self.attempts = self.waste = 0
        self.counts = [0, 0, 0, 0, 0]
        self.levels: dict[int, OrderedDict[int, None]] = {}
        """Running tasks by the number of their live attempts, each level in the order of sending.

        Ordered dicts: a plain one that is emptied from its front walks over what is gone at every look.
        """
        self.turnarounds: dict[int, int] = {}
        """From handing out to result, counted in cells (core.turnarounds): when an attempt is slow."""
        self.run_s = 0.0
        """Sum of run times of accepted results; with counts[DONE] the mean that reports and plans use."""
        self.causes: dict[int, int] = {}
        self.order: array[int] = array("I")
        """Tasks in the order in which they ended; one that was retried after its end stands there again."""
        self.blame: dict[int, list[int]] = {}
        """Hosts on which a task failed; they are blamed when it succeeds elsewhere."""
        self.shape: dag.Shape | None = None
        self.left: array[int] = array("I")
        """In a workflow: how many parents of each task are not done. A task that waits for one stands in no queue."""
        self.held = 0
        """Waiting tasks that stand in no queue for that reason."""
        self.reserved: dict[int, int] = {}
        """Waiting tasks that a plan has reserved for a machine, and its number: they stand in no queue either."""
        self.aside = 0
        """Of these, those that wait for no parent."""
        self.estimates: array[float] = array("f")
        """How long each task is thought to take at speed 1, where somebody knows; else empty."""
        self.saved: dict[int, list[tuple[int, float]]] = {}
        """Checkpoints of tasks: (attempt, seconds' worth on a machine of speed 1)."""
        self.checkpoints: dict[int, str] = {}
        """And the blobs that the newest are in."""
        self.ran: dict[int, float] = {}
        """Planned tasks that were cut short: for how long they had run, on a machine of speed 1. They take longer."""

    @property
    def waiting(self) -> int:
        """Tasks that could be handed out to anybody."""
        return self.counts[WAITING] - self.held - self.aside

    @property
    def total(self) -> int:
        return len(self.columns.state)

    @property
    def dispatchable(self) -> bool:
        if self.counts[WAITING] <= self.held + self.aside or self.stopped or self.rules.paused:
            return False
        return self.sealed or self.rules.streaming

    @property
    def replicable(self) -> bool:
        """In its tail, with tasks that run: one that streams, and a workflow, only if its policy says so."""
        if not self.tail or not self.live or self.rules.paused:
            return False
        whole = not self.rules.streaming and self.shape is None
        return whole or "ReplicationRequirements" in self.rules.policies

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
        if len(self.segments) == 1:
            return self.segments[0][1]
        low, high = 0, len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle][0] <= task:
                low = middle
            else:
                high = middle
        return self.segments[low][1]

    def grow(self, count: int, klass: int) -> None:
        first = self.total
        self.columns.grow(count)
        if not self.segments or self.segments[-1][1] != klass:
            self.segments.append((first, klass))
        self.counts[WAITING] += count
        if self.shape is None:
            self.queues[klass].add_range(first, first + count)
            return
        for task in range(first, first + count):
            if self.left[task]:
                self.held += 1
            else:
                self.queues[klass].add(task)

    def take_shape(self, shape: dag.Shape) -> None:
        """Become a workflow. Before there are tasks, or with the tasks as a snapshot had them."""
        done = (task for task, value in enumerate(self.columns.state) if value == DONE)
        self.shape, self.left = shape, dag.counters(shape, done)
        waiting = (task for task, value in enumerate(self.columns.state) if value == WAITING)
        self.held = sum(1 for task in waiting if self.left[task])

    def release_children(self, task: int) -> None:
        """A task is done: what waited for nothing else enters its queue."""
        if self.shape is None:
            return
        for child in dag.finish(self.shape, self.left, task):
            if child < self.total and self.columns.state[child] == WAITING:
                self.held -= 1
                self.enqueue(child)

    def enqueue(self, task: int) -> None:
        """A waiting task that stands in no queue takes its place in the one of its class, unless it is reserved."""
        if task in self.reserved:
            self.aside += 1
            return
        queue = self.queues[self.class_of(task)]
        if self.columns.attempts[task]:
            queue.give_back(task)
        else:
            queue.add(task)

    def withdraw(self, task: int) -> None:
        """A waiting task leaves the place where it waits; the caller moves it on."""
        reserved = self.reserved.pop(task, None)
        if self.is_held(task):
            self.held -= 1
        elif reserved is not None:
            self.aside -= 1
        else:
            self.queues[self.class_of(task)].discard(task)

    def is_held(self, task: int) -> bool:
        """Whether it waits for a parent."""
        return self.shape is not None and self.left[task] > 0

    def reserve(self, machine: int, tasks: Sequence[int]) -> None:
        """Waiting tasks are for this machine alone, wherever they stood."""
        fresh = [task for task in tasks if task not in self.reserved and not self.is_held(task)]
        by_class: dict[int, set[int]] = {}
        for task in fresh:
            by_class.setdefault(self.class_of(task), set()).add(task)
        for klass, members in by_class.items():
            self.queues[klass].discard_all(members)
        self.aside += len(fresh)
        self.reserved.update(dict.fromkeys(tasks, machine))

    def unreserve(self, task: int) -> None:
        """It may run anywhere again."""
        del self.reserved[task]
        if not self.is_held(task):
            self.aside -= 1
            self.enqueue(task)

    def forget_checkpoint(self, task: int) -> None:
        """It is done, or it failed: what failed begins at its beginning."""
        self.saved.pop(task, None)
        self.checkpoints.pop(task, None)

    def move(self, task: int, to: int) -> None:
        """Change a task's state and the counts with it; queues are the caller's."""
        column = self.columns.state
        self.counts[column[task]] -= 1
        column[task] = to
        self.counts[to] += 1
        if to >= DONE:
            self.order.append(task)

    def add_attempt(self, task: int, attempt: Attempt) -> None:
        attempts = self.live.get(task)
        if attempts is None:
            self.live[task] = [attempt]
            self._level(task, 0, 1)
        else:
            attempts.append(attempt)
            self._level(task, len(attempts) - 1, len(attempts))

    def drop_attempt(self, task: int, number: int) -> Attempt | None:
        """Take a live attempt off; None if it is not live."""
        attempts = self.live.get(task, [])
        level = len(attempts)
        for attempt in attempts:
            if attempt.number == number:
                if level == 1:
                    del self.live[task]
                else:
                    attempts.remove(attempt)
                self._level(task, level, level - 1)
                return attempt
        return None

    def drop_attempts(self, task: int) -> list[Attempt]:
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

    def stop(self, reason: str) -> None:
        """No further attempts: everything that waits is cancelled. What is out is cancelled by the caller."""
        self.stopped = reason
        state = self.columns.state
        for queue in self.queues:
            for start, end in queue.fresh:
                state[start:end] = array("B", bytes([CANCELLED]) * (end - start))
                self.order.extend(range(start, end))
            for task in queue.again:
                state[task] = CANCELLED
                self.order.append(task)
            queue.clear()
        if self.held or self.aside:
            held = [task for task, value in enumerate(state) if value == WAITING]
            for task in held:
                state[task] = CANCELLED
            self.order.extend(held)
            self.held = self.aside = 0
        self.reserved.clear()
        self.counts[CANCELLED] += self.counts[WAITING]
        self.counts[WAITING] = 0


class Host:
    """A pull client and what the server remembers of it. There may be tens of thousands: they are kept small."""

    __slots__ = (
        "ad", "ad_t", "ad_version", "assigned", "blocked", "blocked_until", "boot", "cancelled", "draining", "heard_t",
        "held", "joined_t", "left", "memory_bytes", "memory_held", "n", "name", "number", "pool", "record", "seen_t",
        "slots", "state", "to_cancel",
    )  # fmt: skip

    def __init__(self, number: int, name: str, t: float) -> None:
        self.number = number
        self.name = name
        self.boot = ""
        self.n = 0
        self.state = LIVE
        self.ad: dict[str, Any] = {}
        self.pool = pool_of(self.ad)
        self.ad_version = 0
        self.ad_t = t
        self.slots = 1
        self.memory_bytes = 0
        self.memory_held = 0
        self.joined_t = self.seen_t = self.heard_t = t
        """`seen_t` runs the lease and is renewed by a server that starts; `heard_t` is when it really asked last."""
        self.draining = False
        self.blocked = ""
        self.blocked_until: float | None = None
        self.left = ""
        self.held: dict[Key, None] = {}
        self.to_cancel: list[Key] = []
        self.assigned: list[Assigned] = []
        self.cancelled: list[Key] = []
        self.record = Reliability()

    def copy(self) -> Host:
        """Another view of the same host: what it holds and its record are shared."""
        view = Host.__new__(Host)
        for name in Host.__slots__:
            setattr(view, name, getattr(self, name))
        return view


def pool_of(ad: dict[str, Any]) -> str:
    """The pool that a host belongs to, by what it says of itself."""
    return str(ad.get("pool") or "default")


class Advice(Struct, array_like=True):
    """What a pool has taught about a bag: the timeout and why, and how long nearly all results take to come."""

    pool: str
    bag: str
    decision: Decision
    latency_95_s: float | None = None


class State:
    """Everything that decisions depend on."""

    __slots__ = (
        "_ready", "_ready_in_order", "advice", "bags", "clients", "deadlines", "hosts", "hosts_to_tell", "keys",
        "live_hosts", "live_slots", "machines", "machines_by_job", "markets", "matching", "memory", "names",
        "next_host", "next_job", "next_machine", "offers", "plan_look_t", "plans", "plans_due", "pools",
        "ready_version", "run_times", "seq", "settings", "shapes", "site_views", "sites", "strangers", "t", "tails",
        "there", "unknown_hosts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seq = 0
        self.t = 0.0
        self.settings = Settings()
        self.bags: dict[int, Bag] = {}
        self._ready: dict[int, Bag] = {}
        self._ready_in_order = True
        self.ready_version = 0
        """Changes with `ready`, with the rules and with the phase of any bag: what was made of these is made anew."""
        self.shapes: dict[str, dag.Shape] = {}
        """The shapes of workflows, each once, however many jobs have it."""
        self.keys: dict[str, int] = {}
        self.hosts: dict[int, Host] = {}
        self.names: dict[str, Host] = {}
        """The same hosts by name."""
        self.live_hosts: OrderedDict[int, None] = OrderedDict()
        self.unknown_hosts: OrderedDict[int, None] = OrderedDict()
        """Both with the longest silent first, so that a look at the clock costs only what it finds."""
        self.live_slots = 0
        self.tails: dict[int, Bag] = {}
        """Bags in their tail phase with attempts out: the ones whose tasks may be replicated."""
        self.pools: dict[str, PoolState] = {}
        self.clients: dict[str, int] = {}
        """Hosts that are there (live, or silent and not yet lost) by the name of their pool, configured or not."""
        self.matching = Matching()
        """The overlay's last answer; the next one mends it."""
        self.hosts_to_tell: dict[int, None] = {}
        """Hosts with something to cancel: a driver may wake them if they wait for an answer."""
        self.deadlines: Agenda[Due] = Agenda()
        """Those of attempts that have ended are skipped when they surface."""
        self.memory = Memory()
        """Latencies by pool and by bag, and below what they advise: see core.patience."""
        self.advice: dict[str, Advice] = {}
        self.sites: dict[str, SiteState] = {}
        self.site_views: dict[str, SiteView] = {}
        """The sites as the placement library keeps them: made from the state, not saved."""
        self.offers: dict[str, list[Offer]] = {}
        self.machines: dict[int, MachineState] = {}
        self.machines_by_job: dict[int, list[int]] = {}
        self.there: dict[int, MachineState] = {}
        """The machines that have not ended: what a look costs must not grow with those that have."""
        self.markets: dict[str, Seen] = {}
        """What was seen of offers, by their keys."""
        self.strangers: dict[str, list[tuple[str, str]]] = {}
        self.plans: dict[int, PlanState] = {}
        """Of the jobs for which machines may be rented."""
        self.plans_due: dict[int, None] = {}
        self.plan_look_t = inf
        """The earliest time at which some plan asked to look again."""
        self.run_times: dict[str, RunTimes] = {}
        """Finished attempts by class of tasks, of the jobs that are planned."""
        self.next_machine = 1
        self.next_job = 1
        self.next_host = 1

    def touch(self, job: int) -> None:
        """Something has happened that could change the plan of a job."""
        plan = self.plans.get(job)
        if plan is not None:
            plan.changed_seq = self.seq + 1
            self.plans_due[job] = None

    @property
    def ready(self) -> dict[int, Bag]:
        """Bags with tasks to hand out, by number: the only ones that an asking host costs anything.

        Put in order when somebody looks: of many thousand bags, many become ready between two looks.
        """
        if not self._ready_in_order:
            self._ready, self._ready_in_order = dict(sorted(self._ready.items())), True
        return self._ready

    def host(self, name: str) -> Host | None:
        return self.names.get(name)

    def others_there(self, host: Host, t: float) -> bool:
        """Is there another host that could take a task over? One that is live by its lease alone may be long dead."""
        for number in reversed(self.live_hosts):
            if number != host.number:
                return self.hosts[number].heard_t > t - self.settings.lease_s / 2
        return False

    def count_client(self, pool: str, change: int) -> None:
        """A host of a pool came (1) or went (-1)."""
        left = self.clients.get(pool, 0) + change
        if left:
            self.clients[pool] = left
        else:
            self.clients.pop(pool, None)

    def refresh(self, bag: Bag) -> None:
        """Keep `ready` true to the bag's state. Order of `ready` is by number, whatever the order of changes."""
        if bag.dispatchable:
            if bag.number not in self._ready:
                self.ready_version += 1
                self._ready_in_order &= next(reversed(self._ready), 0) < bag.number
                self._ready[bag.number] = bag
        elif self._ready.pop(bag.number, None) is not None:
            self.ready_version += 1
        if bag.tail and bag.replicable:
            if bag.number not in self.tails:
                self.ready_version += 1
                self.tails[bag.number] = bag
                self.tails = dict(sorted(self.tails.items()))
        elif self.tails and self.tails.pop(bag.number, None) is not None:
            self.ready_version += 1

    def replicable(self) -> list[Bag]:
        """Bags of which only replicas are left to make."""
        return [bag for bag in self.tails.values() if not bag.waiting and not bag.stopped]
