"""Every planner by its name: of bags, of workflows and of fleets, behind one interface. Pure."""

from __future__ import annotations

import math
from difflib import get_close_matches

from windfall.errors import BadInput
from windfall.planning import data
from windfall.planning.at_once import counted
from windfall.planning.bags.rivals import AllSpot, Greedy, UniformProgress
from windfall.planning.bags.windfall import Windfall
from windfall.planning.contract import BAG, FLEET, ONDEMAND, SPOT, WORKFLOW, Plan, Planner, Snapshot
from windfall.planning.fleet import rivals, scs, windfall
from windfall.planning.fleet.model import FleetPlanner
from windfall.planning.gangs import WithGangs
from windfall.planning.hads import dynamic
from windfall.planning.misfits import without_misfits
from windfall.planning.workflow.live import WorkflowPlanner
from windfall.planning.workflow.planners import NAMES as WORKFLOW_NAMES


class Hads:
    """HADS as a `Planner`; it always names the tasks of each machine."""

    names_up_to = math.inf

    def __init__(self, settings: dynamic.Settings) -> None:
        self._settings = settings

    def __call__(self, snapshot: Snapshot) -> Plan:
        return dynamic.replan(without_misfits(counted(data.spread(snapshot))), self._settings)


DEFAULT = "windfall"
_OF_BAGS: dict[str, Planner] = {
    "windfall": Windfall(),
    "hads": Hads(dynamic.Settings()),
    "hads-as-printed": Hads(dynamic.AS_PRINTED),
    "uniform-progress": Windfall(UniformProgress),
    "greedy": Windfall(Greedy),
    "on-demand": Windfall(market=ONDEMAND),
    "spot": Windfall(AllSpot, market=SPOT),
}
PLANNERS: dict[str, Planner] = {
    name: WithGangs(planner, planner.market if isinstance(planner, Windfall) else None)
    for name, planner in _OF_BAGS.items()
}
"""The planners of bags."""
_OF_FLEETS: dict[str, Planner] = {
    "windfall": FleetPlanner(windfall.plan),
    "scs": FleetPlanner(scs.plan),
    "greedy": FleetPlanner(rivals.plan_greedy),
    "gain": FleetPlanner(rivals.plan_gain),
}
FLEET_PLANNERS: dict[str, Planner] = {name: WithGangs(planner, ONDEMAND) for name, planner in _OF_FLEETS.items()}
"""The planners of named fleets."""


def known_planner(name: str, kind: str) -> str:
    """The name itself if a planner has it, the default for an empty name, else BadInput with the nearest name."""
    known = {BAG: tuple(PLANNERS), WORKFLOW: WORKFLOW_NAMES, FLEET: tuple(FLEET_PLANNERS)}[kind]
    if (name or DEFAULT) in known:
        return name or DEFAULT
    what, near = f"{kind}s", get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"planners of {what} are: {', '.join(known)}"
    raise BadInput(f"there is no planner '{name}' for {what}", hint=hint)


def planner_named(name: str, kind: str) -> Planner:
    """The planner of that name for a bag, a workflow or a fleet; raises BadInput as `known_planner` does."""
    known = known_planner(name, kind)
    if kind == WORKFLOW:
        return WorkflowPlanner(known)
    return FLEET_PLANNERS[known] if kind == FLEET else PLANNERS[known]
