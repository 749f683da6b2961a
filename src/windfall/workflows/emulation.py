"""A recorded workflow without its programs: each task sleeps as long as it ran and writes files of its own. Pure.

For trying out a workflow, a pool or a deadline where neither the programs nor the data are.
"""

from __future__ import annotations

import msgspec

from windfall.errors import BadInput
from windfall.workflows.spec import WorkflowSpec

FILE_BYTES = 64 * 1024
"""Files are as large as recorded, but not larger than this: it is the order that is tried, not the network."""
SCRIPT = """sleep "$1"; shift
while [ $# -gt 0 ]; do
  case "$1" in */*) mkdir -p "${1%/*}";; esac
  { printf '%s\\n' "$1"; head -c "$2" /dev/zero; } > "$1" || exit 1
  shift 2
done"""


def emulated(workflow: WorkflowSpec, time_scale: float) -> WorkflowSpec:
    """The same graph with tasks that need one core and nothing from outside; one second stands for `time_scale`."""
    if not 0 < time_scale <= 1e9:
        raise BadInput(f"--time-scale {time_scale:g}: a factor above 0 is expected", hint="as in: --time-scale 60")
    made = {name for task in workflow.tasks for name in task.outputs}
    tasks = []
    for task in workflow.tasks:
        if task.runtime_s is None:
            hint = "give runtime_s (workflow.toml) or execution.tasks[].runtimeInSeconds (WfFormat)"
            raise BadInput(f"{workflow.source}: {task.place} has no run time to emulate", hint=hint)
        outputs = tuple(dict.fromkeys(inside(name) for name in task.outputs))
        sizes = {inside(name): min(FILE_BYTES, workflow.file_bytes.get(name, 0)) for name in task.outputs}
        files = [word for name in outputs for word in (name, str(sizes[name]))]
        tasks.append(
            msgspec.structs.replace(
                task,
                command=("sh", "-c", SCRIPT, "emulated", f"{task.runtime_s / time_scale:.3f}", *files),
                runtime_s=task.runtime_s / time_scale,
                inputs=tuple(dict.fromkeys(inside(name) for name in task.inputs if name in made)),
                outputs=outputs,
                cores=1,
                memory_bytes=0,
            )
        )
    return msgspec.structs.replace(workflow, tasks=tuple(tasks))


def inside(name: str) -> str:
    """A recorded path as one below the task's directory."""
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")) or "file"
