"""Every example at the end of a page of help is typed into a shell, and does what it says.

Those that take long are in test_long_help_examples.py.
"""

from __future__ import annotations

import pytest

from tests.support.commands.help_examples import all_examples, is_long, open_scene, prepare

CODES = {
    "windfall wait sweep --until failed:1": 1,
    "windfall logs last | grep -i warning": None,
    "windfall pool poke cloud m1 hibernate": 2,
    "windfall pool poke cloud m1 resume": 2,
}
"""Exit codes other than 0: one task of `sweep` has failed, and no machine is rented that could be poked (that is done
in tests/e2e/clouds/test_cloud.py)."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    with open_scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.mark.parametrize("example", [line for line in all_examples() if not is_long(line)])
def test_an_example_of_the_help_can_be_typed(scene, example):
    prepare(scene, example)
    ended = scene.type(scene.typed(example))
    wanted = CODES.get(example, 0)
    assert wanted is None or ended.returncode == wanted, (ended.returncode, ended.stdout[-500:], ended.stderr[-500:])
    assert "Traceback" not in ended.stderr
