"""One bag on rented machines in virtual time, for laboratories that need thousands of such runs. Touches nothing.

Engine, planner and ledger are those of the live server; the markets are those of `sim.clouds.market`. For the same
seed every planner meets the same interruptions and run times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from windfall.core.events import PlanProposed, SeriesImported, Settings
from windfall.core.records import Record
from windfall.core.state.renting import fleet
from windfall.planning.contract import Planner, Task
from windfall.planning.offers import Offer
from windfall.planning.registry import PLANNERS
from windfall.sim.clouds.cloud import Cloud
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs import schema
from windfall.sim.inputs.laws import RandomLaw, fixed
from windfall.sim.inputs.traces import Series
from windfall.sim.scenario import Bag, Scenario
from windfall.sim.world import World

CLOUD = "cloud"
GIB = 1024**3
BETWEEN_S = 86_400.0
"""Seconds from the submission of one bag to that of the next."""
NOTHING_USD = 1e-6
"""Less than any billing cycle costs: in a scenario a budget of 0 means that there is none."""


class RentedMachine(Struct, frozen=True):
    """One machine of a run, as the engine recorded it. Times are seconds since its bag was submitted."""

    number: int
    offer: str
    market: str
    requested_s: float
    ready_s: float | None
    ended_s: float
    cause: str
    cost_usd: float
    sleeps_s: tuple[tuple[float, float], ...]


class CaseResult(Struct, frozen=True):
    """How a bag ended. `events`: the provider's record, (time, machine, what happened)."""

    cost_usd: float
    finish_s: float | None
    met: bool
    machines: tuple[RentedMachine, ...]
    events: tuple[tuple[float, int, str], ...]
    done: int
    plans: int
    lost: int
    """Attempts lost with reclaimed machines."""
    moved: int
    """Attempts given up on hibernated machines."""
    failed_plans: int = 0
    trouble: str = ""
    """How often the planner failed and the fallback planned instead, and the first error."""


def poisson(offers: Sequence[Offer], k_h: float, k_r: float, over_s: float, once: bool = True) -> list[Supply]:
    """HADS's markets: within `over_s`, a spot machine hibernates k_h times and resumes k_r times on average.

    In the paper's experiments a machine hibernates at most once (`once`).
    """
    hibernated = RandomLaw("exponential", {"mean": over_s / k_r}) if k_r else RandomLaw("never")
    return [
        Supply(
            offer=replace(offer, when_taken="hibernate"), boot=fixed(offer.lag_s),
            interruptions_per_h=3600.0 * k_h / over_s, hibernated=hibernated, once=once,
        )
        if offer.market == "spot"
        else Supply(offer=offer, boot=fixed(offer.lag_s))
        for offer in offers
    ]  # fmt: skip


def traced(offers: Sequence[Offer], series: Mapping[str, Series], begins: float | None = None) -> list[Supply]:
    """Markets that follow availability series, by the name of the offer; offers without one are always available.

    `begins` is the fraction of the series at which runs start; without it each seed starts at another place.
    """
    return [
        Supply(offer=offer, boot=fixed(offer.lag_s), ticks=series.get(offer.name), begins=begins) for offer in offers
    ]


def run_bag(
    tasks: Sequence[Task], supplies: Sequence[Supply], deadline_s: float, planner: str | Planner, seed: int, *,
    error: RandomLaw | None = None, budget_usd: float | None = None, until_s: float | None = None,
    watch: Callable[[str, tuple[int, int, int], float, float, int], None] | None = None,
    keep: Callable[[Record], None] | None = None, save_every_s: float | None = None,
    news: Sequence[SeriesImported] = (), earlier: int = 0,
) -> CaseResult:  # fmt: skip
    """Run a bag with a deadline and a planner, given by name or as a function.

    Planners are told `Task.runtime_s`; `error` is the law of the true run time divided by it (None: exact).
    `save_every_s`: how often tasks that checkpoint save. `news`: series that were imported before. `earlier`: how many
    equal bags have run before in the same state, a day apart; the result is that of the last bag.
    """
    name = planner if isinstance(planner, str) else "given"
    made = scenario_of(tasks, supplies, deadline_s, name, error, budget_usd, until_s, save_every_s, earlier)
    troubles: list[str] = []

    def kept(record: Record) -> None:
        if type(record.event) is PlanProposed and record.event.error:
            troubles.append(record.event.error)
        if keep is not None:
            keep(record)

    world = World(made, seed, kept, watch, PLANNERS.__getitem__ if isinstance(planner, str) else lambda name: planner)
    for event in news:
        world.driver.submit(event)
    world.run()
    return replace(outcome_of(world, 1 + earlier), failed_plans=len(troubles), trouble=troubles[0] if troubles else "")


