"""A plan as a picture: one row per core of every machine, its boot, its tasks, the deadline. Touches: that file."""

from __future__ import annotations

from typing import Any

from windfall.figures.canvas import new_figure, save
from windfall.planning.workflow.model import US, Problem


def draw(document: dict[str, Any], problem: Problem, path: str) -> None:
    """Draw a published plan: colours are classes of tasks, grey is boot, the pale band is paid time."""
    import matplotlib.pyplot as plt

    offers = {offer.name: offer for offer in problem.offers}
    rows = _rows(document, problem)
    figure, axes = new_figure(width=11, height=max(2.5, min(40.0, 1.4 + 0.24 * len(rows))))
    top = 0
    ticks, labels = [], []
    classes = sorted(set(problem.workflow.classes))
    colour = {name: plt.get_cmap("tab20")(i % 20) for i, name in enumerate(classes)}
    for machine in document["machines"]:
        lanes = [row for row in rows if row[0] == machine["id"]]
        offer = offers[machine["offer"]]
        paid = round(machine["cost_usd"] / offer.price_usd) * offer.cycle_s if offer.price_usd else 0.0
        paid = max(paid, machine["end_s"] - machine["start_s"])
        height = len(lanes)
        axes.broken_barh([(machine["start_s"], paid)], (top, height), facecolors="#eef2f7")
        axes.broken_barh([(machine["start_s"], offer.lag_s)], (top, height), facecolors="#c4c9d0")
        for lane, (_, tasks) in enumerate(lanes):
            for task, task_class in tasks:
                length = task["end_s"] - task["start_s"]
                bar = [(task["start_s"], length)]
                axes.broken_barh(
                    bar, (top + lane + 0.08, 0.84), facecolors=colour[task_class], edgecolor="white", lw=0.4
                )
        ticks.append(top + height / 2)
        labels.append(f"{machine['id']}  {machine['offer']}  ${machine['cost_usd']:.4g}")
        top += height
        axes.axhline(top, color="white", lw=1)
    axes.axvline(problem.deadline / US, color="crimson", lw=1.2)
    axes.set_yticks(ticks, labels, fontsize=7)
    axes.set_ylim(top, 0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from now (red: the deadline; grey: boot; pale: paid)")
    axes.set_title(f"{problem.workflow.name}: ${document['cost_usd']:.4g}, done after {document['makespan_s']:,.0f} s")
    if len(classes) <= 12:
        handles = [plt.Rectangle((0, 0), 1, 1, color=colour[name]) for name in classes]
        axes.legend(handles, [name[-28:] for name in classes], fontsize=6, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def _rows(document: dict[str, Any], problem: Problem) -> list[tuple[str, list[tuple[dict[str, Any], str]]]]:
    """The lanes of each machine: a task takes the first lane that is free, as many as it has cores."""
    known = {name: i for i, name in enumerate(problem.workflow.ids)}
    lanes: dict[str, list[list[tuple[dict[str, Any], str]]]] = {machine["id"]: [] for machine in document["machines"]}
    for task in sorted(document["tasks"], key=lambda task: (task["start_s"], task["end_s"])):
        i = known[task["id"]]
        mine = lanes[task["machine"]]
        for _ in range(problem.workflow.cores[i]):
            free = next((lane for lane in mine if lane[-1][0]["end_s"] <= task["start_s"] + 1e-6), None)
            if free is None:
                free = []
                mine.append(free)
            free.append((task, problem.workflow.classes[i]))
    return [(machine, lane) for machine, mine in lanes.items() for lane in mine]
