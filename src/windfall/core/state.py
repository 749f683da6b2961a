"""The engine's state: bags, hosts, attempts, and how they are saved. Pure data with the few moves that keep it whole.

Only `apply` (engine.py) calls the moves. `problems` lists broken invariants; tests call it after every step.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, field

from windfall.core.columns import CANCELLED, DONE, FAILED, HELD, WAITING, Columns, SavedColumns
from windfall.core.events import Assigned, JobRules, Key, Settings, TaskClass
from windfall.core.hosts import Reliability
from windfall.core.instances import SiteState
from windfall.core.overlay import Flow, Matching, PoolState
from windfall.timeouts.online import Decision, Memory

LIVE, UNKNOWN, GONE = "live", "unknown", "gone"


class Attempt(Struct, array_like=True):
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

    def clear(self) -> None:
        self.fresh.clear()
        self.again.clear()
        self.size = 0

    def __iter__(self) -> Iterator[int]:
        yield from self.again
        for start, end in self.fresh:
            yield from range(start, end)


class Bag:
    """A job of independent tasks: its rules, its tasks as columns, its queues, and the attempts that are out."""

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
        self.levels: dict[int, dict[int, None]] = {}
        """Running tasks by the number of their live attempts, each level in the order of sending."""
        self.turnarounds: dict[int, int] = {}
        """From handing out to result, counted in cells (core.turnarounds): when an attempt is slow."""
        self.run_s = 0.0
        """Sum of run times of accepted results; with counts[DONE] the mean that reports and plans use."""
        self.causes: dict[int, int] = {}
        self.order: array[int] = array("I")
        """Tasks in the order in which they ended; one that was retried after its end stands there again."""
        self.blame: dict[int, list[int]] = {}
        """Hosts on which a task failed; they are blamed when it succeeds elsewhere."""

    @property
    def waiting(self) -> int:
        return self.counts[WAITING]

    @property
    def total(self) -> int:
        return len(self.columns)

    @property
    def dispatchable(self) -> bool:
        open_ = self.sealed or self.rules.streaming
        return open_ and not self.rules.paused and not self.stopped and self.counts[WAITING] > 0

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
        self.queues[klass].add_range(first, first + count)
        self.counts[WAITING] += count

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
            self.levels.setdefault(1, {})[task] = None
        else:
            attempts.append(attempt)
            self._level(task, len(attempts) - 1, len(attempts))

    def drop_attempt(self, task: int, number: int) -> Attempt | None:
        """Take a live attempt off; None if it is not live."""
        attempts = self.live.get(task)
        for attempt in attempts or ():
            if attempt.number == number:
                assert attempts is not None
                attempts.remove(attempt)
                self._level(task, len(attempts) + 1, len(attempts))
                if not attempts:
                    del self.live[task]
                return attempt
        return None

    def drop_attempts(self, task: int) -> list[Attempt]:
        attempts = self.live.pop(task, [])
        self._level(task, len(attempts), 0)
        return attempts

    def _level(self, task: int, old: int, new: int) -> None:
        if old:
            del self.levels[old][task]
            if not self.levels[old]:
                del self.levels[old]
        if new:
            self.levels.setdefault(new, {})[task] = None

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
        self.counts[CANCELLED] += self.counts[WAITING]
        self.counts[WAITING] = 0


class Host:
    """A pull client and what the server remembers of it."""

    def __init__(self, number: int, name: str, t: float) -> None:
        self.number = number
        self.name = name
        self.boot = ""
        self.n = 0
        self.state = LIVE
        self.ad: dict[str, Any] = {}
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

    @property
    def pool(self) -> str:
        return str(self.ad.get("pool") or "default")


class Advice(Struct, array_like=True):
    """What a pool has taught about a bag: the timeout and why, and how long nearly all results take to come."""

    pool: str
    bag: str
    decision: Decision
    latency_95_s: float | None = None


class State:
    """Everything that decisions depend on."""

    def __init__(self) -> None:
        self.seq = 0
        self.t = 0.0
        self.settings = Settings()
        self.bags: dict[int, Bag] = {}
        self.ready: dict[int, Bag] = {}
        """Bags with tasks to hand out, by number: the only ones that an asking host costs anything."""
        self.ready_version = 0
        """Changes with `ready` and with the rules of any bag: what was made of both is made anew."""
        self.keys: dict[str, int] = {}
        self.hosts: dict[int, Host] = {}
        self.names: dict[str, int] = {}
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
        self.deadlines: list[tuple[float, int, int, int]] = []
        """A heap of (deadline, job, task, attempt); those of attempts that have ended are skipped when they surface."""
        self.memory = Memory()
        """Latencies by pool and by bag, and below what they advise: see core.patience."""
        self.advice: dict[str, Advice] = {}
        self.sites: dict[str, SiteState] = {}
        self.next_job = 1
        self.next_host = 1

    def host(self, name: str) -> Host | None:
        number = self.names.get(name)
        return None if number is None else self.hosts[number]

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
            if bag.number not in self.ready:
                self.ready_version += 1
                self.ready[bag.number] = bag
                if len(self.ready) > 1:
                    self.ready = dict(sorted(self.ready.items()))
        elif self.ready.pop(bag.number, None) is not None:
            self.ready_version += 1
        if bag.tail and bag.live and not bag.rules.paused:
            if bag.number not in self.tails:
                self.tails[bag.number] = bag
                self.tails = dict(sorted(self.tails.items()))
        else:
            self.tails.pop(bag.number, None)


# --- snapshots ------------------------------------------------------------------------------------------------------


class SavedBag(Struct, array_like=True):
    number: int
    rules: JobRules
    classes: list[TaskClass]
    submitted_t: float
    sealed: bool
    stopped: str
    finished_t: float | None
    last_result_t: float | None
    columns: SavedColumns
    segments: list[tuple[int, int]]
    fresh: list[list[tuple[int, int]]]
    again: list[list[int]]
    live: dict[int, list[Attempt]]
    given_up: dict[int, list[Attempt]]
    tail: bool
    attempts: int
    waste: int
    counts: list[int]
    turnarounds: dict[int, int]
    levels: dict[int, list[int]]
    run_s: float
    causes: dict[int, int]
    blame: dict[int, list[int]]
    order: bytes


class SavedHost(Struct, array_like=True):
    number: int
    name: str
    boot: str
    n: int
    state: str
    ad: dict[str, Any]
    ad_version: int
    ad_t: float
    slots: int
    memory_bytes: int
    memory_held: int
    joined_t: float
    seen_t: float
    heard_t: float
    draining: bool
    blocked: str
    blocked_until: float | None
    left: str
    held: list[Key]
    to_cancel: list[Key]
    assigned: list[Assigned]
    cancelled: list[Key]
    record: Reliability


class SavedState(Struct, array_like=True):
    seq: int
    t: float
    settings: Settings
    bags: list[SavedBag]
    hosts: list[SavedHost]
    live_hosts: list[int]
    unknown_hosts: list[int]
    deadlines: list[tuple[float, int, int, int]]
    next_job: int
    next_host: int
    pools: list[PoolState] = field(default_factory=list)
    flow: Flow = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    advice: dict[str, Advice] = field(default_factory=dict)
    sites: list[SiteState] = field(default_factory=list)


_BAG_PLAIN = (
    "number", "rules", "classes", "submitted_t", "sealed", "stopped", "finished_t", "last_result_t", "segments",
    "live", "given_up", "tail", "attempts", "waste", "counts", "turnarounds", "run_s",
    "causes", "blame",
)  # fmt: skip
_HOST_PLAIN = tuple(name for name in SavedHost.__struct_fields__ if name != "held")


def save(state: State) -> bytes:
    """The whole state as bytes; equal states give equal bytes."""
    bags = [
        SavedBag(
            columns=bag.columns.save(),
            order=bag.order.tobytes(),
            levels={level: list(tasks) for level, tasks in bag.levels.items()},
            fresh=[list(queue.fresh) for queue in bag.queues],
            again=[list(queue.again) for queue in bag.queues],
            **{name: getattr(bag, name) for name in _BAG_PLAIN},
        )
        for bag in state.bags.values()
    ]
    hosts = [
        SavedHost(held=list(host.held), **{name: getattr(host, name) for name in _HOST_PLAIN})
        for host in state.hosts.values()
    ]
    saved = SavedState(
        state.seq, state.t, state.settings, bags, hosts, list(state.live_hosts),
        list(state.unknown_hosts), state.deadlines, state.next_job, state.next_host,
        pools=list(state.pools.values()), flow=state.matching.listed(), memory=state.memory, advice=state.advice,
        sites=list(state.sites.values()),
    )  # fmt: skip
    return msgspec.msgpack.encode(saved)


def load(data: bytes) -> State:
    saved = msgspec.msgpack.decode(data, type=SavedState)
    state = State()
    state.seq, state.t, state.settings = saved.seq, saved.t, saved.settings
    state.next_job, state.next_host = saved.next_job, saved.next_host
    state.deadlines = saved.deadlines
    state.pools = {pool.rules.name: pool for pool in saved.pools}
    state.matching = Matching.of(saved.flow)
    state.memory, state.advice = saved.memory, saved.advice
    state.sites = {site.rules.name: site for site in saved.sites}
    for saved_bag in saved.bags:
        bag = _load_bag(saved_bag)
        state.bags[bag.number] = bag
        if bag.rules.key:
            state.keys[bag.rules.key] = bag.number
        state.refresh(bag)
    for saved_host in saved.hosts:
        host = Host(saved_host.number, saved_host.name, saved_host.joined_t)
        for name in _HOST_PLAIN:
            setattr(host, name, getattr(saved_host, name))
        host.held = dict.fromkeys(saved_host.held)
        state.hosts[host.number] = host
        state.names[host.name] = host.number
        if host.state == LIVE:
            state.live_slots += host.slots
        if host.state != GONE:
            state.count_client(host.pool, 1)
        if host.to_cancel:
            state.hosts_to_tell[host.number] = None
    state.live_hosts = OrderedDict.fromkeys(saved.live_hosts)
    state.unknown_hosts = OrderedDict.fromkeys(saved.unknown_hosts)
    return state


def _load_bag(saved: SavedBag) -> Bag:
    bag = Bag(saved.number, saved.rules, saved.classes, saved.submitted_t)
    for name in _BAG_PLAIN:
        setattr(bag, name, getattr(saved, name))
    bag.columns = Columns.load(saved.columns)
    bag.order.frombytes(saved.order)
    bag.levels = {level: dict.fromkeys(tasks) for level, tasks in saved.levels.items()}
    for queue, fresh, again in zip(bag.queues, saved.fresh, saved.again, strict=True):
        queue.fresh.extend(fresh)
        queue.again.extend(again)
        queue.size = len(again) + sum(end - start for start, end in fresh)
    return bag


# --- invariants -----------------------------------------------------------------------------------------------------


def problems(state: State) -> list[str]:
    """Every broken promise of the state, in words. Empty is right. Slow: for tests."""
    found: list[str] = []
    for bag in state.bags.values():
        found += _bag_problems(state, bag)
    for host in state.hosts.values():
        books = [LIVE] * (host.number in state.live_hosts) + [UNKNOWN] * (host.number in state.unknown_hosts)
        if books != ([] if host.state == GONE else [host.state]):
            found.append(f"host {host.name} is {host.state} and stands among {books}")
    slots = sum(host.slots for host in state.hosts.values() if host.state == LIVE)
    if slots != state.live_slots:
        found.append(f"live slots are {slots}, counted {state.live_slots}")
    clients = Counter(host.pool for host in state.hosts.values() if host.state != GONE)
    if clients != state.clients:
        found.append(f"clients by pool are {dict(clients)}, counted {state.clients}")
    found += [problem for site in state.sites.values() for problem in site.problems()]
    found += [f"pool {pool.rules.name} has {pool.queued} pending" for pool in state.pools.values() if pool.queued < 0]
    return found


def _bag_problems(state: State, bag: Bag) -> list[str]:
    found: list[str] = []
    name = f"job {bag.number}"
    by_state = [0] * 5
    for value in bag.columns.state:
        by_state[value] += 1
    if by_state != bag.counts:
        found.append(f"{name}: counters {bag.counts}, columns {by_state}")
    queued = [task for queue in bag.queues for task in queue]
    if len(queued) != len(set(queued)):
        found.append(f"{name}: a task is queued twice")
    if sum(queue.size for queue in bag.queues) != len(queued):
        found.append(f"{name}: queue sizes do not add up")
    waiting = {task for task, value in enumerate(bag.columns.state) if value == WAITING}
    if not bag.stopped and waiting != set(queued):
        found.append(f"{name}: waiting and queued differ by {sorted(waiting ^ set(queued))[:5]}")
    levels = {task: level for level, tasks in bag.levels.items() for task in tasks}
    if levels != {task: len(attempts) for task, attempts in bag.live.items()}:
        found.append(f"{name}: levels do not count the live attempts")
    if (bag.number in state.tails) != bool(bag.tail and bag.live and not bag.rules.paused):
        found.append(f"{name}: wrong about its tail")
    for task, attempts in bag.live.items():
        found += _attempt_problems(state, bag, task, attempts)
    held = {task for task, value in enumerate(bag.columns.state) if value == HELD}
    if held != set(bag.live):
        found.append(f"{name}: held and live differ by {sorted(held ^ set(bag.live))[:5]}")
    if (bag.number in state.ready) != bag.dispatchable:
        found.append(f"{name}: ready {bag.number in state.ready}, dispatchable {bag.dispatchable}")
    for task in range(bag.total):
        rules = bag.classes[bag.class_of(task)]
        # Each replica that was out may add one more while others still run.
        spare = state.settings.max_replicas
        failures, losses = bag.columns.failures[task], bag.columns.losses[task]
        if failures > rules.max_failures + spare or losses > rules.max_losses + spare:
            found.append(f"{name}.{task}: more retries than allowed")
    return found


def _attempt_problems(state: State, bag: Bag, task: int, attempts: list[Attempt]) -> list[str]:
    found = []
    if not attempts:
        found.append(f"job {bag.number}.{task}: live without an attempt")
    for attempt in attempts:
        host = state.hosts.get(attempt.host)
        if host is None or host.state == GONE:
            found.append(f"job {bag.number}.{task}#{attempt.number} runs on a host that is gone")
        elif (bag.number, task, attempt.number) not in host.held:
            found.append(f"job {bag.number}.{task}#{attempt.number} is not held by {host.name}")
    return found


FINAL = frozenset({DONE, FAILED, CANCELLED})
