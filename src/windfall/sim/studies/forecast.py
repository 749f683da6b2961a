"""Cost and finish of a bag or a workflow, before anything is rented. Touches nothing but its executor.

Many simulated runs, with the engine and the planner of the live server, against the expected markets, and statistics
over them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from math import ceil, exp, inf, isinf, nan, sqrt
from statistics import NormalDist, fmean
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall import graph as graphs
from windfall.core.events import PlanProposed
from windfall.core.records import Record
from windfall.planning.bags.feasibility import earliest_deadline_t
from windfall.planning.bags.prices import USUAL_INTERRUPTIONS_PER_H, USUAL_RESUMES_PER_H
from windfall.planning.contract import SPOT, Group, Plan, Planner, Snapshot, Task
from windfall.planning.estimates import chance_of_sample, prior_of
from windfall.planning.offers import Offer
from windfall.planning.price_law import path
from windfall.planning.registry import PLANNERS
from windfall.planning.workflow.live import WorkflowPlanner
from windfall.resources import needs_of, thousandths
from windfall.sim.chance import stream
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs import schema
from windfall.sim.inputs.laws import NEVER, RandomLaw, fixed, seen
from windfall.sim.inputs.traces import Prices, Series
from windfall.sim.scenario import Drain, Pool, Scenario
from windfall.sim.studies.one_bag import GIB, RentedMachine, outcome_of, scenario_of
from windfall.sim.world import World

SHARE = 0.95
"""Level of the interval of a share of runs."""
RUN_SHARE = 0.9
"""The interval of cost and finish holds the next run this often, if there are at least 19 runs."""
MOST_RUNS, TAIL_RUNS, WIDE = 60, 40, 0.4
"""Runs are added, up to `MOST_RUNS`, while the chance of being in time is undecided, and up to `TAIL_RUNS` where the
interval of cost is wider than `WIDE` times the mean: 20 runs miss what happens once in ten runs one time of eight."""
SPREADS = (1.0, 0.0, 1.6, 0.5, 2.9, 0.25, 1.2, 2.2)
"""A spread that is only guessed is multiplied by these, one run after the other: it may be anything from 0 up. A guess
of 0.35 so becomes 0 to 1: heavy tails are common, and forecasts without any named too high a chance."""
LEAST_SPREAD = 1e-9
"""Of run times that are as estimated."""
CELLS = 48
MARGIN_S = 5.0
PRICES_AHEAD = 2.0
"""Prices are drawn for this many times the deadline; a run that takes longer meets them again."""
HOSTS_JOIN_S = 1.0
"""Free hosts are there this long before the job, as they are when it is submitted to a server."""
LATEST = 20
"""A run is stopped after this many times the deadline: its job would never end."""


class Question(Struct, frozen=True, kw_only=True):
    """A bag or a workflow, the offers for it, and how it is planned."""

    estimates_s: tuple[float, ...]
    """Run time of a task at speed 1, as planners are told."""
    memory_bytes: tuple[int, ...]
    spread: float
    """Standard deviation of the logarithm of the true run times."""
    spread_is_guessed: bool = False
    """The spread is a guess: each run has another one around it, so that the forecast shows how much depends on it."""
    told_spread: float | None = None
    """The spread that planners are told, as `windfall run --spread` does; None: nothing."""
    seen_s: tuple[float, ...] = ()
    """Run times of an earlier job: true run times are drawn from these, and planners are told the mean."""
    cpus: int = 1
    nodes: int = 0
    """Whole machines that a task takes at once; 0: cores of one."""
    supplies: tuple[Supply, ...]
    planner: str
    confidence: float = 0.95
    budget_usd: float | None = None
    edges: tuple[tuple[int, int], ...] = ()
    """Of a workflow: (parent, child)."""
    classes_of: tuple[str, ...] = ()
    cpus_of: tuple[int, ...] = ()
    nodes_of: tuple[int, ...] = ()
    """Of a workflow, by task."""
    resources: dict[str, float] = {}
    """Units of resources of its machine, or of the whole server, that a task needs."""
    of_server: dict[str, float] = {}
    """What the whole server has of such resources, as of licences: units by name."""
    free_slots: tuple[int, ...] = ()
    """Slots of each free host that works for it: the engine leaves it as much as it does live."""
    free_stay_s: float | None = None
    """When free hosts leave, each after what it has begun; None: they stay."""
    stands_for: float = 1.0
    """Of a sample (`studies.smaller`): how many tasks of the whole bag each of these stands for."""

    @property
    def tasks(self) -> int:
        return len(self.estimates_s)


class Run(Struct, frozen=True):
    """One run. `first`: the first plan; `stepped_in`: why a fallback made it instead of the planner asked for."""

    seed: int
    cost_usd: float
    finish_s: float | None
    met: bool
    machines: tuple[RentedMachine, ...]
    interrupted: int
    lost: int
    plans: int
    first: Plan | None
    stepped_in: str
    stands_for: float = 1.0
    """Of a sample: how many machines each of these stands for. All other numbers are those of the whole bag."""

    @property
    def rented(self) -> float:
        return len(self.machines) * self.stands_for


class Range(Struct, frozen=True):
    """The mean, and the range that holds the next run as often as `Forecast.holds` says."""

    mean: float
    low: float
    high: float

    def told(self) -> dict[str, float | None]:
        """In JSON: `high` is None where it is infinite."""
        return {"mean": self.mean, "low": self.low, "high": None if isinf(self.high) else self.high}


class Forecast(Struct, frozen=True):
    """All runs under one deadline."""

    deadline_s: float
    runs: tuple[Run, ...]

    @property
    def holds(self) -> float:
        """How often the intervals hold the next run: few runs cannot say more than their smallest and largest."""
        return min(RUN_SHARE, (len(self.runs) - 1) / (len(self.runs) + 1))

    @property
    def cost_usd(self) -> Range:
        return _range([run.cost_usd for run in self.runs])

    @property
    def finish_s(self) -> Range | None:
        """Finish of the runs; None if none ended. The mean is of those that ended.

        A run that never ends, because its budget is used up, counts as later than all others. If the interval holds
        such a run, it has no end: `high` is infinite.
        """
        ended = [run.finish_s for run in self.runs if run.finish_s is not None]
        if not ended:
            return None
        runs = len(self.runs)
        found = _range([*ended, *[max(ended)] * (runs - len(ended))])
        reached = min(runs, ceil((runs + 1) * (1 + RUN_SHARE) / 2 - 1e-9))  # the last run that the interval holds
        return Range(fmean(ended), found.low, found.high if reached <= len(ended) else inf)

    @property
    def met(self) -> int:
        return sum(run.met for run in self.runs)

    @property
    def met_share(self) -> Range:
        """The share of runs in time, with its 95 % interval (Wilson)."""
        return wilson(self.met, len(self.runs))

    def is_sure_enough(self, confidence: float) -> bool:
        """Whether more runs would hardly change the answer. Where none was late, more would only take longer."""
        runs, share, cost = len(self.runs), self.met_share, self.cost_usd
        if runs >= MOST_RUNS:
            return True
        undecided = self.met < runs and share.low <= confidence <= share.high
        return not undecided and (runs >= TAIL_RUNS or cost.high - cost.low <= WIDE * cost.mean)

    def machines_over_time(self) -> tuple[list[float], dict[str, list[float]]]:
        """Times, and the mean number of machines of each market at them, without hibernated ones."""
        end_s = max([self.deadline_s, *(machine.ended_s for run in self.runs for machine in run.machines)])
        times = [end_s * (cell + 0.5) / CELLS for cell in range(CELLS)]
        counts: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
        grid = np.asarray(times)
        for run in self.runs:
            for machine in run.machines:
                held = (grid >= machine.requested_s) & (grid < machine.ended_s)
                for since_s, until_s in machine.sleeps_s:
                    held &= ~((grid >= since_s) & (grid < until_s))
                counts[machine.market] = counts.get(machine.market, np.zeros(CELLS)) + held * run.stands_for
        return times, {market: (count / len(self.runs)).tolist() for market, count in sorted(counts.items())}

    def most_at_once(self) -> int:
        return max((round(_most_at_once(run.machines) * run.stands_for) for run in self.runs), default=0)


def _most_at_once(machines: Sequence[RentedMachine]) -> int:
    # At equal times, ends come before starts.
    steps = sorted([(m.requested_s, 1) for m in machines] + [(m.ended_s, -1) for m in machines])
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def _range(values: Sequence[float]) -> Range:
    # By these positions the interval holds the next of `n` equally likely values, not only the middle of these.
    low, high = np.quantile(values, [(1 - RUN_SHARE) / 2, (1 + RUN_SHARE) / 2], method="weibull")
    return Range(fmean(values), float(low), float(high))


def wilson(count: int, of: int) -> Range:
    """Wilson's interval of a share: shares of 0 and 1 get an interval of positive width too."""
    if not of:
        return Range(nan, 0.0, 1.0)
    z = NormalDist().inv_cdf((1 + SHARE) / 2)
    share, weight = count / of, z * z / of
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * sqrt(share * (1 - share) / of + weight / (4 * of))
    return Range(share, max(0.0, middle - half), min(1.0, middle + half))


