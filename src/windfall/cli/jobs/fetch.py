"""`windfall logs` and `windfall results`: output and results of tasks. Touches the terminal and --download files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from windfall.bags.spec import check_relative
from windfall.cli.jobs.command import refuse_endless
from windfall.cli.options import (
    STAY_S,
    Place,
    all_tasks,
    find_task,
    json_option,
    place_options,
    staying_place_options,
    task_names,
)
from windfall.cli.show.output import note, output_file, output_folder, plural, print_json, print_table
from windfall.cli.show.values import shown_value
from windfall.client import Client, Job, Task
from windfall.client.results import cause_text
from windfall.client.showing import table
from windfall.errors import BadInput, WindfallError
from windfall.escaping import as_folder
from windfall.files import replacing
from windfall.units import show_duration

Json = dict[str, Any]
_FOLLOW_S = 10.0
_LOOK_S = 2.0
"""How long `logs` without -f waits for what a running task has written."""


@click.command()
@click.argument("job", default="last")
@click.argument("task", type=task_names, required=False)
@click.option("-f", "--follow", is_flag=True, help="Stay, and print what comes.")
@staying_place_options
@json_option
def logs(job: str, task: list[int | str] | None, follow: bool, place: Place, as_json: bool) -> None:
    """Print the output of a task as it is; without a task, that of all ended tasks, line by line.

    A task's standard output and error go to standard output and error here. JOB.TASK names a task too.

    \b
    Examples:
      windfall logs last 17
      windfall logs last 20-29
      windfall logs sweep.17 -f
      windfall logs last | grep -i warning
    """
    with place.open(patience_s=STAY_S if follow else 0.0) as client:
        one = task[0] if task is not None and len(task) == 1 else None
        found, number = find_task(client, job, one)
        if follow:
            refuse_endless(client, found, place)
            found.check = lambda: refuse_endless(client, found, place)
        if number is not None:
            typed = str(one) if one is not None else job.rpartition(".")[2]
            _print_one(found, number, typed, follow, as_json)
            return
        if task is not None and follow:
            raise BadInput("-f follows one task, or all of them", hint=f"try: windfall logs {job} {task[0]} -f")
        ended = None
        for ended in found.as_completed() if follow else found.results(task, wait=False):
            _print_lines(ended, as_json)
        if ended is None and not as_json:
            note(f"windfall: nothing of job {found.id} '{found.name}' has ended yet; -f waits for it")


def _print_one(job: Job, task: int, typed: str, follow: bool, as_json: bool) -> None:
    """The output of a task, from its beginning; while it runs, as far as it is known. `typed`: what it was called."""
    stdout_at = stderr_at = 0
    attempt: int | None = None
    while True:
        wait_s = (_FOLLOW_S if follow else _LOOK_S) if attempt is not None else 0.0
        part = job.output(task, stdout_from=stdout_at, stderr_from=stderr_at, wait_s=wait_s)
        if attempt is not None and part["attempt"] != attempt:
            if not as_json:
                note(f"-- attempt {part['attempt']} --")
            attempt, stdout_at, stderr_at = part["attempt"], 0, 0
            continue
        # A worker sends what a task writes while somebody looks at it: the first look only asks for it.
        looks = attempt is None and bool(part["attempt"])
        attempt = part["attempt"]
        _write(part, task, as_json)
        # Where the answer begins may lie behind what was asked for: the middle of a long output is not kept.
        stdout_at, stderr_at = part["stdout_at"] + part["n_stdout"], part["stderr_at"] + part["n_stderr"]
        if part["ended"] or not (follow or looks):
            _say_why_silent(part, typed, stdout_at + stderr_at, as_json)
            return


def _say_why_silent(part: Json, task: str, written_bytes: int, as_json: bool) -> None:
    """Of a task that failed without a word: why. To standard error: it is no output of the task."""
    if written_bytes or as_json:
        return
    cause, text = part.get("cause"), part.get("text")
    if part["attempt"] and not part["ended"]:
        note(f"windfall: task {task} runs, and has written nothing yet")
        return
    if cause not in (None, "done"):
        why = cause_text(cause, part.get("exit_code"))
        note(f"windfall: task {task} wrote nothing: {why}" + (f": {text}" if text and text != why else ""))
    elif not part["attempt"]:
        note(f"windfall: task {task} has not started yet")


def _write(part: Json, task: int, as_json: bool) -> None:
    if as_json:
        if part["stdout"] or part["stderr"] or part["ended"]:
            said = {name: part[name].decode(errors="replace") for name in ("stdout", "stderr")}
            why = {name: part.get(name) for name in ("cause", "exit_code", "text")} if part["ended"] else {}
            print_json({"task": task, "attempt": part["attempt"], **said, "ended": part["ended"], **why})
        return
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream.isatty():
            stream.write(part[name].decode(errors="replace"))
        else:
            stream.buffer.write(part[name])
        stream.flush()


def _print_lines(task: Task, as_json: bool) -> None:
    if as_json:
        print_json({"task": task.task, "attempt": task.attempt, "stdout": task.stdout, "stderr": task.stderr})
        return
    for text, to_stderr in ((task.stdout, False), (task.stderr, True)):
        for line in text.splitlines():
            click.echo(f"{task.name or task.task} | {line}", err=to_stderr)
    if not task.ok and not task.stdout and not task.stderr and task.cause:
        why = cause_text(task.cause, task.exit_code) + (f": {task.text}" if task.text else "")
        note(f"windfall: task {task.name or task.task} wrote nothing: {why}")


class WithJsonFile(click.Command):
    """`--json` may name a file: `--json FILE.json`. A word that names none (`--json last`) is an argument as ever."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        found: list[str] = []
        words = iter(args)
        for word in words:
            after = next(words, None) if word == "--json" else None
            if word.startswith("--json=") or (after is not None and _names_json_file(after)):
                found += ["--json-file", after or word.partition("=")[2]]
            else:
                found += [word] if after is None else [word, after]
        return super().parse_args(ctx, found)


