"""`windfall bench workflow`: workflows in the engine, how time and memory grow with tasks and with instances.

In one process and without a network. Beside it, in the same run, a floor: a walk over the same graph with lists and
counters that decides nothing. Touches the clock of the processor, because the machine may be shared.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import click
import numpy as np

from windfall import graph as graphs
from windfall.bench.harness import report, show
from windfall.core.decisions import HostAnswered
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRules,
    JobSealed,
    JobShaped,
    JobSubmitted,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.state import State
from windfall.wire.messages import CAUSES, DONE

SLOTS = 200
INSTANCE_TASKS = 20
DONE_CODE = CAUSES.index(DONE)


@click.command()
@click.option("--tasks", default=100_000, show_default=True, type=click.IntRange(1000), help="Of the largest workflow.")
@click.option("--instances", default=100_000, show_default=True, type=click.IntRange(100), help="Jobs, in the end.")
@click.option("--classes", default=100, show_default=True, type=click.IntRange(1), help="Shapes that they share.")
@click.option("--seed", default=1, show_default=True, help="Of the graphs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(tasks: int, instances: int, classes: int, seed: int, as_json: bool) -> None:
    """Run one workflow of up to TASKS tasks, and submit up to INSTANCES jobs of CLASSES shapes.

    \b
    Example:
      windfall bench workflow --tasks 100000 --instances 100000
    """
    document: dict[str, Any] = {"bench": "workflow", "tasks": tasks, "instances": instances, "classes": classes}
    for size in sizes(tasks):
        show(f"a workflow of {size:,} tasks")
        for name, value in one_workflow(size, seed).items():
            document.setdefault(f"{name}_us_per_task", {})[size] = round(value, 2)
    for size in sizes(instances):
        show(f"{size:,} instances of {classes:,} classes")
        for name, value in many_instances(size, classes, seed).items():
            document.setdefault(name, {})[size] = round(value, 1)
    show("")
    document["goals"] = "the same time a task and the same bytes an instance, whatever their number"
    report(document, as_json)


def sizes(most: int) -> list[int]:
    return [size for size in (most // 100, most // 10, most) if size]


def graph(tasks: int, seed: int) -> graphs.Graph:
    """A graph in which each task has three parents among the thousand tasks before it (fewer in small graphs)."""
    rng = np.random.default_rng(seed)
    child = np.repeat(np.arange(1, tasks), 3)
    parent = np.maximum(0, child - rng.integers(1, min(1000, tasks // 2) + 1, len(child)))
    return graphs.from_edges(tasks, zip(parent.tolist(), child.tolist(), strict=True))


def one_workflow(tasks: int, seed: int) -> dict[str, float]:
    shape = graph(tasks, seed)
    engine, state = started()
    began = time.process_time()
    submit(engine, state, shape)
    submitted = time.process_time()
    run(engine, state, tasks)
    ran = time.process_time()
    shape.tail([1.0] * tasks)
    ranked = time.process_time()
    floor_s = floor(shape)
    spans = {"submit": submitted - began, "run": ran - submitted, "ranks": ranked - ran, "floor": floor_s}
    return {name: 1e6 * seconds / tasks for name, seconds in spans.items()}


def started() -> tuple[Engine, State]:
    engine, state = Engine(), State()
    engine.step(state, ServerStarted(0.0, Settings()))
    return engine, state


def submit(engine: Engine, state: State, shape: graphs.Graph, name: str = "w") -> None:
    job = state.bags.next
    packed = () if shape.key in state.bags.shapes else (shape.offsets.tobytes(), shape.children.tobytes())
    engine.step(state, JobSubmitted(0.0, JobRules(name, workflow_class=name), [TaskClass()]))
    engine.step(state, JobShaped(0.0, job, shape.key, *packed))
    engine.step(state, TasksAdded(0.0, job, shape.tasks))
    engine.step(state, JobSealed(0.0, job))


def run(engine: Engine, state: State, tasks: int) -> None:
    """Run with one host of many slots that reports all its tasks at each exchange."""
    done = n = 0
    while done < tasks:
        n += 1
        answer = engine.step(state, HostAsked(float(n), "h", "b", n, SLOTS, SLOTS)).decided
        assert isinstance(answer, HostAnswered)
        results = [
            Result(piece.job, task, piece.attempt, DONE_CODE, 0, float(n), float(n))
            for piece in answer.assigned
            for task in range(piece.first, piece.first + piece.count)
        ]
        engine.step(state, ResultsReported(float(n), "h", results))
        done += len(results)


def floor(shape: graphs.Graph) -> float:
    """Seconds to walk the same graph once, with one list per task."""
    children = [shape.children_of(task).tolist() for task in range(shape.tasks)]
    left = shape.parent_counts.tolist()
    began = time.process_time()
    ready = [task for task, count in enumerate(left) if not count]
    for task in ready:
        for child in children[task]:
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    assert len(ready) == shape.tasks
    return time.process_time() - began


def many_instances(count: int, classes: int, seed: int) -> dict[str, float]:
    shapes = [graph(INSTANCE_TASKS, seed + number) for number in range(classes)]
    engine, state = started()
    began = time.process_time()
    for number in range(count):
        submit(engine, state, shapes[number % classes], f"class-{number % classes}")
    spent_s = time.process_time() - began
    sample = min(count, 1000)
    tracemalloc.start()
    for number in range(sample):
        submit(engine, state, shapes[number % classes], f"class-{number % classes}")
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "submit_us_per_instance": 1e6 * spent_s / count,
        "bytes_per_instance": grown_bytes / sample,
        "shapes_kept": len(state.bags.shapes),
    }