# --- markets ----------------------------------------------------------------------------------------------------------


def supply_of(offer: Offer, series: Series | None = None) -> Supply:
    """The market of an offer: by a series of availability, else by the offer's rates, else by the planner's prior."""
    if offer.market != SPOT:
        return Supply(offer=offer, boot=fixed(offer.lag_s))
    if series is not None:
        limit = offer.limit or max(1, ceil(max(series.counts)))
        return Supply(offer=replace(offer, limit=limit), boot=fixed(offer.lag_s), ticks=series)
    per_h = USUAL_INTERRUPTIONS_PER_H if offer.interruptions_per_h is None else offer.interruptions_per_h
    resumes_per_h = USUAL_RESUMES_PER_H if offer.resumes_per_h is None else offer.resumes_per_h
    hibernated = RandomLaw("exponential", {"mean": 3600.0 / resumes_per_h}) if resumes_per_h else NEVER
    return Supply(offer=offer, boot=fixed(offer.lag_s), interruptions_per_h=per_h, hibernated=hibernated)


# --- runs -------------------------------------------------------------------------------------------------------------


def scenario(question: Question, deadline_s: float) -> Scenario:
    """The world of a question."""
    estimates, memory = question.estimates_s, question.memory_bytes
    tasks = [Task(i, estimate, need / GIB) for i, (estimate, need) in enumerate(zip(estimates, memory, strict=True))]
    error = None
    if not question.seen_s:
        # Mean 1: the estimate is assumed to be right on average. Not exactly so, because a live planner does not know
        # that nothing can differ.
        spread = max(question.spread, LEAST_SPREAD)
        error = RandomLaw("lognormal", {"median": exp(-(spread**2) / 2), "sigma": spread})
    world = scenario_of(
        tasks, question.supplies, deadline_s, question.planner, error, question.budget_usd, LATEST * deadline_s
    )
    changes: dict[str, Any] = {
        "cpus": question.cpus, "nodes": question.nodes,
        "confidence": _chance(question), "longest_of": question.stands_for,
        "resources": question.resources, "told_spread": question.told_spread,
    }  # fmt: skip
    if question.free_slots:
        changes["submit_s"] = HOSTS_JOIN_S
    if question.edges:
        changes |= {
            "edges": question.edges, "classes_of": question.classes_of, "cpus_of": question.cpus_of,
            "nodes_of": question.nodes_of,
        }  # fmt: skip
    elif question.seen_s:
        changes |= {"told": "mean", "run": seen(question.seen_s), "run_times_s": ()}
    elif len(set(estimates)) == 1:
        # One estimate for all tasks, as a user gives it: planners trust it less than one per task, as they do live.
        changes |= {"told": "mean"}
    pools, leave_s = _free_pools(question), question.free_stay_s
    drains = () if leave_s is None else tuple(Drain(pool.name, 0, HOSTS_JOIN_S + leave_s, inf) for pool in pools)
    settings = replace(world.settings, resources=dict(needs_of(question.of_server)))
    return replace(world, bags=(replace(world.bags[0], **changes),), pools=pools, drains=drains, settings=settings)