def _names_json_file(word: str) -> bool:
    return not word.startswith("-") and word.endswith((".json", ".ndjson", ".jsonl"))


@click.command(cls=WithJsonFile)
@click.argument("job", default="last")
@click.argument("task", type=task_names, nargs=-1)
@click.option("--download", callback=output_folder, metavar="DIR", help="Write output files to DIR/TASK/NAME.")
@click.option(
    "--csv",
    "csv_file",
    callback=output_file,
    metavar="FILE",
    help="Write a table: parameters, command, host, times, exit, output.",
)
@click.option(
    "--parquet", "parquet_file", callback=output_file, metavar="FILE",
    help="The same table as a Parquet file (needs pyarrow).",
)  # fmt: skip
@click.option("--json-file", callback=output_file, metavar="FILE", hidden=True)
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON; --json FILE.json writes the same table to a file.")
def results(
    job: str,
    task: tuple[list[int | str], ...],
    download: str | None,
    csv_file: str | None,
    parquet_file: str | None,
    json_file: str | None,
    place: Place,
    as_json: bool,
) -> None:
    """Show the results of the tasks that have ended. --json prints one line per task, with its whole result.

    --csv, --parquet and --json FILE.json write one row per task with its parameters as columns, to be joined to the
    inputs; --csv - prints the table.

    \b
    Examples:
      windfall results last
      windfall results sweep --json | jq -r 'select(.exit_code == 0).stdout'
      windfall results sweep --csv sweep.csv
      windfall results sweep --json sweep.json
      windfall results sweep --download out/
    """
    if sum(each is not None for each in (download, csv_file, parquet_file, json_file)) > 1:
        raise BadInput("--download, --csv, --parquet and --json FILE are four results", hint="ask for one at a time")
    with place.open(patience_s=5.0) as client:
        found = client.job(job)
        rows = found.results(all_tasks(task) or None, wait=False)
        if download is not None:
            _download(client, rows, Path(download), as_json)
        elif csv_file == "-":
            table.write_csv(table.rows(found, rows), sys.stdout)
        elif file := csv_file or parquet_file or json_file:
            write = table.write_csv if csv_file else table.write_parquet if parquet_file else table.write_json
            _write_table(table.rows(found, rows), write, Path(file), as_json)
        elif as_json:
            _print_lines_of(found, rows)
        else:
            _print_results(found, list(rows))


