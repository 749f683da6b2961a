"""Examples of the help that would take minutes, or that stay until they are stopped, begin their work and leave cleanly
at Ctrl-C.

Where OR-tools, an extra, is not installed, `lab workflows` says so and ends with exit code 2; where the real traces are
not, so do the examples that read them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support.commands.help_examples import STAYING, all_examples, is_long, open_scene, prepare
from windfall.lab import data


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    with open_scene(folder) as made:
        yield made
    assert left_running(folder) == [], "an example that was interrupted has left processes behind"


def left_running(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if str(folder) in line]


@pytest.mark.slow
@pytest.mark.parametrize("example", [line for line in all_examples() if is_long(line)])
def test_an_example_that_takes_long_begins_and_can_be_interrupted(scene, example):
    prepare(scene, example)
    line = scene.typed(example).partition(" | ")[0].partition(" > ")[0]
    code, said = scene.interrupted(line)
    lacks_traces = data.root() is None and "WINDFALL_DATA" in said
    may_refuse = STAYING.search(example) or "lab workflows" in example or lacks_traces
    stopped = (0, 130, 2) if may_refuse else (0, 130)
    assert code in stopped, (code, said[-500:])
    assert "Traceback" not in said
