"""The graph of a workflow as SVG within a page: tasks in columns by depth, or its steps where there are many. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from windfall.api.answers import Picture
from windfall.figures.charts import picture
from windfall.figures.standalone import standalone
from windfall.figures.timeline import escaped
from windfall.figures.workflow import MOST_TASKS, Place, layout, state_of, steps_of
from windfall.workflows.wfformat import class_of

Json = dict[str, Any]
STATES = ("done", "running", "ready", "waiting", "blocked", "failed", "cancelled")
MARGIN, WIDE = 24.0, 760.0
LABELLED = 60


def graph_picture(told: Mapping[str, Any]) -> Picture:
    """A workflow as `GET /v1/jobs/JOB/workflow` describes it: `name`, `html` and `says`."""
    tasks = told["tasks"]
    counts = Counter(map(state_of, tasks))
    says = (
        f"{len(tasks):,} tasks: " + ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state]) + "."
    )
    key = "".join(f'<span><i class="key is-{state}"></i>{state}</span> ' for state in STATES if counts[state])
    drawn = ""
    if tasks:  # of a workflow that is being submitted there may be none yet
        drawn = _tasks(tasks, says) if len(tasks) <= MOST_TASKS else _steps(tasks, says)
    return {"name": "Graph", "html": f"<p>{key}</p>{drawn}", "says": says}


def graph_document(told: Mapping[str, Any]) -> str:
    """The same as an SVG document."""
    return standalone(f"job {told['job']} '{told['name']}': {told['state']}", [graph_picture(told)])


def _scaled(place: Sequence[Place], row: float, right: float) -> tuple[list[Place], float]:
    """Places in units of the picture, and its height."""
    columns = max(x for x, _ in place)
    top = max(y for _, y in place)
    low = min(y for _, y in place)
    step = (WIDE - 2 * MARGIN - right) / max(columns, 1)
    height = MARGIN * 2 + row * (top - low)
    return [(MARGIN + x * min(step, 190.0), MARGIN + (top - y) * row) for x, y in place], height


def _tasks(tasks: list[Json], says: str) -> str:
    at, height = _scaled(layout([task["parents"] for task in tasks]), 26.0 if len(tasks) <= LABELLED else 12.0, 110.0)
    parts = [
        f'<line class="edge" x1="{at[parent][0]:.1f}" y1="{at[parent][1]:.1f}" x2="{at[task["task"]][0]:.1f}" '
        f'y2="{at[task["task"]][1]:.1f}"/>'
        for task in tasks
        for parent in task["parents"]
    ]
    for task, (x, y) in zip(tasks, at, strict=True):
        state, name = state_of(task), str(task["name"])
        title = escaped(f"{name}: {state}")
        parts.append(
            f'<circle class="is-{state}" cx="{x:.1f}" cy="{y:.1f}" r="{6 if len(tasks) <= LABELLED else 4}">'
            f"<title>{title}</title></circle>"
        )
        if len(tasks) <= LABELLED:
            short = name if len(name) <= 16 else f"{name[:7]}…{name[-7:]}"
            parts.append(f'<text x="{x + 9:.1f}" y="{y - 5:.1f}">{escaped(short)}</text>')
    return picture(parts, height, says)


def _steps(tasks: list[Json], says: str) -> str:
    """A bar a step, in the colours of the states of its tasks."""
    names, place, edges = steps_of(tasks)
    at, height = _scaled(place, 46.0, 120.0)
    number = {name: index for index, name in enumerate(names)}
    counts: list[Counter[str]] = [Counter() for _ in names]
    for task in tasks:
        counts[number[class_of(task["name"])]][state_of(task)] += 1
    parts = [
        f'<line class="edge" x1="{at[parent][0] + 100:.1f}" y1="{at[parent][1]:.1f}" x2="{at[child][0]:.1f}" '
        f'y2="{at[child][1]:.1f}" stroke-width="{0.8 + 0.6 * log10(many):.1f}"/>'
        for (parent, child), many in edges.items()
    ]
    for name, (x, y), states in zip(names, at, counts, strict=True):
        total, left = sum(states.values()), x
        for state in STATES:
            width = 100.0 * states[state] / total
            if width:
                parts.append(
                    f'<rect class="is-{state}" x="{left:.1f}" y="{y - 7:.1f}" width="{width:.1f}" height="14">'
                    f"<title>{escaped(name)}: {states[state]:,} {state}</title></rect>"
                )
            left += width
        short = name if len(name) <= 22 else f"{name[:10]}…{name[-10:]}"
        parts.append(f'<text x="{x:.1f}" y="{y - 11:.1f}">{escaped(short)} {total:,}</text>')
    return picture(parts, height, says)
