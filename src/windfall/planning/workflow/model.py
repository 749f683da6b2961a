"""Input and output of the planners of workflows: a problem (workflow, offers, deadline) and a plan. Pure.

Times are integer microseconds from the moment of planning, so a lease of exactly one cycle costs exactly one cycle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from windfall.graph import Graph
from windfall.numeric import Ints, np
from windfall.planning.offers import GIB, Offer
from windfall.planning.room import pool_limits
from windfall.planning.workflow.risk import NEVER as NEVER  # also the duration of a task on what cannot hold it
from windfall.planning.workflow.risk import Exposure, Risk, expose

US = 1_000_000


class Workflow(Struct, frozen=True, eq=False):
    """A workflow for planning: one entry per task in each list; run times at speed 1."""

    name: str
    ids: list[str]
    classes: list[str]
    runtime_s: list[float]
    cores: list[int]
    memory_bytes: list[int]
    graph: Graph
    resources: list[tuple[tuple[str, float], ...]] = []
    """What each task needs of its machine beside cores and memory; empty: nothing."""
    nodes: list[int] = []
    """Whole machines that each task takes at once, 0 for cores of one; empty: none takes whole machines (`sets`)."""

    def resources_of(self, task: int) -> tuple[tuple[str, float], ...]:
        return self.resources[task] if self.resources else ()


class Problem(Struct, frozen=True, eq=False):
    """One workflow, the offers and the deadline, with the duration of every task on every offer."""

    workflow: Workflow
    offers: tuple[Offer, ...]
    deadline: int
    duration: list[list[int]]  # [offer][task]; NEVER where the task does not fit
    cycle: list[int]
    lag: list[int]
    limit: list[int]
    pool: list[int]  # per offer: the number of its pool
    pool_limit: list[int]  # per pool: most machines of all its offers together
    unbilled: list[int]  # per offer: the boot, where it is free
    minimum: list[int]  # per offer: what is billed in any case
    exposure: Exposure

    @property
    def n(self) -> int:
        return self.workflow.graph.tasks

    def cost(self, offer: int, lease: int) -> float:
        """The price of one lease in dollars, from the request to the release."""
        billed = max(lease - self.unbilled[offer], self.minimum[offer])
        return max(1, -(-billed // self.cycle[offer])) * self.offers[offer].price_usd

    def rate(self, offer: int) -> float:
        """Dollars per microsecond of a machine, as if it were billed continuously."""
        return self.offers[offer].price_usd / self.cycle[offer]

    def fits(self, task: int, offer: int) -> bool:
        return self.duration[offer][task] < NEVER

    def allows(self, rented: Sequence[int]) -> bool:
        """Whether the limits allow these numbers of machines, by offer, at once."""
        of_pool = [0] * len(self.pool_limit)
        for pool, count in zip(self.pool, rented, strict=True):
            of_pool[pool] += count
        within = all(count <= most for count, most in zip(rented, self.limit, strict=True))
        return within and all(count <= most for count, most in zip(of_pool, self.pool_limit, strict=True))


class Lease(Struct, frozen=True):
    """One rented machine: requested at `start`, usable from `start` + lag, released at `end`."""

    offer: int
    start: int
    end: int


class Effort(Struct, frozen=True):
    """What the search for a plan took, in machines tried, and how the cost fell."""

    tried: int
    allowed: int
    searches: int
    better: tuple[tuple[int, float], ...]
    """(machines tried, expected dollars) of the plan to begin with and of each cheaper one that a search ended with."""

    def said(self) -> str:
        """`tried 300,004 machines in 8 searches, the cost fell from $2.0000 to $1.7500, last after 181,230`."""
        begin_usd, (last, end_usd) = self.better[0][1], self.better[-1]
        fell = f"the cost fell from ${begin_usd:.4f} to ${end_usd:.4f}, last after {last:,}"
        stayed = f"found nothing cheaper than ${end_usd:.4f}"
        searches = f"{self.searches} search{'es' * (self.searches != 1)}"
        return f"tried {self.tried:,} machines in {searches}, {fell if len(self.better) > 1 else stayed}"


class Plan(Struct, frozen=True, eq=False):
    """Which machines to rent and where and when each task runs. `machine[i]`, `start[i]`, `end[i]` belong to task i."""

    planner: str
    leases: list[Lease]
    machine: list[int]
    start: list[int]
    end: list[int]
    effort: Effort | None = None
    """None: nothing was searched for, this is what a rule constructs."""

    @property
    def makespan(self) -> int:
        return max(self.end, default=0)

    def cost_usd(self, problem: Problem) -> float:
        return math.fsum(problem.cost(lease.offer, lease.end - lease.start) for lease in self.leases)

    def met(self, problem: Problem) -> bool:
        return self.makespan <= problem.deadline

    def kept(self, problem: Problem) -> bool:
        """Whether it meets the deadline and leaves the time to run lost tasks again."""
        due, offer_of = problem.exposure.due, [self.leases[number].offer for number in self.machine]
        return self.met(problem) and all(self.end[t] <= due[o][t] for t, o in enumerate(offer_of))

    def is_allowed_at_once(self, problem: Problem) -> bool:
        """Whether all its machines may be rented at the same time."""
        rented = [0] * len(problem.offers)
        for lease in self.leases:
            rented[lease.offer] += 1
        return problem.allows(rented)

    def expected_usd(self, problem: Problem) -> float:
        """Dollars: the cost plus the expected cost of losses."""
        loss = problem.exposure.loss_usd
        return self.cost_usd(problem) + math.fsum(loss[self.leases[m].offer][t] for t, m in enumerate(self.machine))


class NoOffer(ValueError):
    """No offer has the cores, the memory or the resources that a task needs; `task` is its index."""

    def __init__(self, task: int, need: str) -> None:
        super().__init__(need)
        self.task = task
        self.need = need


def make_problem(workflow: Workflow, offers: tuple[Offer, ...], deadline_s: float, risk: Risk | None = None) -> Problem:
    """The problem with all durations and risks; raises NoOffer for a task that no offer can hold."""
    runtime = np.asarray(workflow.runtime_s, dtype=np.float64)
    duration = np.stack([_durations(workflow, offer, runtime) for offer in offers])
    homeless = np.flatnonzero(duration.min(axis=0) >= NEVER)
    if homeless.size:
        task = int(homeless[0])
        need = f"{workflow.cores[task]} cores and {workflow.memory_bytes[task] / GIB:.3g} GB"
        need += "".join(f", {amount:g} {name}" for name, amount in workflow.resources_of(task))
        raise NoOffer(task, need)
    deadline = math.floor(min(deadline_s, NEVER / US / 4) * US)
    lag = [math.ceil(offer.lag_s * US) for offer in offers]
    billed_s = (duration + np.array([[lag[o] * offer.bills_boot] for o, offer in enumerate(offers)])) / US
    lease_usd = np.array(
        [
            offer.price_usd * np.maximum(1, np.ceil(row / offer.cycle_s))
            for offer, row in zip(offers, billed_s, strict=True)
        ]
    )
    pools, limits = list(dict.fromkeys(offer.pool for offer in offers)), pool_limits(offers)
    return Problem(
        workflow=workflow,
        offers=offers,
        deadline=deadline,
        duration=[row.tolist() for row in duration],
        cycle=[max(1, round(offer.cycle_s * US)) for offer in offers],
        lag=lag,
        limit=[workflow.graph.tasks if offer.most is None else offer.most for offer in offers],
        pool=[pools.index(offer.pool) for offer in offers],
        pool_limit=[limits.get(pool, NEVER) for pool in pools],
        unbilled=[0 if offer.bills_boot else lag[o] for o, offer in enumerate(offers)],
        minimum=[round(offer.minimum_s * US) for offer in offers],
        exposure=expose(
            workflow.graph, offers, duration.tolist(), lag, deadline, risk or Risk(), lease_usd, workflow.cores
        ),
    )


def _durations(workflow: Workflow, offer: Offer, runtime: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Ints:
    speeds = {name: offer.speed_for(name) for name in set(workflow.classes)}
    speed = np.asarray([speeds[name] for name in workflow.classes], dtype=np.float64)
    # Rounded up, so that no task gets less than it needs, except for the last bits of the division. A task of no time
    # takes a microsecond: it still needs a core.
    duration = np.maximum(1, np.ceil(runtime * US / speed - 1e-3).astype(np.int64))
    holds = (np.asarray(workflow.cores) <= offer.cores) & (np.asarray(workflow.memory_bytes) <= offer.memory_gb * GIB)
    if workflow.resources:
        holds &= np.asarray([offer.has(needs) for needs in workflow.resources])
    return np.where(holds & (offer.most != 0), duration, NEVER)


def earliest_finish(problem: Problem) -> int:
    """A lower bound of the finish: every task on a machine of its own, requested at once."""
    end = [0] * problem.n
    parents = problem.workflow.graph.parent_rows()
    choices = list(zip(problem.lag, problem.duration, strict=True))
    for task in problem.workflow.graph.order().tolist():
        ready = max((end[p] for p in parents[task]), default=0)
        end[task] = min(max(ready, lag) + duration[task] for lag, duration in choices)
    return max(end, default=0)
