"""Workflow and offer files: read, checked, refused with the place. May touch: the files it is given, nothing else.

`read` takes a workflow by its kind (WfFormat JSON or workflow.toml); `offers` reads offers.toml.
"""

from windfall.workflows.read import read
from windfall.workflows.spec import TaskSpec, WorkflowSpec

__all__ = ["TaskSpec", "WorkflowSpec", "read"]
