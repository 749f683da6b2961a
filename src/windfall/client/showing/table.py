"""Results of a job as a table: one row a task, with parameters, command, host, times and what it used. Pure but for
the files that it writes; pandas and pyarrow are loaded only when they are asked for."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from windfall.client.results import Task
from windfall.errors import BadInput
from windfall.escaping import for_spreadsheet

if TYPE_CHECKING:
    from windfall.client.job import Job

Json = dict[str, Any]
PARAMETER = "parameter"
"""The column of parameters that have no name: a line, or a number of a range."""
BEFORE = ("task", "name")
AFTER = (
    "command", "state", "exit_code", "cause", "attempt", "host", "start_s", "end_s", "run_s", "cpu_s",
    "peak_memory_bytes", "outputs", "stdout", "stderr",
)  # fmt: skip

FROM_HOSTS = ("host", "stdout", "stderr")
"""Columns whose texts come from hosts: in a spreadsheet none of them may be a formula."""


def rows(job: Job, tasks: Iterable[Task] | None = None) -> Iterator[Json]:
    """One dictionary for each ended task (or each of `tasks`), in the order of the columns."""
    commands = {task: (command, params) for task, command, params in job.commands()}
    used = {(task, attempt): (cpu_s, rss) for task, attempt, cpu_s, rss in job.usage()}
    for task in job.results() if tasks is None else tasks:
        command, params = commands.get(task.task, ("", None))
        yield row(task, command, params, used.get((task.task, task.attempt or 0)))


def row(task: Task, command: str, params: str | Json | None, used: tuple[float, int] | None) -> Json:
    """A row: `task`, `name` (of a workflow's task), its parameters by name, then the columns `AFTER`."""
    timed = task.start_s is not None and task.end_s is not None
    found: Json = {"task": task.task, **({"name": task.name} if task.name else {}), **columns_of(params)}
    return found | {
        "command": command,
        "state": task.state,
        "exit_code": task.exit_code,
        "cause": task.cause,
        "attempt": task.attempt,
        "host": task.host,
        "start_s": task.start_s,
        "end_s": task.end_s,
        "run_s": task.end_s - task.start_s if timed else None,
        "cpu_s": used[0] if used else None,
        "peak_memory_bytes": used[1] or None if used else None,
        "outputs": [output[0] for output in task.outputs],
        "stdout": task.stdout,
        "stderr": task.stderr,
    }


def columns_of(params: str | Json | None) -> Json:
    """Parameters as columns. One whose name is taken by a column of ours gets `parameter_` in front."""
    if params is None:
        return {}
    named = params if isinstance(params, dict) else {PARAMETER: params}
    return {f"{PARAMETER}_{name}" if name in (*BEFORE, *AFTER) else name: value for name, value in named.items()}


def write_csv(found: Iterable[Json], file: IO[str]) -> int:
    """A CSV file with a header; names of output files are separated by semicolons. Returns the number of rows."""
    writer: Any = None
    count = 0
    for each in found:
        count += 1
        if writer is None:
            writer = csv.DictWriter(file, list(each), lineterminator="\n")
            writer.writeheader()
        said = {name: for_spreadsheet(each[name]) for name in FROM_HOSTS if each.get(name)}
        writer.writerow(each | said | {"outputs": for_spreadsheet(";".join(each["outputs"]))})
    if writer is None:
        csv.writer(file, lineterminator="\n").writerow([BEFORE[0], *AFTER])
    return count


def write_json(found: Iterable[Json], file: IO[str]) -> int:
    """A JSON array with an object for each row, as `pandas.read_json` reads it. Returns the number of rows."""
    count = 0
    for each in found:
        file.write(("[\n" if count == 0 else ",\n") + json.dumps(each))
        count += 1
    file.write("\n]\n" if count else "[]\n")
    return count


def write_parquet(found: Iterable[Json], path: Path) -> int:
    """A Parquet file. BadInput, with what to install, where pyarrow is absent. Returns the number of rows."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadInput(
            "Parquet files need pyarrow, which is not installed", hint="try: pip install 'windfall[parquet]'"
        ) from None
    listed = list(found)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(listed), path)
    return len(listed)


def to_frame(found: Iterable[Json]) -> Any:
    """A pandas DataFrame. BadInput, with what to install, where pandas is absent."""
    try:
        import pandas
    except ImportError:
        raise BadInput("to_frame() needs pandas, which is not installed", hint="try: pip install pandas") from None
    listed = list(found)
    return pandas.DataFrame(listed, columns=None if listed else [BEFORE[0], *AFTER])