def _chance(question: Question) -> float:
    """The chance that planners are told: of a sample, the one that gives each task the quantile of the whole bag."""
    if question.stands_for == 1.0:
        return question.confidence
    prior = prior_of(question.told_spread, len(set(question.estimates_s)) > 1, True)
    whole = round(question.tasks * question.stands_for)
    return chance_of_sample(question.confidence, question.tasks, whole, prior)


def _free_pools(question: Question) -> tuple[Pool, ...]:
    """Hosts of speed 1 that cost nothing, a pool for each number of slots."""
    return tuple(
        Pool(**schema.read_table({"name": f"free-{slots}", "hosts": hosts, "slots": slots}, schema.POOL, "pool"))
        for slots, hosts in sorted(Counter(question.free_slots).items())
    )


def of_seed(question: Question, seed: int) -> Question:
    """The question of one run: with another spread for each, if that is only guessed."""
    if not question.spread_is_guessed:
        return question
    return replace(question, spread=question.spread * SPREADS[seed % len(SPREADS)])


def with_moving_prices(question: Question, deadline_s: float, seed: int) -> Question:
    """The question of one run: prices that move begin at those of now and take another way in each run."""
    supplies = [
        replace(supply, prices=_moving(supply.offer, deadline_s, seed), begins=0.0)
        if supply.offer.price_moves is not None and supply.prices is None and supply.ticks is None
        else supply
        for supply in question.supplies
    ]
    return replace(question, supplies=tuple(supplies))


