"""Many independent cases on all cores. Each result is stored as it comes, so that an interrupted run can be continued.

A stored result counts only for the version of the code that made it: no table mixes versions.
Touches: one NDJSON file of results, worker processes, a progress bar on a terminal, the handler of SIGTERM meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from windfall.cli.exits import good_order
from windfall.cli.show.output import console
from windfall.lab.version import code_version

Case = dict[str, Any]
LOOK_S = 0.5  # seconds between two checks of a worker process whether its parent still lives


def run(
    what: str, cases: Iterable[Case], work: Callable[[Case], Case], store: Path, jobs: int | None, together: int = 1
) -> list[Case]:
    """Results in the order of the cases. `work` must be a module's function; its results must be JSON.

    `together` neighbours go to one process: `work` may cache what they share.
    """
    cases = list(cases)
    store.parent.mkdir(parents=True, exist_ok=True)
    version = code_version(work.__module__)
    known, outdated = _stored(store, version)
    if outdated := outdated & {_key(case) for case in cases} - known.keys():
        click.echo(f"{what}: {len(outdated):,} stored results are of other versions of the code; run again", err=True)
    todo = [case for case in cases if _key(case) not in known]
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console()) as progress, open(store, "a") as kept:
        bar = progress.add_task(what, total=len(cases), completed=len(cases) - len(todo))
        with closing(_worked_off(todo, work, jobs or os.cpu_count() or 1, together)) as results:
            for case, result in results:
                known[_key(case)] = result
                kept.write(json.dumps({"code": version, "case": case, "result": result}) + "\n")
                kept.flush()
                progress.advance(bar)
    return [known[_key(case)] for case in cases]


def stored(cases: Iterable[Case], work: Callable[[Case], Case], store: Path) -> list[Case]:
    """The cases that have results of this version of the code, each joined with its result, in their order."""
    known, _ = _stored(store, code_version(work.__module__))
    return [case | known[_key(case)] for case in cases if _key(case) in known]


def _worked_off(
    todo: list[Case], work: Callable[[Case], Case], jobs: int, together: int
) -> Generator[tuple[Case, Case], None, None]:
    """The cases with their results, in order of completion. No worker process is left, however it ends."""
    before = set(active_children())
    pool = ProcessPoolExecutor(max_workers=jobs, initializer=end_with_parent)
    try:
        with _ended_by_exception():
            parts = [todo[at : at + together] for at in range(0, len(todo), together)]
            waiting = {pool.submit(_each, work, part): part for part in parts}
            for done in as_completed(waiting):
                yield from zip(waiting[done], done.result(), strict=True)
    except BaseException:
        for worker in set(active_children()) - before:  # shutdown alone would wait for the running cases
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _each(work: Callable[[Case], Case], part: list[Case]) -> list[Case]:
    return [work(case) for case in part]


@contextmanager
def _ended_by_exception() -> Iterator[None]:
    """SIGTERM raises an exception in the block, as Ctrl-C does. Only the main thread can install this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with good_order():
        yield


def end_with_parent() -> None:
    """In a worker process: end when the parent process has ended, even by SIGKILL."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # undo the handler inherited from the parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of the terminal; the parent decides
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _key(case: Case) -> str:
    return json.dumps(case, sort_keys=True)


def _stored(store: Path, version: str) -> tuple[dict[str, Case], set[str]]:
    """The results of this version of the code by case, and the cases that other versions have results of."""
    known: dict[str, Case] = {}
    outdated: set[str] = set()
    for line in store.read_text().splitlines() if store.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # the run was interrupted in the middle of a line
        if entry.get("code") == version:
            known[_key(entry["case"])] = entry["result"]
        else:
            outdated.add(_key(entry["case"]))
    return known, outdated
