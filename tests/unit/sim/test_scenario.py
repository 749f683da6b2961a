"""Scenario files: what is read, what is refused and with which words, and what may be changed."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis.strategies import floats, integers, sampled_from

from windfall.cli.simulate.command import simulate
from windfall.errors import BadInput
from windfall.lab.data import root
from windfall.sim.chance import stream
from windfall.sim.inputs import reference
from windfall.sim.inputs.laws import LAWS, RandomLaw, seen
from windfall.sim.scenario import change, check, library, load_document, read

SMALL = """
[[pool]]
name = "here"
hosts = 3

[[bag]]
name = "bag"
tasks = 5
run = "10m"
"""
WHERE = Path("/somewhere/my.toml")


def document(text: str = SMALL) -> dict:
    return tomllib.loads(text)


def refusal(changed: dict) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check(changed, WHERE)
    assert "my.toml" in caught.value.message
    return caught.value


def test_a_small_scenario_is_read_with_every_default():
    scenario = check(document(), WHERE)
    assert scenario.name == "my" and scenario.pools[0].hosts == 3
    assert scenario.bags[0].run == RandomLaw("fixed", {"value": 600.0})
    assert scenario.settings.lease_s == 60.0 and scenario.pools[0].heartbeat_s == 20.0


@pytest.mark.parametrize("name", library())
def test_every_scenario_of_the_library_can_be_read_and_says_what_it_shows(name):
    assert load_document(name)[0]["about"]
    if "data:" in str(load_document(name)[0]) and root() is None:
        pytest.skip("its trace is not here: set WINDFALL_DATA")
    assert read(name, data=root()).bags


def test_the_library_has_the_promised_scenarios():
    assert {"campus", "volunteers", "spot", "mixed"} <= set(library())


@pytest.mark.parametrize(
    ("key", "value", "said", "hint"),
    [
        ("pool.here.hots", 3, "there is no key 'hots'", "did you mean hosts?"),
        ("pool.here.hosts", -1, "pool here.hosts: -1 cannot be", "a whole number"),
        ("pool.here.stay", 60, "pool here.stay: 60 cannot be", '"90s"'),
        ("pool.here.stay", "60", "pool here.stay: '60' cannot be", '"90s"'),
        ("pool.here.errors", 1.5, "pool here.errors: 1.5 cannot be", "from 0 to 1"),
        ("pool.here.leaves", "explode", "pool here.leaves: 'explode' cannot be", '"kill" or "suspend"'),
        ("pool.here.stay", {"law": "gamma"}, "there is no law 'gamma'", "exponential"),
        ("pool.here.stay", {"law": "exponential"}, "missing or unknown: mean", "memory"),
        ("pool.here.stay", {"law": "uniform", "low": "2h", "high": "1h"}, "is above high", "uniform"),
        ("pool.here.stay", {"law": "exponential", "mean": "0s"}, "mean must be above zero", "exponential"),
        ("pool.here.series", "none.json", "there is no file", "existing trace"),
        ("pool.here.series", "data:none.json", "needs the folder of traces", "WINDFALL_DATA"),
        ("bag.bag.tasks", 0, "a bag has tasks", "tasks = 1000"),
        ("bag.bag.trace", "none.csv", "there is no file", "existing trace"),
        ("bag.bag.policy", {"Rank": "Host.Sped"}, "bag bag.policy: Rank", "Speed"),
        ("bag.bag.policy", {"Rnk": "1"}, "there is no policy 'Rnk'", "did you mean Rank?"),
        ("pool.here.heartbeat", "60s", "1m00s is not below the lease of 1m00s", 'heartbeat = "20s"'),
        ("pool.here.heartbeat", "never", "never is not below the lease of 1m00s", "server.lease"),
        ("server", 3, "server is no table", "[server]"),
        ("sever", {}, "there is no key 'sever'", "did you mean server?"),
    ],
)
def test_a_bad_scenario_is_refused_with_file_key_and_what_may_stand_there(key, value, said, hint):
    changed = document()
    place, *rest = key.split(".")
    if not rest:
        changed[place] = value
    else:
        next(entry for entry in changed[place] if entry["name"] == rest[0])[rest[1]] = value
    error = refusal(changed)
    assert said in error.message and hint in error.hint


def test_a_world_without_hosts_or_without_work_is_refused():
    for missing in ("pool", "bag"):
        changed = document()
        del changed[missing]
        assert f"[[{missing}]]" in refusal(changed).message


def test_two_pools_of_one_name_are_refused():
    changed = document()
    changed["pool"].append(changed["pool"][0])
    assert "called 'here'" in refusal(changed).message


def test_keys_are_set_by_name_for_one_for_all_and_where_there_is_only_one():
    two = document() | {"pool": [{"name": "a", "hosts": 1}, {"name": "b", "hosts": 1}]}
    assert [p["hosts"] for p in change(two, ["pool.a.hosts=7"])["pool"]] == [7, 1]
    assert [p["hosts"] for p in change(two, ["pool.*.hosts=7"])["pool"]] == [7, 7]
    assert change(two, ["bag.tasks=9"])["bag"][0]["tasks"] == 9
    assert change(two, ["server.lease=30s"])["server"]["lease"] == "30s"
    assert change(two, ["bag.policy.Rank=Host.Speed > 1"])["bag"][0]["policy"]["Rank"] == "Host.Speed > 1"
    assert two["bag"][0]["tasks"] == 5, "the document itself stays as it was"
    with pytest.raises(BadInput, match="which pool"):
        change(two, ["pool.hosts=7"])
    with pytest.raises(BadInput, match="sets nothing"):
        change(two, ["pool.a.hosts"])


def test_run_times_come_from_csv_and_swf_files_beside_the_scenario(tmp_path):
    (tmp_path / "runs.csv").write_text("id,run_s\n1,30\n2,45.5\n3,-1\n")
    (tmp_path / "log.swf").write_text("; a comment\n1 0 5 60 1\n2 3 -1 90 1\n")
    where = tmp_path / "my.toml"
    for name, expected in (("runs.csv", (30.0, 45.5)), ("log.swf", (60.0, 90.0))):
        changed = document()
        changed["bag"][0] = {"name": "bag", "trace": name}
        assert check(changed, where).bags[0].run_times_s == expected
    (tmp_path / "runs.csv").write_text("id,seconds\n1,30\n")
    changed["bag"][0] = {"name": "bag", "trace": "runs.csv"}
    with pytest.raises(BadInput, match="no column 'run_s'"):
        check(changed, where)


def test_the_reference_page_is_what_the_code_says():
    page = Path(__file__).parents[3] / "docs" / "reference" / "scenario.md"
    assert page.read_text() == reference.page(), "run python -m windfall.sim.inputs.reference"


@given(sampled_from(sorted(LAWS)), floats(0.001, 0.999), floats(0.001, 0.999))
def test_the_quantile_of_every_law_rises(kind, u, v):
    parameters = {name: {"high": 9.0}.get(name, 2.0) for name in LAWS[kind].parameters}
    quantile = RandomLaw(kind, parameters).quantile()
    assert quantile(min(u, v)) <= quantile(max(u, v))
    assert quantile(u) >= 0


def test_a_law_of_what_was_seen_stays_within_it():
    quantile = seen([3.0, 1.0, 2.0]).quantile()
    assert (quantile(1e-9), quantile(0.5), quantile(1 - 1e-9)) == (pytest.approx(1.0), 2.0, pytest.approx(3.0))


@given(integers(0, 10**6), integers(0, 10**6), integers(0, 50))
def test_chance_is_the_same_whenever_it_is_asked_and_lies_between_0_and_1(seed, a, b):
    assert 0.0 < stream(seed, "x")(a, b) < 1.0
    assert stream(seed, "x")(a, b) == stream(seed, "x")(a, b)


def test_chance_is_spread_evenly_and_purposes_seeds_and_places_differ():
    numbers = [stream(1, "x")(a, b) for a in range(200) for b in range(50)]
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.01
    assert len({round(n, 9) for n in numbers}) > 9990
    pairs = list(pairwise(numbers))
    assert abs(sum((a - 0.5) * (b - 0.5) for a, b in pairs) / len(pairs)) < 0.003
    assert stream(1, "x")(3) != stream(2, "x")(3) != stream(2, "y")(3)


def test_chance_is_the_same_on_every_machine():
    """Recorded once: a change here changes every published result."""
    assert [round(stream(7, "luck")(a, 1), 12) for a in range(3)] == [0.018228928812, 0.669309813364, 0.179119920094]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a scenario"),
        (["campsu"], "did you mean campus?"),
        (["none.toml"], "cannot read none.toml"),
        (["campus", "--seed", "1", "--seeds", "2"], "--seed is one run"),
        (["campus", "--seeds", "2", "--log", "x"], "are of one run"),
        (["campus", "--log", "/dev/null/x"], "a file is in the place of one of its folders"),
        (["--replay", "/nowhere"], "holds no state"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(arguments, said):
    result = CliRunner().invoke(simulate, arguments)
    assert isinstance(result.exception, BadInput) and said in str(result.exception)


@pytest.mark.parametrize(
    "law",
    [
        {"law": "lognormal", "median": 1.0, "sigma": 1e6},
        {"law": "pareto", "least": 1.0, "shape": 1e-9},
        {"law": "weibull", "scale": 1.0, "shape": 1e-9},
    ],
)
def test_a_law_whose_largest_values_are_beyond_every_number_is_refused(law):
    document = {"pool": [{"name": "p", "hosts": 1, "speed": law}], "bag": [{"name": "b", "tasks": 1, "run": "1s"}]}
    with pytest.raises(BadInput, match="have no end"):
        check(document, Path("my.toml"))
