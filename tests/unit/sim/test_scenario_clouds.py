"""Clouds in scenario files: what is read, and what is refused with which words."""

from __future__ import annotations

import copy
import gzip
import json
import tomllib
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from windfall.cli.simulate.command import simulate
from windfall.cli.simulate.planners import _rows
from windfall.errors import BadInput
from windfall.lab.data import root
from windfall.sim.clouds.market import Market
from windfall.sim.inputs.traces import prices, run_times
from windfall.sim.scenario import change, check, read

SMALL = """
[[cloud]]
name = "east"

[[cloud.offer]]
name = "spot"
market = "spot"
price_usd = 0.03
limit = 4
speeds = { blast = 1.5 }
boot = { law = "uniform", low = "1m", high = "3m" }
interruptions_per_h = 2

[[cloud.offer]]
name = "sure"
price_usd = 0.1

[[bag]]
name = "bag"
tasks = 5
run = "10m"
deadline = "2h"
planner = "hads"
"""
WHERE = Path("/somewhere/my.toml")


def document() -> dict:
    return tomllib.loads(SMALL)


def refusal(changed: dict) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check(changed, WHERE)
    assert "my.toml" in caught.value.message
    return caught.value


def test_a_cloud_is_read_with_its_offers_and_their_defaults():
    cloud = check(document(), WHERE).clouds[0]
    spot, sure = (supply.offer for supply in cloud.supplies)
    assert (spot.pool, spot.market, spot.limit, spot.speed_for("blast"), spot.speed_for("fit")) == (
        "east", "spot", 4, 1.5, 1.0,
    )  # fmt: skip
    assert spot.lag_s == pytest.approx(60 + 0.95 * 120), "planners count on the 95 % quantile of the boot"
    assert spot.interruptions_per_h is None, "how often it is interrupted is for planners to learn"
    assert (sure.market, sure.limit, sure.cycle_s, sure.memory_gb) == ("on-demand", None, 3600.0, inf)
    told = check(change(document(), ["cloud.east.offer.spot.told=true"]), WHERE).clouds[0].supplies[0].offer
    assert told.interruptions_per_h == 2.0


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        (["cloud.heartbat=1s"], "cloud east: there is no key 'heartbat'", "did you mean heartbeat?"),
        (["cloud.poll=0s"], "cloud east: poll and heartbeat must be above zero", "10s"),
        (["cloud.offer.spot.prise_usd=1"], "offer spot: there is no key 'prise_usd'", "did you mean price_usd?"),
        (["cloud.offer.spot.cycle=60"], "offer spot.cycle: 60 cannot be", '"90s"'),
        (["cloud.offer.spot.price_usd=-1"], "offer spot.price_usd: -1 cannot be", "zero or more"),
        (["cloud.offer.spot.cores=0"], "cores, speed and cycle must be above zero", "cores = 2"),
        (["cloud.offer.spot.market=stock"], "offer spot.market: 'stock' cannot be", '"on-demand" or "spot"'),
        (["cloud.offer.spot.when_taken=explode"], "'explode' cannot be", '"terminate" or "stop" or "hibernate"'),
        (["cloud.offer.spot.once=3"], "offer spot.once: 3 cannot be", "true or false"),
        (["cloud.offer.spot.boot=fast"], "offer spot.boot: 'fast' cannot be", "law"),
        (['cloud.offer.spot.life={law="exponential", mean="0s"}'], "mean must be above zero", "memory"),
        (["cloud.offer.spot.speeds={blast=0}"], "offer spot.speeds", "blast = 1.4"),
        (["cloud.offer.sure.interruptions_per_h=1"], "an on-demand machine is never interrupted", 'market = "spot"'),
        (["cloud.offer.spot.series=none.json"], "offer spot.series: there is no file", "existing trace"),
        (["cloud.offer.spot.series=data:x.json"], "needs the folder of traces", "spot-law"),
        (["cloud.offer.spot.prices=none.csv"], "offer spot.prices: there is no file", "existing trace"),
        (["cloud.offer.spot.up=1h"], "offer spot.down: capacity that comes and goes", "30m"),
        (["cloud.offer.sure.name=spot"], "two offers are called 'spot'", "unique"),
        (["bag.planner=genius"], "bag bag.planner: there is no planner 'genius' for bags", "hads"),
        (["bag.planner="], "it has no hosts and no planner that rents machines", "planner ="),
        (["bag.deadline=never"], "bag bag.deadline: a planner needs one", '"6h"'),
        (['bag.clouds=["west"]'], "bag bag.clouds: there is no cloud 'west'", "east"),
        (["bag.clouds=east"], "bag bag.clouds: 'east' cannot be", "in brackets"),
        (["bag.told=lies"], "bag bag.told: 'lies' cannot be", '"each"'),
    ],
)
def test_a_bad_cloud_is_refused_with_file_key_and_what_may_stand_there(changes, said, hint):
    error = refusal(change(document(), changes))
    assert said in error.message and hint in (error.hint or "")


