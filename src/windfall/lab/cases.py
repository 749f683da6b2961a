"""Many independent cases on all cores, each result kept as it comes, so that a run broken off goes on where it stopped.

Touches: one NDJSON file of results, worker processes, a progress bar on a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Case = dict[str, Any]


def run(what: str, cases: Iterable[Case], work: Callable[[Case], Case], store: Path, jobs: int | None) -> list[Case]:
    """Results in the order of the cases. `work` must be a module's function; its results must be JSON."""
    cases = list(cases)
    store.parent.mkdir(parents=True, exist_ok=True)
    known = _stored(store)
    todo = [case for case in cases if _key(case) not in known]
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress, open(store, "a") as kept:
        bar = progress.add_task(what, total=len(cases), completed=len(cases) - len(todo))
        with ProcessPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
            waiting = {pool.submit(work, case): case for case in todo}
            for done in as_completed(waiting):
                case = waiting[done]
                known[_key(case)] = done.result()
                kept.write(json.dumps({"case": case, "result": known[_key(case)]}) + "\n")
                kept.flush()
                progress.advance(bar)
    return [known[_key(case)] for case in cases]


def _key(case: Case) -> str:
    return json.dumps(case, sort_keys=True)


def _stored(store: Path) -> dict[str, Case]:
    known = {}
    if store.exists():
        for line in store.read_text().splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # the run was broken off in the middle of a line
            known[_key(entry["case"])] = entry["result"]
    return known
