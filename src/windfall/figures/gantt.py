"""A plan of a workflow as a picture: machines with their boot, their paid time and their tasks, and the deadline. Pure.

Drawn as the console draws rented machines; colours of tasks are their classes.
"""

from __future__ import annotations

from typing import Any

from windfall.figures.charts import HUES
from windfall.figures.job import show_tick
from windfall.figures.standalone import standalone
from windfall.figures.timeline import Axis, Bar, escaped, rows_chart
from windfall.planning.workflow.model import US, Problem
from windfall.units import show_duration, show_usd

MOST_CLASSES = 12
"""Of more classes the key names none: colours repeat."""


def plan_picture(document: dict[str, Any], problem: Problem) -> str:
    """An SVG document of a published plan; one band a machine, its boot and paid time above its tasks."""
    offers = {offer.name: offer for offer in problem.offers}
    known = {name: i for i, name in enumerate(problem.workflow.ids)}
    classes = sorted(set(problem.workflow.classes))
    hue = {name: f"hue{i % HUES}" for i, name in enumerate(classes)}
    bars: dict[str, list[Bar]] = {machine["id"]: [] for machine in document["machines"]}
    for task in document["tasks"]:
        i = known[task["id"]]
        kind, title = (
            hue[problem.workflow.classes[i]],
            f"{task['id']}: {show_duration(task['end_s'] - task['start_s'])}",
        )
        bars[task["machine"]] += [Bar(task["start_s"], task["end_s"], kind, title)] * problem.workflow.cores[i]
    above, ends = [], [document["makespan_s"]]
    for machine in document["machines"]:
        offer = offers[machine["offer"]]
        paid_s = round(machine["cost_usd"] / offer.price_usd) * offer.cycle_s if offer.price_usd else 0.0
        ready_s, end_s = machine["start_s"] + offer.lag_s, machine["start_s"] + paid_s
        ends.append(max(machine["end_s"], end_s))
        above.append(
            [
                Bar(machine["start_s"], ready_s, "boot", "boots"),
                Bar(ready_s, ends[-1], "idle", f"paid: {show_usd(machine['cost_usd'])}"),
            ]
        )
    groups = [(f"{machine['id']} {machine['offer']}", bars[machine["id"]]) for machine in document["machines"]]
    says = f"{show_usd(document['cost_usd'])}, done after {show_duration(document['makespan_s'])}."
    named = classes if len(classes) <= MOST_CLASSES else []
    key = "".join(
        f'<span><i class="key {kind}"></i>{escaped(name)}</span> '
        for kind, name in [("boot", "boots"), ("idle", "paid for"), *((hue[name], name) for name in named)]
    )
    drawn = rows_chart(groups, Axis(max(ends), problem.deadline / US), show_tick, says, above)
    return standalone(problem.workflow.name, [{"name": says, "html": f"<p>{key}</p>{drawn}", "says": says}])