def test_a_price_or_a_price_series_is_needed_and_an_offer_too():
    changed = document()
    del changed["cloud"][0]["offer"][1]["price_usd"]
    assert "the key 'price_usd' is missing" in refusal(changed).message
    changed = document()
    del changed["cloud"][0]["offer"]
    assert "there is no [[cloud.offer]]" in refusal(changed).message
    changed = document()
    changed["bag"][0]["planner"] = "hads"
    del changed["cloud"]
    assert "no [[pool]], no [[cloud]] and no [[site]]" in refusal(changed).message


def test_the_former_name_of_a_key_is_still_read():
    said = {"law": "exponential", "mean": "20m"}
    laws = []
    for name in ("hibernated", "asleep"):
        changed = document()
        changed["cloud"][0]["offer"][0][name] = said
        laws.append(check(changed, WHERE).clouds[0].supplies[0].hibernated)
    assert laws[0] == laws[1] and laws[0].kind == "exponential"


def test_a_series_needs_a_limit_and_excludes_laws_of_capacity(tmp_path):
    (tmp_path / "up.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [1, 0]}')
    where = tmp_path / "my.toml"
    changed = change(document(), ["cloud.offer.spot.series=up.json"])
    assert check(changed, where).clouds[0].supplies[0].ticks is not None
    for more, said in (("limit=0", "a series needs a limit"), ("up=1h", "there is a series already")):
        with pytest.raises(BadInput, match=said):
            check(change(copy.deepcopy(changed), [f"cloud.offer.spot.{more}"]), where)


def test_prices_are_read_by_zone_and_type_and_a_wrong_one_names_those_there(tmp_path):
    (tmp_path / "p.csv").write_text(
        "timestamp,availability_zone,instance_type,usd_per_hour\n"
        "2024-03-01T00:00:00Z,z1,m5,0.10\n2024-03-01T00:30:00Z,z2,m5,9.0\n"
        "2024-03-01T01:00:00Z,z1,m5,0.10\n2024-03-01T02:00:00Z,z1,m5,0.20\n2024-03-01T03:00:00Z,z1,m5,0.10\n"
    )
    found = prices("p.csv", "z1/m5", "here", tmp_path / "my.toml", None)
    assert (found.times_s, found.usd_per_h, found.period_s) == ((0.0, 7200.0, 10800.0), (0.1, 0.2, 0.1), 10800.0)
    with pytest.raises(BadInput, match=r"no prices of z3/m5") as caught:
        prices("p.csv", "z3/m5", "here", tmp_path / "my.toml", None)
    assert "z1/m5, z2/m5" in (caught.value.hint or "")
    (tmp_path / "bad.csv").write_text("timestamp,usd_per_hour\nyesterday,1\n")
    with pytest.raises(BadInput, match="is no price series"):
        prices("bad.csv", "", "here", tmp_path / "my.toml", None)


def test_real_series_of_availability_and_prices_are_read_and_every_seed_begins_elsewhere():
    folder = root()
    if folder is None:
        pytest.skip("the traces are not here: set WINDFALL_DATA")
    offer = {
        "name": "m5", "market": "spot", "limit": 2, "cycle": "1h",
        "prices": "data:prices/aws-us-east-1-2024-03_2024-05.csv.gz", "prices_of": "us-east-1a/m5.xlarge",
        "series": "data:spot/skypilot-spot-traces/availability/1-node/aws-02-15-2023/us-east-1c_v100_1.json",
    }  # fmt: skip
    changed = document()
    changed["cloud"][0]["offer"] = [offer]
    supply = check(changed, WHERE, folder).clouds[0].supplies[0]
    markets = [Market(supply, "east", seed) for seed in range(12)]
    assert all(0.01 < market.price_usd(t) < 1.0 for market in markets for t in (0.0, 1e5, 1e6, 1e8))
    assert len({market.price_usd(0.0) for market in markets}) > 1
    assert {market.rent(0.0) is not None for market in markets} == {True, False}


def test_spot_without_its_traces_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "none"))
    with pytest.raises(BadInput) as caught:
        read("spot", data=root())
    assert "spot-law" in (caught.value.hint or "") and "WINDFALL_DATA" in (caught.value.hint or "")
    assert read("spot-law", data=None).clouds


