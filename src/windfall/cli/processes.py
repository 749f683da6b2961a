"""Work in several processes that end with their parent. Touches processes and signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children

from windfall.cli.exits import good_order


@contextmanager
def processes(runs: int, jobs: int | None = None) -> Iterator[Executor | None]:
    """As many processes as there are cores (or `jobs`) and runs; None where that is one: run it here."""
    workers = min(runs, jobs or os.cpu_count() or 1)
    if workers == 1:
        yield None
        return
    before = set(active_children())
    pool = ProcessPoolExecutor(workers, initializer=_leave_signals_to_us)
    try:
        with good_order():
            yield pool
    except BaseException:
        # A run may take minutes: Ctrl-C must not wait for it.
        for process in set(active_children()) - before:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_signals_to_us() -> None:
    """Ignore Ctrl-C, which a terminal sends to the runs as well: the process that started them ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
