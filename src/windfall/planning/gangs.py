"""Machines for tasks that take several whole machines of one offer at once, beside any planner of other tasks. Pure.

Such a task needs `Task.nodes` machines together: a set. For all waiting tasks of one kind a number of equal sets is
chosen, the cheapest with which the deadline is safe; the tasks run on them one after the other. What is left of the
snapshot (other tasks, machines in no set) goes to the planner of the job or fleet.

A set of spot machines lives as long as the first of them that is reclaimed: its hazard rate is the sum of theirs. A
task may begin on spot only while on-demand machines could still do all of the tasks after its attempt was lost at its
end; no estimate of interruptions enters there. Machines that hibernate are not used: the others would wait for one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from windfall.planning.bags.packing import is_usable, lease_usd
from windfall.planning.bags.windfall import bounded
from windfall.planning.contract import (
    ONDEMAND,
    SET_MARK,
    SPOT,
    Machine,
    Market,
    Phase,
    Plan,
    Planner,
    Rejected,
    Snapshot,
    Start,
    Task,
)
from windfall.planning.offers import Offer
from windfall.planning.room import market_key, room_in
from windfall.planning.spot.live import Learner, observed_markets

MARGIN_S = 5.0
"""Plan to be done this much before the deadline."""
SETS_TRIED = 24
"""Up to this many sets every number is tried, above it only powers of two."""
MAX_LOSSES_PER_TASK = 20.0
"""Expected losses of one task above which a spot offer is not used at all."""


class WithGangs:
    """A planner that leaves tasks of several machines to this module."""

    def __init__(self, planner: Planner, market: str | None = None) -> None:
        """`market`: rent in this one only."""
        self.planner, self.names_up_to, self.market = planner, planner.names_up_to, market

    def __call__(self, snapshot: Snapshot) -> Plan:
        tasks = (*snapshot.tasks.values(), *(group.task for group in snapshot.groups))
        if not any(task.nodes for task in tasks):
            return self.planner(snapshot)
        return _Pass(snapshot, self.market).planned(self.planner)


class Kind(Struct):
    """Waiting tasks that may run on the same sets; `task` is the longest of them."""

    task: Task
    waiting: int = 0
    deadline_t: float = math.inf


class Sets(Struct):
    """A number of sets of one offer for the waiting tasks of one kind, what they cost and when they are done."""

    offer: Offer
    count: int
    finish_t: float
    cost_usd: float
    used: list[Machine] = field(default_factory=list)
    new: int = 0
    chance: float = 1.0
    """That no machine of a set is reclaimed while one task runs."""
    begin_by_t: float = math.inf
    """On spot: when the last task may begin."""


class _Pass:
    """One look at a snapshot: sets for its tasks of several machines, and what is left of it."""

    def __init__(self, snapshot: Snapshot, market: str | None) -> None:
        self.snapshot, self.market = bounded(snapshot), market
        self.t, self.plan = snapshot.t, Plan()
        rented = ((machine.offer, machine.phase is not Phase.HIBERNATED) for machine in snapshot.machines)
        self.room = room_in(snapshot.offers, rented, _most_machines(snapshot))
        self.gangs = {name: task for name, task in snapshot.tasks.items() if task.nodes}
        self.running = {
            entry.task for machine in snapshot.machines for entry in machine.running if entry.task in self.gangs
        }
        self.free = [(self._free_t(machine), machine) for machine in snapshot.machines if self._is_free(machine)]
        self.free.sort(key=lambda entry: (entry[0], entry[1].id))
        self.claimed: dict[str, Machine] = {
            machine.id: machine
            for machine in snapshot.machines
            if any(entry.task in self.gangs for entry in machine.running)
        }
        self.started: Counter[tuple[str, str]] = Counter()
        self.finish_t, self.cost_usd = self.t, 0.0
        markets = observed_markets(snapshot)
        spot = [offer for offer in snapshot.offers if offer.market == SPOT]
        known = {offer.key: markets.get(offer.key, Market()) for offer in spot}
        learner = Learner(known, snapshot.t - snapshot.begun_t, snapshot.t)
        self.rates = {offer.key: learner.rates(offer).interrupts_per_s for offer in spot}

    def _is_free(self, machine: Machine) -> bool:
        """Whether a machine may be one of a set: nothing but parts of such tasks runs there, and nothing waits."""
        others = any(entry.task not in self.gangs for entry in machine.running)
        return is_usable(machine) and not machine.waiting and not others and _keeps_on(machine.offer)

    def _free_t(self, machine: Machine) -> float:
        ready_t = max(self.t, machine.ready_t) if machine.phase is Phase.PENDING else self.t
        return max((self.t + entry.left_s for entry in machine.running), default=ready_t)

    def planned(self, planner: Planner) -> Plan:
        for kind in self._kinds():
            self._choose(kind)
        rest = planner(self._rest())
        for machine in self.claimed.values():
            ends_t = [self.t + entry.left_s for entry in machine.running]
            self.finish_t = max(self.finish_t, *ends_t) if ends_t else self.finish_t
        return self._joined(rest)

    def _kinds(self) -> list[Kind]:
        """By what the tasks need and when they are due, the earliest deadline first."""
        found: dict[tuple[object, ...], Kind] = {}
        waiting = [(task, 1) for name, task in self.gangs.items() if name not in self.running]
        waiting += [(group.task, group.count) for group in self.snapshot.groups if group.task.nodes]
        for task, count in waiting:
            due_t = min(task.deadline_t, self.snapshot.deadline_t) - MARGIN_S
            key = (task.nodes, task.cores, task.memory_gb, task.resources, task.task_class, due_t, task.job)
            kind = found.setdefault(key, Kind(task, 0, due_t))
            kind.waiting += count
            if task.runtime_s > kind.task.runtime_s:
                kind.task = task
        return sorted(found.values(), key=lambda kind: (kind.deadline_t, kind.task.job, kind.task.nodes))

    def _choose(self, kind: Kind) -> None:
        """Take the cheapest sets that are in time, or those that are done first if none is."""
        tried = [sets for offer in self.snapshot.offers if kind.task.fits(offer) for sets in self._ways(kind, offer)]
        in_time = [sets for sets in tried if sets.finish_t <= kind.deadline_t]
        within = [sets for sets in in_time or tried if self._is_affordable(sets)] or in_time or tried
        best = min(within, key=lambda sets: _order(sets, bool(in_time)), default=None)
        if best is None:
            self.plan.because.append(
                f"{kind.waiting} tasks of {kind.task.nodes} machines each: no offer has {kind.task.nodes} machines left"
            )
            return
        self._take(kind, best)
        others = [sets for sets in in_time if sets.offer.market != best.offer.market]
        if others:
            other = min(others, key=lambda sets: sets.cost_usd)
            self.plan.rejected.append(Rejected(f"{other.count} sets of '{other.offer.name}'", other.cost_usd))

    def _is_affordable(self, sets: Sets) -> bool:
        budget = self.snapshot.budget_usd
        return budget is None or self.snapshot.spent_usd + self.cost_usd + sets.cost_usd <= budget

    def _ways(self, kind: Kind, offer: Offer) -> Iterator[Sets]:
        """All numbers of sets of an offer that may be had and that these tasks could use."""
        if not _keeps_on(offer) or self.market not in (None, offer.market):
            return
        nodes, run_s = kind.task.nodes, kind.task.seconds_on(offer)
        there = self._there(offer)
        most = min(kind.waiting, (len(there) + self.room.of(offer)) // nodes)
        begin_by_t = math.inf
        hazard = 0.0
        if offer.market == SPOT:
            begin_by_t = self._rescue_by_t(kind) - run_s
            if self.t + (0.0 if there else offer.lag_s) > begin_by_t:
                return
            hazard = nodes * self.rates[offer.key] * run_s
            if hazard > math.log(MAX_LOSSES_PER_TASK):
                return
        # A lost attempt begins again, on a set with a new machine.
        usual_s = run_s if hazard < 1e-9 else (run_s / hazard + offer.lag_s) * math.expm1(hazard)
        for count in _numbers(most):
            used = there[: count * nodes]
            new = count * nodes - len(used)
            ready_t = max([self.t + offer.lag_s] if new else [], default=self.t)
            ready_t = max([ready_t, *(free_t for free_t, _ in used)])
            finish_t = ready_t + math.ceil(kind.waiting / count) * usual_s
            extra_usd = 0.0
            if finish_t - usual_s > begin_by_t:
                rescue = self._rescue(kind, count * max(0, math.floor((begin_by_t - ready_t) / usual_s) + 1))
                if rescue is None:
                    continue
                extra_usd, finish_t = rescue
            cost_usd = extra_usd + new * lease_usd(offer, finish_t - self.t)
            cost_usd += math.fsum(_more_usd(machine, finish_t) for _, machine in used)
            machines = [machine for _, machine in used]
            yield Sets(offer, count, finish_t, cost_usd, machines, new, math.exp(-hazard), begin_by_t)

    def _there(self, offer: Offer) -> list[tuple[float, Machine]]:
        """Machines of an offer that sets may use, those that are free first, first."""
        key = market_key(offer)
        taken = {id for id, machine in self.claimed.items() if not machine.running}
        return [
            entry for entry in self.free if market_key(entry[1].offer) == key and entry[1].id not in taken
        ]  # fmt: skip

    def _steady(self, kind: Kind, waiting: int) -> list[tuple[Offer, int, float]]:
        """On-demand offers with the most sets of each that this many tasks can use, and the seconds until all are done
        on new machines."""
        found = []
        for offer in self.snapshot.offers:
            if offer.market == ONDEMAND and kind.task.fits(offer):
                sets = min(waiting, (len(self._there(offer)) + self.room.of(offer)) // kind.task.nodes)
                if sets:
                    seconds = offer.lag_s + math.ceil(waiting / sets) * kind.task.seconds_on(offer)
                    found.append((offer, sets, seconds))
        return found

    def _rescue_by_t(self, kind: Kind) -> float:
        """The last moment at which new on-demand machines alone could begin all waiting tasks and be in time.

        Where there are none, spot is all there is: the deadline.
        """
        if not any(offer.market == ONDEMAND and kind.task.fits(offer) for offer in self.snapshot.offers):
            return kind.deadline_t
        steady = self._steady(kind, kind.waiting)
        return kind.deadline_t - min((seconds for _, _, seconds in steady), default=math.inf)

    def _rescue(self, kind: Kind, done: int) -> tuple[float, float] | None:
        """Dollars and end of on-demand machines for what spot is not expected to do; None if there are none."""
        left = kind.waiting - done
        steady = self._steady(kind, left) if left > 0 else []
        if not steady:
            return None
        priced = [
            (sets * kind.task.nodes * lease_usd(offer, seconds), seconds) for offer, sets, seconds in steady
        ]  # fmt: skip
        usd, seconds = min(priced)
        return usd, max(self.t + seconds, kind.deadline_t - self._slowest(steady) + seconds)

    @staticmethod
    def _slowest(steady: list[tuple[Offer, int, float]]) -> float:
        return max(seconds for _, _, seconds in steady)

    def _take(self, kind: Kind, sets: Sets) -> None:
        """Claim the machines that are there, and order the others: those of one set together or not at all."""
        for machine in sets.used:
            self.claimed[machine.id] = machine
        nodes = kind.task.nodes
        label = f"job-{kind.task.job}-{nodes}"
        for place in range(sets.new):
            # The first set may need only some: it is completed.
            name = f"{label}-{(sets.new - 1 - place) // nodes}{SET_MARK}{len(self.plan.start)}"
            self.plan.start.append(Start(name, sets.offer))
        self.room.take(sets.offer, sets.new)
        self.started[market_key(sets.offer)] += sets.new
        self.finish_t, self.cost_usd = max(self.finish_t, sets.finish_t), self.cost_usd + sets.cost_usd
        many = f"{sets.count} x {nodes}" if sets.count > 1 else f"{nodes}"
        text = f"{many} '{sets.offer.name}' machines together for {kind.waiting} tasks of {nodes} machines each"
        if sets.offer.market == SPOT:
            text += f"; all {nodes} survive one task with a chance of {sets.chance:.0%}"
            self.plan.spot_until_t = min(self.plan.spot_until_t, sets.begin_by_t)
            if sets.begin_by_t > self.t:
                self.plan.replan_t = min(self.plan.replan_t, sets.begin_by_t + 1e-3)
                text += f"; one may begin there until {sets.begin_by_t:.0f}, so that on-demand still finishes in time"
        if sets.finish_t > kind.deadline_t:
            text += "; they will be late"
        self.plan.because.append(text)

    def _rest(self) -> Snapshot:
        """The snapshot without these tasks and their machines."""
        used = Counter(market_key(machine.offer) for machine in self.claimed.values())
        awake = Counter(machine.offer.pool for machine in self.claimed.values())
        for (key, _), count in self.started.items():
            awake[key.rpartition("/")[0]] += count
        used += self.started
        offers = tuple(
            replace(
                offer,
                limit=None if offer.limit is None else max(0, offer.limit - used[market_key(offer)]),
                pool_limit=None if offer.pool_limit is None else max(0, offer.pool_limit - awake[offer.pool]),
            )
            for offer in self.snapshot.offers
        )
        return replace(
            self.snapshot,
            tasks={name: task for name, task in self.snapshot.tasks.items() if not task.nodes},
            groups=tuple(group for group in self.snapshot.groups if not group.task.nodes),
            machines=tuple(machine for machine in self.snapshot.machines if machine.id not in self.claimed),
            offers=offers,
        )

    def _joined(self, rest: Plan) -> Plan:
        own, has_rest = self.plan, bool(self._rest().unfinished)
        rest.start = own.start + rest.start
        rest.replan_t, rest.spot_until_t = min(own.replan_t, rest.replan_t), min(own.spot_until_t, rest.spot_until_t)
        rest.because = own.because + (rest.because if has_rest or rest.stop else [])
        rest.rejected = own.rejected + rest.rejected
        before_usd = rest.predicted_cost_usd if has_rest else self.snapshot.spent_usd
        rest.predicted_cost_usd = None if before_usd is None else before_usd + self.cost_usd
        ends_t = [self.finish_t] if rest.predicted_finish_t is None else [self.finish_t, rest.predicted_finish_t]
        rest.predicted_finish_t = max(ends_t)
        if not has_rest and rest.stop:
            rest.because[-1] = f"{len(rest.stop)} machines are in no set that is needed"
        return rest


def _order(sets: Sets, by_price: bool) -> tuple[float, float, str, int]:
    """The cheapest first, or the one that is done first."""
    first, second = (sets.cost_usd, sets.finish_t) if by_price else (sets.finish_t, sets.cost_usd)
    return first, second, sets.offer.key, sets.count


def _most_machines(snapshot: Snapshot) -> int:
    """Machines that all unfinished tasks could use beside those that are there."""
    alone = sum(max(1, task.nodes) for task in snapshot.tasks.values())
    grouped = sum(max(1, group.task.nodes) * group.count for group in snapshot.groups)
    return len(snapshot.machines) + alone + grouped


def _keeps_on(offer: Offer) -> bool:
    """Whether its machines run until they end: one that hibernates would make the others wait."""
    return offer.market == ONDEMAND or offer.when_taken == "terminate"


def _numbers(most: int) -> Iterable[int]:
    """Numbers of sets that are tried."""
    yield from range(1, min(most, SETS_TRIED) + 1)
    count = 2 * SETS_TRIED
    while count < most:
        yield count
        count *= 2
    if most > SETS_TRIED:
        yield most


def _more_usd(machine: Machine, until_t: float) -> float:
    """Dollars for keeping a machine until then: cycles beyond the one that is paid."""
    offer = machine.offer
    if until_t <= machine.paid_until_t:
        return 0.0
    return math.ceil((until_t - machine.paid_until_t) / offer.cycle_s - 1e-9) * offer.price_usd
