"""Settings of all tests: no example is judged by the clock; continuous integration draws the same ones every time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("windfall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("windfall"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "windfall")

# Commands that the tests start keep their byte code, as those of an installed program do: compiling would be two fifths
# of a short one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what runs in its background deaf to Ctrl-C, and nohup deaf to a closed terminal: so would be all that
# the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal the files with processes and slow tests out among the first three quarters of all files.

    Workers take files in this order (--no-loadscope-reorder). Tests that wait and tests that compute run side by side,
    and the last files are short: no worker is left alone with a long one.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waits = {path: "e2e" in path.parts or any(map(is_slow, tests)) for path, tests in files.items()}
    waiting = sorted((path for path in files if waits[path]), key=lambda path: -sum(map(weight, files[path])))
    computing = sorted((path for path in files if not waits[path]), key=lambda path: -len(files[path]))
    places = {path: 0.75 * number / len(waiting) for number, path in enumerate(waiting)}
    places |= {path: number / len(computing) for number, path in enumerate(computing)}
    items[:] = [item for path in sorted(places, key=lambda path: places[path]) for item in files[path]]


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def weight(item: pytest.Item) -> int:
    """About the seconds that a test with processes takes."""
    return 10 if is_slow(item) else 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write what failed to the file that WINDFALL_FAILED_TESTS names, a test a line: see .ci/run."""
    if (path := os.environ.get("WINDFALL_FAILED_TESTS")) and not os.environ.get("PYTEST_XDIST_WORKER"):
        reports = [*terminalreporter.stats.get("failed", []), *terminalreporter.stats.get("error", [])]
        Path(path).write_text("".join(f"{name}\n" for name in dict.fromkeys(report.nodeid for report in reports)))