def _moving(offer: Offer, deadline_s: float, seed: int) -> Prices:
    assert offer.price_moves is not None
    until_s, per_h = PRICES_AHEAD * deadline_s, 3600.0 / offer.cycle_s
    steps = path(offer.price_moves, offer.price_usd * per_h, until_s / 3600.0, stream(seed, f"prices/{offer.key}"))
    return Prices(tuple(3600.0 * at_h for at_h, _ in steps), tuple(usd for _, usd in steps), until_s)


def run_once(encoded: bytes, deadline_s: float, seed: int) -> bytes:
    """One run, for use with any executor."""
    question = of_seed(msgspec.msgpack.decode(encoded, type=Question), seed)
    question = with_moving_prices(question, deadline_s, seed)
    first: list[PlanProposed] = []

    def keep(record: Record) -> None:
        if not first and isinstance(record.event, PlanProposed):
            first.append(record.event)

    scale = question.stands_for
    world = World(
        scenario(question, deadline_s), seed, keep, None, lambda name: _of_sample(PLANNERS[name], scale),
        lambda name: planner_of_runs(name, encoded, deadline_s),
    )  # fmt: skip
    world.run()
    outcome = outcome_of(world)
    interrupted = sum(what in ("hibernated", "taken") for _, _, what in outcome.events)
    run = Run(
        seed, outcome.cost_usd * scale, outcome.finish_s, outcome.met, outcome.machines, round(interrupted * scale),
        round(outcome.lost * scale), outcome.plans, first[0].plan if first else None, first[0].error if first else "",
        scale,
    )  # fmt: skip
    return msgspec.msgpack.encode(run)


class _OfSample:
    """A planner that counts tasks of a sample where it would count those of the whole bag, and names them likewise."""

    def __init__(self, planner: Planner, scale: float) -> None:
        self._planner, self.names_up_to = planner, planner.names_up_to / scale

    def __call__(self, snapshot: Snapshot) -> Plan:
        return self._planner(snapshot)


def _of_sample(planner: Planner, scale: float) -> Planner:
    return planner if scale == 1.0 else _OfSample(planner, scale)


class _Planned(Exception):
    """The first plan is there."""


def first_plan(question: Question, deadline_s: float, seed: int) -> Plan | None:
    """What the planner would do now, which is known long before a run is done; None if it would do nothing."""
    found: list[Plan] = []

    def keep(record: Record) -> None:
        if isinstance(record.event, PlanProposed):
            found.append(record.event.plan)
            raise _Planned

    with suppress(_Planned):
        World(scenario(of_seed(question, seed), deadline_s), seed, keep, None, PLANNERS.__getitem__).run()
    return found[0] if found else None


class _FirstPlanKept(WorkflowPlanner):
    """Plans like a `WorkflowPlanner`; the first plan, the same in every run, is searched for once.

    It is a plan for the moment of the submission only: a run that has lost all its machines searches again for the
    time that is left. One that could rent none, or is late, asks again and again: it is reviewed without a search.
    """

    kept: Plan | None = None

    def _first(self, snapshot: Snapshot) -> Plan:
        if snapshot.t > snapshot.begun_t:
            can_gain = snapshot.spent_usd > 0.0 and snapshot.t < snapshot.deadline_t
            return super()._first(snapshot) if can_gain else self._reviewed(snapshot)
        if self.kept is None:
            self.kept = super()._first(snapshot)
        return deepcopy(self.kept)  # the run that follows a plan may change it


@lru_cache(maxsize=8)
def planner_of_runs(name: str, encoded: bytes, deadline_s: float) -> Planner:
    """The planner of one question under one deadline, for all runs in this process."""
    return _FirstPlanKept(name)


