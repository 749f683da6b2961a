"""The picture of a workflow: tasks in columns by depth, coloured by state; of a large one its steps. Touches a file."""

from __future__ import annotations

from collections import Counter
from math import log10
from pathlib import Path
from typing import Any

from windfall import graph as graphs
from windfall.errors import BadInput
from windfall.workflows.wfformat import class_of

Json = dict[str, Any]
Place = tuple[float, float]
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
MOST_TASKS = 400
"""Above this many tasks single tasks cannot be told apart: their steps are drawn instead."""
BAR_WIDTH, BAR_HEIGHT = 0.62, 0.3


def draw(told: Json, path: str) -> None:
    """Draw a workflow as `GET /v1/jobs/JOB/workflow` describes it."""
    if Path(path).suffix.lower() not in KINDS:
        raise BadInput(f"--plot {path}: the kind of picture is not known", hint=f"end the name in {', '.join(KINDS)}")
    from matplotlib.lines import Line2D

    from windfall.figures.canvas import new_figure, save

    tasks = told["tasks"]
    whole = len(tasks) <= MOST_TASKS
    place = layout([task["parents"] for task in tasks]) if whole else steps_of(tasks)[1]
    columns = round(max(x for x, _ in place)) + 1
    tallest = max(Counter(x for x, _ in place).values())
    row_height = 0.34 if whole else 0.8
    figure, axes = new_figure(width=min(24.0, 2.5 + 1.9 * columns), height=min(24.0, 1.6 + row_height * tallest))
    (_draw_tasks if whole else _draw_steps)(axes, tasks, place)
    counts = Counter(map(state_of, tasks))
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=f"{counts[state]:,} {state}")
        for state, colour in COLOURS.items()
        if counts[state]
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(handles), frameon=False)
    axes.set_title(f"job {told['job']} '{told['name']}': {told['state']}", fontsize=10)
    axes.set_xlim(-0.3, columns - 0.2)
    axes.margins(y=0.05 if whole else 0.3)
    axes.axis("off")
    save(figure, path)


def _draw_tasks(axes: Any, tasks: list[Json], place: list[Place]) -> None:
    from matplotlib.collections import LineCollection

    edges = [(place[parent], place[task["task"]]) for task in tasks for parent in task["parents"]]
    axes.add_collection(LineCollection(edges, colors="#b5b5b5", linewidths=0.6, zorder=1))
    size = 90 if len(tasks) <= MOST_LABELS else 40
    colours = [COLOURS[state_of(task)] for task in tasks]
    axes.scatter(*zip(*place, strict=True), s=size, c=colours, edgecolors="none", zorder=2)
    if len(tasks) <= MOST_LABELS:
        look = {"va": "center", "fontsize": 7, "bbox": {"fc": "white", "ec": "none", "alpha": 0.75, "pad": 0.4}}
        for task, at in zip(tasks, place, strict=True):
            axes.annotate(_short(task["name"]), at, xytext=(7, 0), textcoords="offset points", **look)


def _draw_steps(axes: Any, tasks: list[Json], place: list[Place]) -> None:
    """A bar a step, as long as its tasks are one, in the colours of their states."""
    names, _, edges = steps_of(tasks)
    counts: list[Counter[str]] = [Counter() for _ in names]
    number = {name: index for index, name in enumerate(names)}
    for task in tasks:
        counts[number[class_of(task["name"])]][state_of(task)] += 1
    for (parent, child), many in edges.items():
        (x1, y1), (x2, y2) = place[parent], place[child]
        axes.plot([x1 + BAR_WIDTH, x2], [y1, y2], color="#b5b5b5", linewidth=0.6 + 0.6 * log10(many), zorder=1)
    for name, (x, y), states in zip(names, place, counts, strict=True):
        total, left = sum(states.values()), x
        for state, colour in COLOURS.items():
            width = BAR_WIDTH * states[state] / total
            axes.barh(y, width, BAR_HEIGHT, left=left, color=colour, zorder=2)
            left += width
        axes.text(x, y + 0.2, f"{_short(name)}  {total:,}", fontsize=8, va="bottom")


def steps_of(tasks: list[Json]) -> tuple[list[str], list[Place], Counter[tuple[int, int]]]:
    """The steps of a workflow by name, their positions, and the number of edges between each two steps."""
    depth = depths([task["parents"] for task in tasks])
    names = [class_of(task["name"]) for task in tasks]
    first: dict[str, int] = {}
    for name, level in zip(names, depth, strict=True):
        first[name] = min(level, first.get(name, level))
    ordered = sorted(first, key=lambda name: (first[name], name))
    number = {name: index for index, name in enumerate(ordered)}
    columns = {level: column for column, level in enumerate(sorted(set(first.values())))}
    beside = Counter(first.values())
    seen: Counter[int] = Counter()
    place: list[Place] = []
    for name in ordered:
        level = first[name]
        place.append((columns[level], (beside[level] - 1) / 2 - seen[level]))
        seen[level] += 1
    edges = Counter(
        (number[names[parent]], number[name])
        for task, name in zip(tasks, names, strict=True)
        for parent in task["parents"]
        if names[parent] != name
    )
    return ordered, place, edges


def state_of(task: Json) -> str:
    """The state of a task, with those that wait told apart: for a host, for a parent, for nothing that will come."""
    if task["state"] != "waiting":
        return str(task["state"])
    if task["blocked"]:
        return "blocked"
    return "waiting" if task["parents_left"] else "ready"


def depths(parents: list[list[int]]) -> list[int]:
    """The length of the longest chain before each task."""
    shape = graphs.from_edges(len(parents), ((parent, task) for task, mine in enumerate(parents) for parent in mine))
    depth = [0] * len(parents)
    for task in shape.order():
        depth[task] = 1 + max((depth[parent] for parent in parents[task]), default=-1)
    return depth


def layout(parents: list[list[int]]) -> list[Place]:
    """A place for each task: its depth, and beside that the middle of its parents' places, spread evenly."""
    place: list[Place] = [(0, 0.0)] * len(parents)
    levels: dict[int, list[int]] = {}
    for task, level in enumerate(depths(parents)):
        levels.setdefault(level, []).append(task)
    for level in sorted(levels):
        mine = sorted(levels[level], key=lambda task: (_middle(parents[task], place), task))
        for rank, task in enumerate(mine):
            place[task] = (level, (len(mine) - 1) / 2 - rank)
    return place


def _middle(parents: list[int], place: list[Place]) -> float:
    return -sum(place[parent][1] for parent in parents) / len(parents) if parents else 0.0


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:10]}…{name[-10:]}"
