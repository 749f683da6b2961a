"""One run of `windfall lab scs`: a stream of workflows in a fleet, through the engine and the simulated cloud.

Touches nothing. The scenario is made of the same structs that `windfall simulate` reads from a file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from windfall.core.renting import money
from windfall.core.state.renting import fleet
from windfall.lab.scs.load import LAG_S, arrivals_s, world_of_times
from windfall.planning.fleet.bound import least_usd
from windfall.planning.offers import Offer
from windfall.planning.workflow.model import Workflow, make_problem
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs.laws import RandomLaw
from windfall.sim.run import BagOutcome, run
from windfall.sim.scenario import Scenario, check

POOL = "cloud"


def scenario_of(case: dict[str, Any]) -> Scenario:
    """The stream of one case: every job is a copy of one workflow, and arrives when its pattern says."""
    workflow, offers = world_of_times(case["application"], case["set"])
    arrivals = arrivals_s(case["pattern"], case["set"], case["volume"], case["hours"])
    error = case["run_error"]
    document = {
        "server": {"lease": "2h"},
        "cloud": [{
            "name": POOL, "heartbeat": "10m", "poll": "10m", "poll_max": "10m",
            "offer": [{"name": "any", "price_usd": 1.0}],
        }],
        "fleet": [{"name": "stream", "planner": case["planner"]}],
        "bag": [{
            "name": "job", "tasks": len(workflow.ids), "run": "1s", "told": "each", "copies": max(1, len(arrivals)),
            "fleet": "stream",
            "deadline": f"{case['deadline_h'] * 3600:g}s",
            "error": {"law": "normal", "mean": 1.0, "deviation": error} if error else 1.0,
        }],
    }  # fmt: skip
    made = check(document, Path("scs.toml"))
    bag = replace(
        made.bags[0], run_times_s=tuple(workflow.runtime_s), classes_of=tuple(workflow.classes),
        edges=tuple(_edges(workflow)), arrivals_s=tuple(arrivals),
    )  # fmt: skip
    cloud = replace(made.clouds[0], supplies=tuple(_supply(offer, case) for offer in offers))
    return replace(made, bags=(bag,) if arrivals else (), clouds=(cloud,))


def _edges(workflow: Workflow) -> list[tuple[int, int]]:
    return [(task, child) for task in range(len(workflow.ids)) for child in workflow.graph.children_of(task)]


def _supply(offer: Offer, case: dict[str, Any]) -> Supply:
    """Planners are told of 6.5 minutes; boots differ from it as the case says."""
    mean_s = LAG_S * (1 + case["boot_bias"])
    boot = RandomLaw("fixed", {"value": mean_s})
    if case["boot_error"]:
        boot = RandomLaw("normal", {"mean": mean_s, "deviation": LAG_S * case["boot_error"]})
    return Supply(offer=replace(offer, pool=POOL), boot=boot)


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """One run as a JSON object.

    `late`: the numbers of late jobs in the order of their arrival. `types`: by type of machine the dollars that were
    paid, and the part of them for the time in which tasks ran.
    """
    outcome, world = run(scenario_of(case), case["set"])
    machines = list(world.driver.state.fleet.machines.values())
    worked = {machine.id: math.fsum(use.to_s - use.from_s for use in machine.uses) for machine in machines}
    paid = {machine.id: _paid_s(machine, world.driver.now) for machine in machines}
    worked_s, paid_s = math.fsum(worked.values()), math.fsum(paid.values())
    trouble = next((bag.trouble for bag in outcome.bags if bag.trouble), "")
    if trouble:
        raise RuntimeError(f"{case}: {trouble}")
    return {
        "cost_usd": round(outcome.cost_usd, 6),
        "bound_usd": round(len(outcome.bags) * _least_usd(case), 6),
        "jobs": len(outcome.bags),
        "met": sum(bag.met is True for bag in outcome.bags),
        "late": [number for number, bag in enumerate(outcome.bags) if not bag.met],
        "tight": sum(0.0 <= _spare_s(bag) < 0.2 * LAG_S for bag in outcome.bags),
        "utilisation": worked_s / paid_s if paid_s else 0.0,
        "machines": outcome.machines,
        "types": {
            name: [
                round(math.fsum(seconds[each.id] * each.offer.price_usd / each.offer.cycle_s for each in mine), 6)
                for seconds in (paid, worked)
            ]
            for name, mine in _by_type(machines).items()
        },
        "paid_hours": paid_s / 3600,
    }


def _paid_s(machine: fleet.MachineState, now: float) -> float:
    return money.owed_cycles(fleet.tariff_of(machine.offer), machine.meter, now) * machine.offer.cycle_s


def _by_type(machines: list[fleet.MachineState]) -> dict[str, list[fleet.MachineState]]:
    found: dict[str, list[fleet.MachineState]] = {}
    for machine in machines:
        found.setdefault(machine.offer.name, []).append(machine)
    return dict(sorted(found.items()))


def _spare_s(bag: BagOutcome) -> float:
    return -1.0 if bag.turnaround_s is None or bag.deadline_s is None else bag.deadline_s - bag.turnaround_s


def _least_usd(case: dict[str, Any]) -> float:
    workflow, offers = world_of_times(case["application"], case["set"])
    return least_usd(make_problem(workflow, offers, case["deadline_h"] * 3600))
