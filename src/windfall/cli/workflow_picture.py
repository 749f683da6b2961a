"""The picture of a workflow: tasks in columns by depth, coloured by state. Touches: the file it writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from windfall.core import dag
from windfall.errors import BadInput

Json = dict[str, Any]
KINDS = (".svg", ".png", ".pdf")
COLOURS = {
    "done": "#4c9a52",
    "running": "#3b7dd8",
    "ready": "#a8cbf0",
    "waiting": "#d9d9d9",
    "blocked": "#f0a63c",
    "failed": "#d1403f",
    "cancelled": "#8a8a8a",
}
MOST_LABELS = 80
MOST_EDGES = 20_000
"""More lines than this are a grey carpet; an even sample shows as much."""


def draw(told: Json, path: str) -> None:
    """Draw a workflow as `GET /v1/jobs/JOB/workflow` describes it."""
    if Path(path).suffix.lower() not in KINDS:
        raise BadInput(f"--plot {path}: the kind of picture is not known", hint=f"end the name in {', '.join(KINDS)}")
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    from windfall.lab.figures import new_figure, save

    tasks = told["tasks"]
    place = layout([task["parents"] for task in tasks])
    columns = max((x for x, _ in place), default=0) + 1
    tallest = max(Counter(x for x, _ in place).values(), default=1)
    width, height = min(24.0, 2.5 + 1.9 * columns), min(24.0, 1.6 + 0.34 * tallest)
    figure, axes = new_figure(width=width, height=height)
    edges = [(place[parent], place[task["task"]]) for task in tasks for parent in task["parents"]]
    axes.add_collection(
        LineCollection(edges[:: len(edges) // MOST_EDGES + 1], colors="#b5b5b5", linewidths=0.6, zorder=1)
    )
    states = [state_of(task) for task in tasks]
    size = 90 if len(tasks) <= MOST_LABELS else max(2, min(60, 40_000 / len(tasks)))
    axes.scatter(*zip(*place, strict=True), s=size, c=[COLOURS[state] for state in states], edgecolors="none", zorder=2)
    if len(tasks) <= MOST_LABELS:
        for task, (x, y) in zip(tasks, place, strict=True):
            axes.annotate(
                _short(task["name"]), (x, y), xytext=(7, 0), textcoords="offset points", va="center", fontsize=7
            )
    counts = Counter(states)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=f"{counts[state]:,} {state}")
        for state, colour in COLOURS.items()
        if counts[state]
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(handles), frameon=False)
    axes.set_title(f"job {told['job']} '{told['name']}': {told['state']}", fontsize=10)
    axes.set_xlim(-0.3, columns - 0.2)
    axes.margins(y=0.05)
    axes.axis("off")
    save(figure, path)


def state_of(task: Json) -> str:
    """The state of a task, with those that wait told apart: for a host, for a parent, for nothing that will come."""
    if task["state"] != "waiting":
        return str(task["state"])
    if task["blocked"]:
        return "blocked"
    return "waiting" if task["parents_left"] else "ready"


def layout(parents: list[list[int]]) -> list[tuple[int, float]]:
    """A place for each task: its depth, and beside that the middle of its parents' places, spread evenly."""
    shape = dag.from_edges(len(parents), ((parent, task) for task, mine in enumerate(parents) for parent in mine))
    depth = [0] * len(parents)
    for task in shape.order():
        depth[task] = 1 + max((depth[parent] for parent in parents[task]), default=-1)
    place: list[tuple[int, float]] = [(0, 0.0)] * len(parents)
    levels: dict[int, list[int]] = {}
    for task, level in enumerate(depth):
        levels.setdefault(level, []).append(task)
    for level in sorted(levels):
        mine = sorted(levels[level], key=lambda task: (_middle(parents[task], place), task))
        for rank, task in enumerate(mine):
            place[task] = (level, (len(mine) - 1) / 2 - rank)
    return place


def _middle(parents: list[int], place: list[tuple[int, float]]) -> float:
    return -sum(place[parent][1] for parent in parents) / len(parents) if parents else 0.0


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:10]}…{name[-10:]}"
