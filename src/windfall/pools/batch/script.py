"""What runs on the node: the directives of psij-python, then a few lines that become the worker. Pure text.

psij-python's own script ends in a launcher below a shell: a signal to the job would end that shell, and the batch
system would kill the worker with it. Here the shell is replaced by the worker: signals reach it, it ends in good order.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from windfall.pools.batch.systems import System

BATCH_LOG = "batch.log"
_BODY = """\
# What the node says before the worker begins goes to {log} in the folder of the worker.
cd {folder} || exit 1
# A batch system that was killed may start a job again that has run: once for each start that it counts.
mkdir "started.${job_id}.{restarts}" || {{ echo "job ${job_id} was started before: nothing to do" >&2; exit 0; }}
left=$({seconds_left})
exec ./worker.sh --lifetime "$((left - {notice_s}))"
"""


def directives_of(script: str, system: System) -> list[str]:
    """Directives in a script that psij-python wrote, without those that throw the output away."""
    lines = [line.strip() for line in script.splitlines()]
    return [line for line in lines if line.startswith(system.directive) and not line.endswith("/dev/null")]


def written(
    system: System, directives: Sequence[str], folder: Path, walltime_s: int, notice_s: int, in_array: bool = False
) -> str:
    """The whole script. In an array, `folder` is what the folders of the elements begin with."""
    arrays = system.arrays if in_array else None
    body = _BODY.format(
        folder=shlex.quote(str(folder)) + (f'"${arrays.index}"' if arrays is not None else ""),
        log=BATCH_LOG,
        # Elements get ids of their own when they start: a controller that was killed may give one another id.
        job_id=system.job_id if arrays is None else arrays.id,
        restarts=f"${{{system.restarts}:-0}}" if system.restarts else "0",
        seconds_left=system.seconds_left.format(walltime_s=walltime_s),
        notice_s=notice_s,
    )
    return "\n".join(["#!/bin/sh", *directives, body])


def extra_directives(
    system: System,
    name: str,
    folder: Path,
    notice_s: int,
    native: Sequence[str],
    elements: tuple[int, int] | None = None,
) -> list[str]:
    found = [*system.always]
    if elements is not None and system.arrays is not None:
        found.append(system.arrays.directive.format(name=name, first=elements[0], last=elements[1]))
        folder = folder.with_name(folder.name + system.arrays.output)
    found.append(system.output.format(folder / BATCH_LOG))
    if system.warning and notice_s:
        found.append(system.warning.format(notice_s, minutes=max(1, round(notice_s / 60))))
    return [f"{system.directive} {option}" for option in [*found, *native]]
