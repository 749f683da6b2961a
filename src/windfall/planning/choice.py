"""Which planner plans a job: those of bags and those of workflows by name, behind one interface. Pure."""

from __future__ import annotations

from difflib import get_close_matches

from windfall.errors import BadInput
from windfall.planning import registry as bags
from windfall.planning.contract import Planner
from windfall.planning.workflow.live import WorkflowPlanner
from windfall.planning.workflow.planners import NAMES as WORKFLOW_NAMES

DEFAULT = bags.DEFAULT


def known_planner(name: str, is_workflow: bool) -> str:
    """The name of a planner that there is, the default one for no name; or BadInput with what was meant."""
    known = WORKFLOW_NAMES if is_workflow else tuple(bags.PLANNERS)
    if (name or DEFAULT) in known:
        return name or DEFAULT
    what, near = "workflows" if is_workflow else "bags", get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"planners of {what} are: {', '.join(known)}"
    raise BadInput(f"there is no planner '{name}' for {what}", hint=hint)


def planner_named(name: str, is_workflow: bool) -> Planner:
    """The planner of that name, which must be known."""
    known = known_planner(name, is_workflow)
    return WorkflowPlanner(known) if is_workflow else bags.PLANNERS[known]
