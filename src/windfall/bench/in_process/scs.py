"""`windfall bench scs`: how long one control loop of SCS takes, for 10 to 100,000 workflows. Touches: a clock."""

from __future__ import annotations

import json
import time
from typing import Any

import click
import numpy as np

from windfall.graph import from_edges
from windfall.planning.offers import Offer
from windfall.planning.stream.classes import JobClass, assigned_to_all
from windfall.planning.stream.control import Market, Rented, Rules, control
from windfall.planning.workflow.model import Workflow

NOW_S, LAG_S = 10_000.0, 390.0


@click.command("scs")
@click.option("--jobs", default=100_000, show_default=True, help="The largest number of workflows in flight.")
@click.option("--classes", default=100, show_default=True, help="Job classes, each a random hybrid graph.")
@click.option("--types", default=16, show_default=True, help="Machine types.")
@click.option("--repeat", default=5, show_default=True, help="Loops measured for each size; the median counts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(jobs: int, classes: int, types: int, repeat: int, as_json: bool) -> None:
    """Measure one SCS control loop: deadlines looked up again for every job, load vectors, scaling, consolidation, EDF.

    The floor is one sort of all deadlines with numpy: no scheduler that examines every task is faster.

    \b
    Example:
      windfall bench scs --jobs 100000 --classes 100 --types 16
    """
    document = {"classes": classes, "types": types, "rows": measure_all(jobs, classes, types, repeat)}
    click.echo(json.dumps(document) if as_json else _screen(document))


def measure_all(jobs: int, classes: int, types: int, repeat: int) -> list[dict[str, Any]]:
    """One row per power of ten up to `jobs`."""
    rng = np.random.default_rng(7)
    offers = tuple(_offer(i, rng) for i in range(types))
    shapes = [_job_class(i, offers, rng) for i in range(classes)]
    sizes = [10**power for power in range(1, 10) if 10**power < jobs]
    return [measure(size, shapes, offers, rng, repeat) for size in [*sizes, jobs]]


def _offer(i: int, rng: np.random.Generator) -> Offer:
    speed = float(rng.uniform(0.5, 4.0))
    return Offer(name=f"type-{i}", speed=speed, price_usd=float(0.05 * speed * rng.uniform(0.7, 1.6)), lag_s=LAG_S)


def _job_class(i: int, offers: tuple[Offer, ...], rng: np.random.Generator) -> JobClass:
    """A hybrid job: ten tasks, a random graph with forks and joins."""
    n = 10
    edges = [(int(rng.integers(0, t)), t) for t in range(1, n) for _ in range(2)]
    runtime = rng.uniform(60, 600, n).tolist()
    names = [f"s{t}" for t in range(n)]
    workflow = Workflow(f"class-{i}", names, names, runtime, [1] * n, [0] * n, from_edges(n, edges))
    return JobClass(workflow, offers, float(rng.uniform(2.0, 4.0)) * 3600, steps=12)


def measure(
    jobs: int, shapes: list[JobClass], offers: tuple[Offer, ...], rng: np.random.Generator, repeat: int
) -> dict[str, Any]:
    market, durations = _market(offers), np.concatenate([shape.duration_s for shape in shapes])
    cls, done, left_s = _jobs(jobs, shapes, rng)
    rented = _machines(max(1, jobs // 10), len(offers), rng)
    loops, decision = [], None
    for _ in range(repeat):
        began = time.perf_counter()
        waiting, _, _ = assigned_to_all(shapes, cls, done, left_s, NOW_S)
        decision = control(NOW_S, waiting, rented, durations, market, Rules())
        loops.append(time.perf_counter() - began)
    began = time.perf_counter()
    np.sort(waiting.due_s)
    floor = time.perf_counter() - began
    assert decision is not None
    return {
        "jobs": jobs,
        "tasks": len(waiting.kind),
        "machines": len(rented.offer),
        "first_s": loops[0],
        "loop_s": float(np.median(loops[1:] or loops)),
        "floor_sort_s": floor,
        "acquired": int(decision.acquire.sum()),
        "moved": len(decision.moves),
        "started": len(decision.starts),
    }


def _jobs(jobs: int, shapes: list[JobClass], rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Jobs of all ages: the older a job, the more of its tasks are done, in topological order."""
    cls = rng.integers(0, len(shapes), jobs)
    deadline = np.array([shape.deadline_s for shape in shapes])
    age = rng.uniform(0, 0.6, jobs)
    tasks = shapes[0].n
    first = np.zeros((len(shapes), tasks), dtype=np.int64)  # [class, k]: the bits of its first k tasks
    for row, shape in zip(first, shapes, strict=True):
        row[1:] = np.cumsum(1 << np.asarray(shape.workflow.graph.order()[:-1], dtype=np.int64))
    return cls, first[cls, (age * 1.2 * tasks).astype(int)], deadline[cls] * (1 - age)


def _machines(count: int, types: int, rng: np.random.Generator) -> Rented:
    """One machine per ten jobs; 70 % of them are busy."""
    leased_s = NOW_S - rng.uniform(400, 7000, count)
    busy_s = np.where(rng.random(count) < 0.3, 0.0, rng.uniform(0, 600, count))
    return Rented(rng.integers(0, types, count), leased_s, leased_s + LAG_S, NOW_S + busy_s)


def _market(offers: tuple[Offer, ...]) -> Market:
    return Market(
        cycle_s=np.array([offer.cycle_s for offer in offers]),
        lag_s=np.array([offer.lag_s for offer in offers]),
        price_usd=np.array([offer.price_usd for offer in offers]),
        limit=np.full(len(offers), 10**9),
    )


def _screen(document: dict[str, Any]) -> str:
    lines = [
        f"{document['classes']} classes, {document['types']} types",
        f"{'jobs':>9}{'tasks':>11}{'machines':>10}{'first loop':>13}{'one loop':>12}{'us/task':>9}{'sort floor':>13}",
    ]
    for row in document["rows"]:
        each = row["loop_s"] / max(row["tasks"], 1) * 1e6
        lines.append(
            f"{row['jobs']:>9,}{row['tasks']:>11,}{row['machines']:>10,}{row['first_s']:>11.4f} s"
            f"{row['loop_s']:>10.4f} s{each:>9.2f}{row['floor_sort_s']:>11.4f} s"
        )
    return "\n".join(lines)
