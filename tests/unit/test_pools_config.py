"""A pools.toml: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import pytest

from windfall.core.overlay import PoolRules
from windfall.errors import BadInput
from windfall.pools.config import read_pools


def read(tmp_path, text: str):
    (tmp_path / "pools.toml").write_text(text)
    return read_pools(tmp_path / "pools.toml")


def test_a_pool_needs_a_name_and_has_defaults_for_the_rest(tmp_path):
    here, volunteers = read(tmp_path, '[[pool]]\nname = "here"\nlimit = 4\n[[pool]]\nname = "home"\nkind = "self"\n')
    assert here.rules == PoolRules("here", "local", 4, 1, 0.0, 60.0, joins_itself=False)
    assert volunteers.rules.joins_itself and here.idle_exit_s == 60.0


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "has no pool in it", "[[pool]]"),
        ("[[pool]]\nlimit = 4\n", "pool 1", ""),
        ('[[pool]]\nname = "a"\nlimits = 4\n', "pool 1 'a': unknown field 'limits'", "did you mean 'limit'?"),
        ('[[pool]]\nname = "a"\nkind = "lokal"\n', "pool 1 'a': there is no kind 'lokal'", 'kind = "local"'),
        ('[[pool]]\nname = "a"\nlimit = "four"\n', "pool 1 'a': limit: expected `int", ""),
        ('[[pool]]\nname = "a"\nlimit = 0\n', "pool 1 'a': limit = 0", "1 to 100000"),
        ('[[pool]]\nname = "a/b"\n', "pool 1 'a/b': not a name", "letters"),
        ('[[pool]]\nname = "a"\nidle_exit = "soon"\n', "pool 1 'a': idle_exit", ""),
        ('[[pool]]\nname = "a"\n[[pool]]\nname = "a"\n', "two pools are called 'a'", ""),
        ("[[pool\n", "is not TOML", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_pool_and_field(tmp_path, text, message, hint):
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text)
    assert "pools.toml" in caught.value.message
    assert message in caught.value.message and hint in caught.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"none\.toml"):
        read_pools(tmp_path / "none.toml")