def forecast(
    question: Question, deadlines_s: Sequence[float], seeds: Sequence[int], executor: Executor | None,
    done: Callable[[float, Run], None] | None = None,
) -> list[Forecast]:  # fmt: skip
    """Forecast all deadlines with the same seeds: interruptions and run times are equal, only deadlines differ."""
    cases = [(deadline_s, seed) for deadline_s in dict.fromkeys(deadlines_s) for seed in seeds]
    found: dict[tuple[float, int], Run] = {}
    for deadline_s, run in simulated(question, cases, executor):
        found[deadline_s, run.seed] = run
        if done is not None:
            done(deadline_s, run)
    return [Forecast(deadline_s, tuple(found[deadline_s, seed] for seed in seeds)) for deadline_s in deadlines_s]


def simulated(
    question: Question, cases: Sequence[tuple[float, int]], executor: Executor | None, timeout_s: float | None = None
) -> Iterator[tuple[float, Run]]:
    """The runs of these cases (deadline, seed) as they are done, the first cases first.

    TimeoutError if an executor has not done all of them after `timeout_s`.
    """
    for deadline_s, encoded in _encoded(msgspec.msgpack.encode(question), cases, executor, timeout_s):
        yield deadline_s, msgspec.msgpack.decode(encoded, type=Run)


def _encoded(
    data: bytes, cases: Sequence[tuple[float, int]], executor: Executor | None, timeout_s: float | None
) -> Iterator[tuple[float, bytes]]:
    if executor is None:
        for deadline_s, seed in cases:
            yield deadline_s, run_once(data, deadline_s, seed)
        return
    waiting = {executor.submit(run_once, data, deadline_s, seed): deadline_s for deadline_s, seed in cases}
    for future in as_completed(waiting, timeout_s):
        yield waiting[future], future.result()


# --- what cannot be ---------------------------------------------------------------------------------------------------


def earliest_s(question: Question) -> float:
    """The earliest deadline that all machines on offer and all free hosts could meet if tasks took as long as expected.

    Infinite if some task fits on no machine. Of a workflow at least its longest chain on the fastest machine.
    """
    mean_s = fmean(question.seen_s) if question.seen_s else None
    kinds = Counter(
        (estimate_s if mean_s is None else mean_s, need)
        for estimate_s, need in zip(question.estimates_s, question.memory_bytes, strict=True)
    )
    units = tuple(sorted((name, n) for name, n in question.resources.items() if name not in question.of_server))
    groups = tuple(
        Group(Task(-1, seconds, need / GIB, resources=units, nodes=question.nodes), count)
        for (seconds, need), count in kinds.items()
    )
    offers = tuple(_offers(question))
    snapshot = Snapshot(t=0.0, deadline_t=inf, tasks={}, machines=(), offers=offers, groups=groups)
    found = earliest_deadline_t(snapshot, MARGIN_S)
    return found if isinf(found) else float(ceil(max(found, _longest_chain_s(question), _licensed_s(question))))


def _offers(question: Question) -> list[Offer]:
    """What may be rented, and free hosts as offers that need no boot."""
    kinds = Counter(() if question.resources.keys() - question.of_server.keys() else question.free_slots)
    free = [
        Offer(name=f"free-{slots}", pool=f"free-{slots}", price_usd=0.0, cores=slots, lag_s=0.0, limit=hosts)
        for slots, hosts in sorted(kinds.items())
    ]
    return [*(supply.offer for supply in question.supplies), *free]


def _licensed_s(question: Question) -> float:
    """All tasks, as many at once as there are licences for, on the fastest machine on offer; 0 if they need none."""
    of_server = question.of_server.items()
    shares = [thousandths(there) // thousandths(question.resources[name]) for name, there in of_server]
    if not shares:
        return 0.0
    work_s = fmean(question.seen_s) * question.tasks if question.seen_s else sum(question.estimates_s)
    lag_s, speed = _quickest(question)
    return lag_s + work_s / speed / min(shares) if min(shares) else inf


def _longest_chain_s(question: Question) -> float:
    """Of a workflow: the longest chain of tasks on the fastest machine on offer, behind the shortest boot."""
    if not question.edges:
        return 0.0
    shape = graphs.from_edges(question.tasks, question.edges)
    ends_s = [0.0] * question.tasks
    for task in shape.order():
        before_s = max((ends_s[parent] for parent in shape.parents_of(task)), default=0.0)
        ends_s[task] = before_s + question.estimates_s[task]
    lag_s, speed = _quickest(question)
    return lag_s + max(ends_s) / speed


def _quickest(question: Question) -> tuple[float, float]:
    """The shortest boot and the highest speed on offer."""
    offers = _offers(question)
    speeds = [max(offer.speed.values()) if isinstance(offer.speed, dict) else offer.speed for offer in offers]
    return min(offer.lag_s for offer in offers), max(speeds)