def budget_of_scenario(budget_usd: float | None) -> float:
    """A budget as the bag of a scenario has it: 0.0 for None, and next to nothing for 0.0."""
    return 0.0 if budget_usd is None else max(budget_usd, NOTHING_USD)


def scenario_of(
    tasks: Sequence[Task], supplies: Sequence[Supply], deadline_s: float, planner: str, error: RandomLaw | None = None,
    budget_usd: float | None = None, until_s: float | None = None, save_every_s: float | None = None, earlier: int = 0,
) -> Scenario:  # fmt: skip
    """A world of one cloud and one bag, or of that bag after some `earlier` ones that are equal to it."""
    renamed = tuple(replace(supply, offer=replace(supply.offer, pool=CLOUD)) for supply in supplies)
    values = schema.read_table({"name": "bag", "run": "0s"}, schema.BAG, "bag")
    classes = {task.task_class for task in tasks}
    checkpoints = {task.checkpoint_mb or 0.0 for task in tasks}
    if len(classes) > 1 or len(checkpoints) > 1:
        raise ValueError("the tasks of a bag are of one class")
    values |= {
        "tasks": len(tasks), "deadline_s": deadline_s, "planner": planner, "budget_usd": budget_of_scenario(budget_usd),
        "told": "each", "task_class": classes.pop(), "checkpoint_mb": checkpoints.pop(), "max_losses": 1000,
        "copies": 1 + earlier, "every": fixed(BETWEEN_S),
    }  # fmt: skip
    if error is not None:
        values["error"] = error
    if save_every_s is not None:
        values["checkpoint_every_s"] = save_every_s
    bag = Bag(
        **values,
        run_times_s=tuple(task.runtime_s for task in tasks),
        memory_bytes_of=tuple(round(task.memory_gb * GIB) for task in tasks),
    )
    return Scenario(
        name="bag", about="", until_s=(until_s or 20 * deadline_s) + earlier * BETWEEN_S,
        settings=Settings(lease_s=inf), planning_s=0.0,
        pools=(), clouds=(Cloud(name=CLOUD, supplies=renamed),), bags=(bag,), outages=(), restarts=(),
    )  # fmt: skip


def outcome_of(world: World, job: int = 1) -> CaseResult:
    """The result of a job of a world. Lost and given up attempts, and the provider's record, are those of all jobs."""
    state, now = world.driver.state, world.driver.now
    bag = state.bags[job]
    mine = [machine for machine in state.fleet.machines.values() if machine.fleet >= job]
    machines = tuple(_machine(machine, bag.submitted_t, now) for machine in mine)
    books = world.provider.books if world.provider else {}
    deadline_s = bag.rules.deadline_s or inf
    finish_s = None if bag.finished_t is None else bag.finished_t - bag.submitted_t
    return CaseResult(
        cost_usd=sum(machine.cost_usd for machine in machines),
        finish_s=finish_s,
        met=finish_s is not None and finish_s <= deadline_s and bag.counts[2] == bag.total,
        machines=machines,
        events=tuple(world.provider.log) if world.provider else (),
        done=bag.counts[2],
        plans=state.fleet.plans[job].plans,
        lost=sum(book.lost for book in books.values()),
        moved=sum(book.cancelled for book in books.values()),
    )


def _machine(machine: fleet.MachineState, begun_t: float, now: float) -> RentedMachine:
    return RentedMachine(
        machine.number, machine.offer.name, machine.offer.market, machine.requested_t - begun_t,
        None if machine.ready_t is None else machine.ready_t - begun_t,
        (now if machine.ended_t is None else machine.ended_t) - begun_t, machine.cause,
        fleet.owed_microusd(machine, now) / 1e6,
        tuple((since - begun_t, (now if until is None else until) - begun_t) for since, until in machine.sleeps),
    )  # fmt: skip
