"""Which planner plans a job: those of bags and those of workflows by name, behind one interface. Pure."""

from __future__ import annotations

from windfall.errors import BadInput
from windfall.planning import bags
from windfall.planning.contract import Planner
from windfall.planning.workflow.live import WorkflowPlanner
from windfall.planning.workflow.planners import NAMES as WORKFLOW_NAMES

DEFAULT = bags.DEFAULT


def planner_named(name: str, is_workflow: bool) -> Planner:
    """The planner, or BadInput with the names that there are."""
    known = WORKFLOW_NAMES if is_workflow else tuple(bags.PLANNERS)
    if (name or DEFAULT) not in known:
        what = "workflows" if is_workflow else "bags"
        raise BadInput(f"there is no planner '{name}' for {what}", hint=f"there are: {', '.join(known)}")
    return WorkflowPlanner(name or DEFAULT) if is_workflow else bags.PLANNERS[name or DEFAULT]
