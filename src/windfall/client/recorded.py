"""A workflow that has run, gathered from a server and written down in WfFormat. Touches the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.client.results import ENDED
from windfall.errors import BadInput
from windfall.workflows.wfexport import Ran, document, file_sizes

if TYPE_CHECKING:
    from windfall.client.job import Job

Json = dict[str, Any]


def recorded(job: Job) -> Json:
    """The document. BadInput if the job is no workflow, or has not ended."""
    told = job.graph()
    if told["state"] not in ENDED:
        raise BadInput(
            f"job {job.id} '{job.name}' is {told['state']}: it has no measured run times yet",
            hint=f"wait for its end: windfall wait {job.id}",
        )
    ended = {task.task: task for task in job.results()}
    used = {(task, attempt): (cpu_s, rss) for task, attempt, cpu_s, rss in job.usage()}
    cpus = float(job.spec().get("cpus") or 1.0)
    tasks = []
    for row in told["tasks"]:
        number = row["task"]
        rendered = job.render(number)
        own = rendered["overrides"] or {}
        task = ended.get(number)
        ran = task is not None and task.ok
        cpu_s, rss = used.get((number, task.attempt or 0), (None, None)) if task is not None and ran else (None, None)
        tasks.append(
            Ran(
                name=row["name"] or str(number),
                parents=row["parents"],
                argv=rendered["argv"] or [],
                cores=float(own.get("cpus") or cpus),
                inputs=file_sizes(own.get("inputs") or ()),
                outputs=file_sizes(task.outputs) if task is not None and ran else {},
                start_s=task.start_s if task is not None and ran else None,
                end_s=task.end_s if task is not None and ran else None,
                cpu_s=cpu_s,
                memory_bytes=rss,
                host=task.host if task is not None and ran else None,
            )
        )
    hosts = {host["host"]: host["ad"] for host in job.transport.get("/v1/hosts")["hosts"]}
    return document(told["name"], tasks, hosts)
