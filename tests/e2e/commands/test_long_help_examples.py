"""Examples of the help that would take minutes, or that stay until they are stopped, begin their work and leave cleanly
at Ctrl-C.

Where OR-tools, an extra, is not installed, `lab workflows` says so and ends with exit code 2; where the real traces are
not, so do the examples that read them.
"""

from __future__ import annotations

import time

import pytest

from tests.support.commands.help_examples import STAYING, all_examples, is_long, open_scene, prepare
from tests.support.commands.scene import running_in
from windfall.lab import data


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    with open_scene(folder) as made:
        yield made
    end_s = time.monotonic() + 10
    while (left := running_in(folder)) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert list(left.values()) == [], "an example that was interrupted has left processes behind"


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