def _write_table(rows: Iterator[Json], write: Callable[..., int], path: Path, as_json: bool) -> None:
    with replacing(path) as unfinished:
        if write is table.write_parquet:
            count = write(rows, unfinished)
        else:
            with open(unfinished, "w", newline="", encoding="utf-8") as file:
                count = write(rows, file)
    if as_json:
        print_json({"path": str(path), "rows": count})
    else:
        click.echo(f"{path}: {plural(count, 'row')}")


def _print_lines_of(job: Job, rows: Iterable[Task]) -> None:
    """The lines of `results --json`; commands and what was used are asked for once."""
    commands = {task: (command, params) for task, command, params in job.commands()}
    used = {(task, attempt): (cpu_s, rss) for task, attempt, cpu_s, rss in job.usage()}
    for row in rows:
        command, params = commands.get(row.task, ("", None))
        cpu_s, rss_bytes = used.get((row.task, row.attempt or 0), (None, None))
        more = {"command": command, "params": params, "cpu_s": cpu_s, "peak_memory_bytes": rss_bytes or None}
        print_json(result_line(row) | more)


def result_line(task: Task) -> Json:
    """One line of `results --json`. A public contract: docs/reference/cli.md."""
    return {
        "task": task.task,
        **({"name": task.name} if task.name else {}),
        "state": task.state,
        "attempt": task.attempt,
        "exit_code": task.exit_code,
        "stdout": task.stdout,
        "stderr": task.stderr,
        "value": shown_value(task.value_bytes) if task.ok else None,
        "host": task.host,
        "start_s": task.start_s,
        "end_s": task.end_s,
        "outputs": [
            {"name": name, "sha256": sha256, "bytes": size, "mode": mode} for name, sha256, size, mode in task.outputs
        ],
        "stored": [
            {"name": name, "url": url, "bytes": size, "sha256": sha256} for name, url, size, sha256 in task.stored
        ],
        "cause": task.cause,
        "text": task.text,
    }


def _print_results(job: Job, rows: list[Task]) -> None:
    if not rows:
        click.echo(f"job {job.id} '{job.name}': no task has ended yet")
        return
    print_table(
        ["task", "state", "took", "host", "result"],
        (
            [
                row.name or row.task,
                row.state,
                show_duration(row.end_s - row.start_s) if row.end_s else "-",
                row.host or "-",
                _in_short(row),
            ]
            for row in rows
        ),
    )


def _in_short(task: Task) -> str:
    if not task.ok:
        return cause_text(task.cause, task.exit_code) if task.cause else task.state
    if task.is_call:
        value = shown_value(task.value_bytes)
        return "(a Python object)" if isinstance(value, dict) and "pickle" in value else repr(value)[:80]
    lines = task.stdout.strip().splitlines()
    files = f"[{plural(len(task.outputs), 'file')}] " if task.outputs else ""
    return files + ((lines[-1][:80] + (f"   (+{len(lines) - 1:,} lines)" if len(lines) > 1 else "")) if lines else "")


def _download(client: Client, rows: Any, folder: Path, as_json: bool) -> None:
    """Output files below `folder`, one directory a task. Names were checked when they were declared, and are again.

    A file that the server has lost keeps nobody from the others; it is told of, and counts as an error in the end.
    """
    count, lost = 0, 0
    for task in rows:
        for name, sha256, size, mode in task.outputs:
            check_relative(name, f"task {task.task}: output")
            target = folder / as_folder(task.name or str(task.task)) / name
            try:
                _write_file(client, sha256, target, mode)
            except WindfallError as error:
                if error.code not in ("no-such-blob", "damaged-file"):
                    raise
                lost += 1
                note(f"windfall: task {task.name or task.task} has lost its output '{name}': {error.message}")
                continue
            count += 1
            if as_json:
                print_json({"task": task.task, "name": name, "path": str(target), "bytes": size})
    if lost:
        hint = "look on the server: windfall state check --files"
        raise WindfallError(f"{plural(lost, 'file')} could not be fetched; {count} could", hint=hint, code="lost-files")
    if not as_json:
        none = "no output files: declare them with --output, or `outputs` in a job or workflow file"
        click.echo(f"{plural(count, 'file')} in {folder}" if count else none)


def _write_file(client: Client, sha256: str, target: Path, mode: int) -> None:
    client.save_blob(sha256, target)
    try:
        target.chmod(mode & 0o777)
    except OSError as error:
        raise BadInput(f"{target}: {error.strerror}", hint="name another directory: --download DIR") from error
