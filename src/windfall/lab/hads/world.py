"""The experiments of HADS as data: its machines (table 7), jobs (8), scenarios (9) and results (10, 11, figure 4).

Touches nothing. The paper leaves some things open. Here a machine can be hibernated once it is ready (the authors'
emulator stops the tasks of running machines), the boot is billed, the run times of a job lie on a smooth curve through
the minimum, mean and maximum of table 8, and a longer task needs more memory.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from windfall.core.events import PlanProposed
from windfall.core.records import Record
from windfall.planning.contract import ONDEMAND, SPOT, Task
from windfall.planning.offers import Offer
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs.laws import RandomLaw
from windfall.sim.studies.one_bag import CaseResult, poisson, run_bag

AC_S, DEADLINE_S, LAG_S, LIMIT = 900.0, 2100.0, 180.0, 5
TYPES = {
    "c3.large": (2, 3.75, 0.105, 0.0294),
    "c4.large": (2, 3.75, 0.100, 0.0308),
    "c3.xlarge": (4, 7.5, 0.210, 0.0588),
    "c4.xlarge": (4, 7.5, 0.199, 0.0617),
}
# Tasks; run times in seconds and memory in MB: least, mean, most.
JOBS = {
    "J551": (60, (102.0, 198.0, 323.0), (2.85, 4.69, 12.20)),
    "J552": (80, (103.0, 199.0, 322.0), (2.91, 4.71, 13.19)),
    "J553": (100, (107.0, 190.0, 330.0), (2.81, 4.49, 10.86)),
}
SCENARIOS = {"c1": (1.0, 0.0), "c2": (5.0, 0.0), "c3": (1.0, 5.0), "c4": (5.0, 5.0), "c5": (3.0, 2.5)}
# Table 10: machines, makespan (s), cost on spot, cost on demand.
PAPER_10 = {"J551": (3, 1470, 0.29, 0.995), "J552": (4, 1490, 0.41, 1.393), "J553": (4, 1562, 0.47, 1.592)}
# Table 11: hibernations, on-demand machines, makespan (s), cost.
PAPER_11 = {
    "J551": {"c1": (0.67, 1.00, 1646, 0.373), "c2": (2.67, 4.00, 2042, 0.801), "c3": (1.33, 0.67, 1716, 0.360),
             "c4": (2.67, 1.33, 1829, 0.538), "c5": (2.33, 2.00, 1890, 0.560)},
    "J552": {"c1": (2.00, 1.50, 1936, 0.531), "c2": (4.00, 7.50, 1853, 1.550), "c3": (1.00, 0.00, 1497, 0.410),
             "c4": (3.50, 2.00, 2135, 0.727), "c5": (3.50, 3.00, 1926, 0.788)},
    "J553": {"c1": (3.00, 3.00, 1940, 0.740), "c2": (3.50, 6.00, 1885, 1.380), "c3": (0.50, 0.00, 1531, 0.469),
             "c4": (4.00, 3.00, 2132, 1.065), "c5": (3.00, 1.50, 2084, 0.698)},
}  # fmt: skip
PAPER_FIGURE_4_S = {"c1": 1127, "c2": 1430, "c3": 627, "c4": 678, "c5": 805}
QUANTILES = 4000


def offers(known: tuple[float, float] | None = None) -> list[Offer]:
    """Offers of table 7, five machines of each type in each market; `known`: planners are told (k_h, k_r)."""
    rates: dict[str, Any] = {}
    if known is not None:
        rates = {"interruptions_per_h": 3600 * known[0] / DEADLINE_S, "resumes_per_h": 3600 * known[1] / DEADLINE_S}
    return [
        Offer(
            name=f"{name} {market}", cores=cores, memory_gb=memory, price_usd=prices[market == SPOT], cycle_s=AC_S,
            lag_s=LAG_S, market=market, limit=LIMIT, **(rates if market == SPOT else {}),
        )
        for name, (cores, memory, *prices) in TYPES.items()
        for market in (ONDEMAND, SPOT)
    ]  # fmt: skip


def job(name: str) -> list[Task]:
    count, times, memories = JOBS[name]
    return [
        Task(place, seconds, memory_gb=megabytes / 1024)
        for place, (seconds, megabytes) in enumerate(zip(_curve(count, *times), _curve(count, *memories), strict=True))
    ]


def _curve(count: int, least: float, mean: float, most: float) -> list[float]:
    bend = (most - least) / (mean - least) - 1.0
    return [least + (most - least) * (place / (count - 1)) ** bend for place in range(count)]


def supplies(k_h: float, k_r: float, *, in_boot: bool = False, known: bool = False) -> list[Supply]:
    """At most one hibernation, at rate k_h / D while a machine runs (or also boots); it resumes at rate k_r / D."""
    made = poisson(offers((k_h, k_r) if known else None), k_h, k_r, DEADLINE_S)
    if in_boot or not k_h:
        return made
    lives = tuple(LAG_S - math.log(1.0 - place / QUANTILES) * DEADLINE_S / k_h for place in range(QUANTILES))
    life = RandomLaw("seen", values=lives)
    return [replace(s, interruptions_per_h=0.0, life=life) if s.offer.market == SPOT else s for s in made]


def on_demand_prices() -> list[Supply]:
    """Table 10's second baseline: the same schedule, every machine at its on-demand price and never interrupted."""
    dear = {name: prices[0] for name, (_, _, *prices) in TYPES.items()}
    return [
        replace(s, offer=replace(s.offer, price_usd=dear[s.offer.name.split()[0]]))
        for s in poisson(offers(), 0.0, 0.0, DEADLINE_S)
    ]


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """One run as a JSON object."""
    counts = {"to_idle": 0, "to_busy": 0, "to_new": 0, "stolen": 0}

    def keep(record: Record) -> None:
        if isinstance(record.event, PlanProposed) and record.event.job > earlier:
            moves = record.event.plan.moves
            for kind in ("to_idle", "to_busy", "to_new"):
                counts[kind] += getattr(moves, kind) > 0
            counts["stolen"] += moves.thieves

    market, earlier = case.get("market", ""), case.get("after", 0)
    if market == "on-demand prices":
        chosen = on_demand_prices()
    else:
        chosen = supplies(case["k_h"], case["k_r"], in_boot="in boot" in market, known="known" in market)
    outcome = run_bag(job(case["job"]), chosen, DEADLINE_S, case["planner"], case["seed"], keep=keep, earlier=earlier)
    return _row(outcome) | counts


def _row(outcome: CaseResult) -> dict[str, Any]:
    spot = [machine for machine in outcome.machines if machine.market == SPOT]
    sleeps = [(begin, end) for machine in spot for begin, end in machine.sleeps_s]
    finish_s = outcome.finish_s
    return {
        "cost_usd": round(outcome.cost_usd, 6),
        "finish_s": None if finish_s is None else round(float(finish_s), 3),
        "met": outcome.met,
        "spot": len(spot),
        "on_demand": len(outcome.machines) - len(spot),
        "cycles": round(sum(m.cost_usd / price for m, price in _priced(outcome)), 3),
        "hibernations": len(sleeps),
        "woken": sum(end < (finish_s or math.inf) - 1e-6 for _, end in sleeps),
        "asleep_s": round(float(sum(end - begin for begin, end in sleeps)), 3),
        "plans": outcome.plans,
        "given_up": outcome.moved,
    }


def _priced(outcome: CaseResult) -> list[tuple[Any, float]]:
    prices = {offer.name: offer.price_usd for offer in offers()}
    return [(machine, prices[machine.offer]) for machine in outcome.machines]
