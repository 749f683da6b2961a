"""A pools.toml: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import pytest

from windfall.core.state.hosts.pools import PoolRules
from windfall.errors import BadInput
from windfall.escaping import for_terminal
from windfall.planning.offers import Offer
from windfall.pools.config import COMMON, read_pool, read_pools
from windfall.pools.emulated.config import STARTS_S, InterruptionLaw, cloud_of
from windfall.pools.kinds import kind_named, kind_names

ROOT = Path(__file__).parents[3]


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
        ('[[pool]]\nname = "a"\nkind = "ssh"\nhosts = "node1"\n', "'a': hosts: expected `array`", 'hosts = ["..."]'),
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


CLOUD = """
[[pool]]
name = "cloud"
kind = "emulated"
time_scale = 60
notice = "2m"
[[pool.offer]]
name = "spot"
market = "spot"
cores = 2
price_usd = 0.03
cycle_s = 3600
lag_s = 120
minimum_s = 60
when_taken = "hibernate"
interruptions_per_h = 2
law = { hibernations_per_h = 2, resumes_per_h = 6 }
"""


def test_a_cloud_is_told_in_real_seconds_and_its_prices_stay(tmp_path):
    (pool,) = read(tmp_path, CLOUD)
    cloud = cloud_of(pool)
    (offer,) = cloud.offers
    assert (offer.key, offer.price_usd, offer.cycle_s, offer.minimum_s) == ("cloud/spot", 0.03, 60.0, 1.0)
    assert offer.lag_s == 2.0 + STARTS_S and cloud.rented[0].boot_s == 2.0
    assert offer.interruptions_per_h == 120.0 and cloud.rented[0].hibernations == pytest.approx(2 * 60 / 3600)
    assert cloud.notice_s == 2.0 and cloud.idle_exit_s == 3600.0


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ('name = "spot"', "offer 1", ""),
        ("time_scale = 60 -> time_scale = 0", "pool 1 'cloud': time_scale = 0", "as in 60"),
        ("price_usd = 0.03 -> price_usd = -1", "pool 1 'cloud': offer 1 'spot': price_usd is -1", "price"),
        ("cores = 2 -> core = 2", "offer 1 'spot' has no field 'core'", "did you mean 'cores'?"),
        ("resumes_per_h = 6 -> resume_per_h = 6", "offer 1 'spot': law: ", "resumes_per_h"),
        ('market = "spot" -> market = "on-demand"', "only spot machines are taken", 'market = "spot"'),
        ('"hibernate" -> "stop"', "when_taken = 'stop'", "hibernate or terminate"),
        ('"hibernate" -> "terminate"', "does not say so", "hibernate"),
        ('notice = "2m" -> notice = "soon"', "pool 1 'cloud': notice", ""),
        ("law = -> #", "", ""),
        ("hibernations_per_h = 2, resumes_per_h = 6 -> trace = 'none.json'", "law: trace: ", "relative to pools.toml"),
        ('kind = "emulated" -> kind = "local"', "unknown field 'time_scale'", 'kind = "emulated" has it'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_cloud_is_named_with_its_offer_and_field(tmp_path, change, message, hint):
    old, _, new = change.partition(" -> ")
    assert old in CLOUD
    text = CLOUD.replace(old, new)
    if not message:
        assert read(tmp_path, text)
        return
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text)
    assert message in caught.value.message and hint in caught.value.hint


def test_a_cloud_that_rents_nothing_or_twice_the_same_is_refused(tmp_path):
    with pytest.raises(BadInput, match="it rents nothing"):
        read(tmp_path, CLOUD.split("[[pool.offer]]")[0])
    with pytest.raises(BadInput, match="two offers are called 'spot'"):
        read(tmp_path, CLOUD + "[[pool.offer]]" + CLOUD.split("[[pool.offer]]")[1])


def test_a_trace_is_read_relative_to_the_file_and_runs_in_the_clouds_time(tmp_path):
    (tmp_path / "t.json").write_text('{"metadata": {"gap_seconds": 300}, "data": [3, 0, 1]}')
    law = "hibernations_per_h = 2, resumes_per_h = 6"
    (pool,) = read(tmp_path, CLOUD.replace(law, "trace = 't.json', trace_from = 1"))
    trace = cloud_of(pool).rented[0].trace
    assert trace.gap_s == 5.0
    assert [trace.at(t) for t in (0.0, 4.9, 5.0, 10.0, 15.0)] == [0, 0, 1, 3, 0], "it begins anew at its end"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"metadata": {}, "data": [1]}', '{"metadata": {"gap_seconds": 1}, "data": []}']
)
def test_a_file_that_is_no_trace_is_named(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    law = "hibernations_per_h = 2, resumes_per_h = 6"
    with pytest.raises(BadInput, match=r"t\.json"):
        read(tmp_path, CLOUD.replace(law, "trace = 't.json'"))


def test_the_examples_that_people_copy_can_be_read(tmp_path):
    page = (ROOT / "docs" / "howto" / "cloud.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    written, example = read(tmp_path, block), read_pools(ROOT / "examples" / "cloud.toml")
    assert [cloud_of(pool) for pool in written] == [cloud_of(pool) for pool in example]


def test_the_page_names_every_field_of_a_law_and_of_a_cloud():
    page = (ROOT / "docs" / "howto" / "cloud.md").read_text()
    said = [
        *InterruptionLaw.__struct_fields__,
        "time_scale",
        "notice",
        "seed",
        "limit",
        "idle_exit",
        *Offer.__struct_fields__,
    ]
    assert [name for name in said if f"`{name}`" not in page and name not in ("pool", "pool_limit")] == []


GARBAGE = (
    None, True, -1, 0, 10**30, -(10**30), 0.5, math.nan, math.inf, -math.inf, "", " ", "x" * 5000, "x" * 40_000, "a\nb",
    "\0", "\x1b[2J", "../..", "*", "[", "-1h", "nan", "1e400", "99999999999h", [], [""], ["*"], ["\0"], [1], [[]], {},
    {"": ""}, {"a": math.nan}, {"a": -1}, {"a": {}}, {"\0": "a"}, [{}], [{"name": "x"}],
)  # fmt: skip


def pools_of_the_pages() -> dict[str, dict]:
    """By kind, the last pool that a how-to shows."""
    found = {"pbs": {"name": "p", "kind": "pbs"}, "lsf": {"name": "p", "kind": "lsf"}}
    for name in ("pools", "ssh", "slurm", "ec2", "kubernetes", "command", "cloud", "site", "openstack"):
        page = (ROOT / "docs" / "howto" / f"{name}.md").read_text()
        for block in re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
            for entry in tomllib.loads(block).get("pool", []) if "[[pool]]" in block else ():
                found[entry.get("kind", "local")] = entry
    return found


@pytest.mark.parametrize("kind", sorted(pools_of_the_pages()))
def test_whatever_stands_in_a_field_is_accepted_or_refused_with_its_pool_and_a_hint(kind, tmp_path):
    entry = pools_of_the_pages()[kind]
    assert read_pool(entry, "pools.toml: pool 1", tmp_path).kind == kind
    for name in (*COMMON, *kind_named(kind).settings.__struct_fields__):
        for value in GARBAGE:
            changed = {key: each for key, each in {**entry, name: value}.items() if each is not None}
            try:
                read = read_pool(changed, "pools.toml: pool 1", tmp_path)
            except BadInput as error:
                assert error.message.startswith("pools.toml: pool 1") and for_terminal(error.message) == error.message
                assert error.hint, error.message
            else:
                assert read.limit is None or 1 <= read.limit <= 100_000
                for seconds in (read.idle_exit_s, read.unreachable_exit_s, read.token_life_s):
                    assert 1 <= seconds <= 10 * 365 * 86400


@pytest.mark.parametrize(
    ("kind", "field", "value", "message", "hint"),
    [
        ("ssh", "hosts", [""], "'' is not a host", "as one types it after `ssh`"),
        ("ec2", "time_limit", "99999999999h", "time_limit = 99999999999h", "at most 10 years"),
        ("ssh", "server", "head:7272", "server = 'head:7272'", 'as in server = "http://head.example.org:7272"'),
        ("slurm", "partition", "\x1b[2Jshort", "partition: a text with a control character", "write it as plain text"),
        ("local", "name", "a/b", "not a name", "letters, digits, '.', '_' and '-', at most 60"),
        ("local", "limit", 0, "limit = 0", "it is a number from 1 to 100000"),
    ],
)
def test_values_that_no_pool_could_use_are_refused_in_words(kind, field, value, message, hint, tmp_path):
    with pytest.raises(BadInput) as raised:
        read_pool({**pools_of_the_pages()[kind], field: value}, "pools.toml: pool 1", tmp_path)
    assert raised.value.message.endswith(message) and raised.value.hint == hint


def test_every_kind_is_shown_by_a_page():
    assert [name for name in kind_names() if name not in pools_of_the_pages()] == ["boinc"]