def test_planners_are_compared_over_the_same_seeds(tmp_path):
    (tmp_path / "my.toml").write_text(SMALL)
    arguments = ["planners", str(tmp_path / "my.toml"), "hads", "on-demand", "--seeds", "2", "--jobs", "1"]
    shown = CliRunner().invoke(simulate, arguments, catch_exceptions=False)
    assert "2 of 2" in shown.output and "against hads" in shown.output
    told = CliRunner().invoke(simulate, [*arguments, "--json"], catch_exceptions=False)
    rows = json.loads(told.output)["planners"]
    assert [row["planner"] for row in rows] == ["hads", "on-demand"]
    assert rows[0]["relative"] is None and rows[1]["relative"] is not None


def test_no_interval_of_a_cost_begins_below_nothing():
    made = [SimpleNamespace(cost_usd=usd, turnaround_s=1.0, interrupted=0, met=True, finished=True, bags=[])
            for usd in (0.1, 40.0, 0.2)]  # fmt: skip
    (row,) = _rows({"windfall": made})
    assert row["cost_usd"].low == 0.0 < row["cost_usd"].mean < row["cost_usd"].high


def test_a_run_shows_what_was_planned_what_was_rented_and_draws_the_machines(tmp_path):
    (tmp_path / "my.toml").write_text(SMALL)
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(simulate, [str(tmp_path / "my.toml"), "--report", str(page)], catch_exceptions=False)
    assert shown.exit_code == 0
    heads = [line.split()[0] for line in shown.output.splitlines() if line and not line.startswith(" ")]
    assert {"bag", "pool", "offer", "east/spot", "east/sure"} <= set(heads) and "cost planned" in shown.output
    text = page.read_text()
    assert "Rented machines" in text and "Cost over time" in text


def test_prices_in_a_packed_file_that_ends_early_are_refused(tmp_path):
    packed = gzip.compress(b"timestamp,usd_per_hour\n2024-03-01T00:00:00Z,1\n2024-03-01T01:00:00Z,2\n")
    (tmp_path / "p.csv.gz").write_bytes(packed[:-9])
    with pytest.raises(BadInput, match="is no price series"):
        prices("p.csv.gz", "", "here", tmp_path / "my.toml", None)
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(b"run_s\n3\n4\n")[:-9])
    with pytest.raises(BadInput, match="cannot be read"):
        run_times("r.csv.gz", "here", tmp_path / "my.toml", None)


@pytest.mark.parametrize("price", ["nan", "-1", "1e300"])
def test_odd_prices_in_a_file_are_refused(tmp_path, price):
    rows = f"2024-03-01T00:00:00Z,1\n2024-03-01T01:00:00Z,{price}\n2024-03-01T02:00:00Z,2\n"
    (tmp_path / "p.csv").write_text(f"timestamp,usd_per_hour\n{rows}")
    with pytest.raises(BadInput, match="has a price of"):
        prices("p.csv", "", "here", tmp_path / "my.toml", None)


def test_run_times_without_an_end_are_left_out(tmp_path):
    (tmp_path / "r.csv").write_text("run_s\ninf\nnan\n1e300\n3\n")
    assert run_times("r.csv", "here", tmp_path / "my.toml", None) == (3.0,)


def test_tasks_that_never_end_are_refused_where_machines_are_rented_for_them():
    document = tomllib.loads(SMALL)
    document["bag"][0]["run"] = "never"
    with pytest.raises(BadInput, match="have to end"):
        check(document, Path("my.toml"))
