"""The planners of bags by name, as scenarios choose them. Pure."""

from __future__ import annotations

from windfall.planning import hads_dynamic
from windfall.planning.contract import Plan, Planner, Snapshot


class _Hads:
    names_tasks = True

    def __init__(self, settings: hads_dynamic.Settings) -> None:
        self._settings = settings

    def __call__(self, snapshot: Snapshot) -> Plan:
        return hads_dynamic.replan(snapshot, self._settings)


PLANNERS: dict[str, Planner] = {
    "hads": _Hads(hads_dynamic.Settings()),
    "hads-as-printed": _Hads(hads_dynamic.AS_PRINTED),
}
