"""What it costs to read the outputs of a few tasks of a large job."""

from __future__ import annotations

import sqlite3

from windfall.store.contract import Batch, OutputRow
from windfall.store.sqlite.store import SqliteStore

TASKS = 5000


def test_the_outputs_of_some_tasks_cost_the_same_in_a_small_and_in_a_large_job(tmp_path, monkeypatch):
    """They were looked for from the first row of the job on: calls of an executor became slower with every call."""
    store = SqliteStore(tmp_path)
    sizes = {1: TASKS, 2: 32}
    store.append(Batch(outputs=[OutputRow(job, task, 1, b"x") for job in sizes for task in range(sizes[job])]))
    asked: list[tuple[str, tuple[object, ...]]] = []
    real = store._read

    def noted(sql, values=()):
        asked.append((sql, values))
        return real(sql, values)

    monkeypatch.setattr(store, "_read", noted)
    for job, first in ((2, 0), (1, 0), (1, TASKS // 2), (1, TASKS - 40)):
        tasks = range(first, first + 32)
        assert [row.task for row in store.outputs(job, list(tasks), None, 64)] == list(tasks)
    assert store.outputs(1, [], None, 64) == []
    store.close()
    steps = [steps_of(tmp_path, *each) for each in asked]
    assert max(steps) <= 2 * min(steps), steps


def steps_of(directory, sql: str, values: tuple[object, ...]) -> int:
    """Instructions of SQLite's machine that a query takes."""
    count = 0

    def one() -> int:
        nonlocal count
        count += 1
        return 0

    with sqlite3.connect(directory / "windfall.db") as connection:
        connection.set_progress_handler(one, 1)
        connection.execute(sql, values).fetchall()
    connection.close()
    return count
