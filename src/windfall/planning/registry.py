"""The planners of bags by name: one interface, chosen per job. Pure."""

from __future__ import annotations

import math

from windfall.planning.bags.rivals import AllSpot, Greedy, UniformProgress
from windfall.planning.bags.windfall import Windfall
from windfall.planning.contract import ONDEMAND, SPOT, Plan, Planner, Snapshot
from windfall.planning.hads import dynamic


class Hads:
    """HADS behind the interface of all planners."""

    names_up_to = math.inf

    def __init__(self, settings: dynamic.Settings) -> None:
        self._settings = settings

    def __call__(self, snapshot: Snapshot) -> Plan:
        return dynamic.replan(snapshot, self._settings)


DEFAULT = "windfall"
PLANNERS: dict[str, Planner] = {
    "windfall": Windfall(),
    "hads": Hads(dynamic.Settings()),
    "hads-as-printed": Hads(dynamic.AS_PRINTED),
    "uniform-progress": Windfall(UniformProgress),
    "greedy": Windfall(Greedy),
    "on-demand": Windfall(market=ONDEMAND),
    "spot": Windfall(AllSpot, market=SPOT),
}
