"""What was learned of offers is told alike by a server and by the log, and series are imported once."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.support.engine.hand import Hand
from windfall.cli import cli
from windfall.client import Client
from windfall.client.local.server import LocalServer
from windfall.core.events import OffersConfigured
from windfall.core.state.renting.fleet import Seen
from windfall.errors import WindfallError
from windfall.planning.offers import Offer
from windfall.server.queries.at_rest import at_rest
from windfall.server.queries.renting.market import market_rows
from windfall.server.queries.renting.money import offers_told
from windfall.store.location import StateLocation

POOL = {
    "name": "cloud",
    "kind": "emulated",
    "offer": [
        {"name": "spot", "market": "spot", "price_usd": 0.03, "cycle_s": 900},
        {"name": "zone a", "market": "spot", "price_usd": 0.03, "cycle_s": 900},
        {"name": "sure", "price_usd": 0.1, "cycle_s": 900},
    ],
}
SERIES = {"offer": "cloud/spot", "source": "a.json", "digest": "0" * 64, "hours": 100.0, "ends": 50.0}
SUMS = ("sum_usd", "squares_usd", "low_usd", "high_usd")
CELLS = [(4 * 24 + 3, 50.0, 100.0)]


def asking(directory):
    return Client(local=LocalServer(StateLocation(directory), worker=False))


@pytest.fixture
def directory(tmp_path):
    with asking(tmp_path / "state") as client:
        client.add_pools([POOL], str(tmp_path))
    return tmp_path / "state"


def test_an_imported_series_moves_the_rate_and_is_kept_by_the_state(directory):
    with asking(directory) as client:
        before = {row["offer"]: row for row in client.market()}
        assert before["spot"]["launches"] == 0 and before["sure"]["interrupted_per_h"] is None
        client.import_series(SERIES | {"cells": [(4 * 24 + 3, 500.0, 100.0)]})
        after = {row["offer"]: row for row in client.market()}
        assert after["spot"]["interrupted_per_h"] > 3 * before["spot"]["interrupted_per_h"]
        assert after["spot"]["by_age"][4]["ends"] == 500.0 and after["spot"]["by_hour"][3]["up_h"] == 100.0
    resting = at_rest(directory)
    assert resting is not None
    told = {row["offer"]: row for row in resting.market()}["spot"]
    assert told["sources"] == after["spot"]["sources"] and told["by_hour"] == after["spot"]["by_hour"]


def test_imported_prices_are_those_of_a_billing_cycle(directory):
    hour = {"changes": 1, "held_s": 7200.0, "sum_usd": 0.08 * 7200, "squares_usd": 0.0064 * 7200 + 7.2}
    with asking(directory) as client:
        client.import_series(SERIES | {"prices": hour | {"low_usd": 0.04, "high_usd": 0.12}})
        prices = next(row["prices"] for row in client.market() if row["offer"] == "spot")
    assert prices["mean_usd"] == pytest.approx(0.02) and prices["high_usd"] == pytest.approx(0.03)
    assert prices["spread_usd"] == pytest.approx((0.001 / 16) ** 0.5)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (SERIES | {"offer": "cloud/none"}, "no-such-offer"),
        (SERIES | {"offer": "cloud/sure"}, "no-such-offer"),
        (SERIES | {"cells": [(528, 1.0, 1.0)]}, "bad-input"),
        (SERIES | {"cells": [(0, -1.0, 1.0)]}, "bad-input"),
        (SERIES | {"digest": "x"}, "bad-input"),
        (SERIES | {"prices": {"changes": 10, "held_s": 1e-300} | dict.fromkeys(SUMS, 1.0)}, "bad-input"),
    ],
)
def test_what_is_no_series_of_a_spot_offer_is_refused_and_changes_nothing(directory, body, code):
    with asking(directory) as client:
        before = client.market()
        with pytest.raises(WindfallError) as refused:
            client.import_series(body)
        assert refused.value.code == code
        client.import_series(SERIES)
        with pytest.raises(WindfallError) as again:
            client.import_series(SERIES)
        assert again.value.code == "imported-already"
        assert [row["launches"] for row in client.market()] == [row["launches"] for row in before]


def test_prices_of_an_offer_are_shown_after_its_pool_is_gone(directory):
    hour = {"changes": 1, "held_s": 7200.0, "sum_usd": 0.08 * 7200, "squares_usd": 0.0064 * 7200}
    with asking(directory) as client:
        client.import_series(SERIES | {"prices": hour | {"low_usd": 0.04, "high_usd": 0.12}})
        client.remove_pool("cloud", now=True)
    one = CliRunner().invoke(cli, ["market", "show", "cloud/spot", "--state", str(directory)])
    assert one.exit_code == 0 and "prices: $0.02 per cycle on average" in one.output, one.output


def test_the_command_shows_a_state_without_a_server_and_imports_into_it(directory, tmp_path, monkeypatch):
    for name in ("WINDFALL_SERVER", "WINDFALL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    series = tmp_path / "series.json"
    series.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 1, 1, 0, 0, 1] * 50}))
    type_ = ["market", "import", str(series), "--offer", "spot", "--state", str(directory)]
    ended = CliRunner().invoke(cli, [*type_, "--json"])
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.output) == {
        "offer": "cloud/spot", "source": "series.json", "up_h": pytest.approx(200 / 6),
        "interruptions": pytest.approx(50.0), "what": "availability",
    }  # fmt: skip
    one = CliRunner().invoke(cli, ["market", "show", "spot", "--state", str(directory)])
    assert one.exit_code == 0 and "imported: series.json" in one.output and "hours absent" in one.output
    picture = tmp_path / "market.svg"
    drawn = CliRunner().invoke(cli, ["market", "show", "--plot", str(picture), "--state", str(directory)])
    assert drawn.exit_code == 0 and picture.stat().st_size > 1000


def test_the_command_that_an_error_names_can_be_typed_as_it_stands(directory):
    with asking(directory) as client:
        client.import_series(SERIES | {"offer": "cloud/zone a"})
        with pytest.raises(WindfallError) as again:
            client.import_series(SERIES | {"offer": "cloud/zone a"})
        assert again.value.hint == "see it: windfall market show 'cloud/zone a'"


def test_what_is_left_of_a_job_is_planned_with_the_rates_of_market_show():
    hand = Hand()
    spot = Offer(name="spot", price_usd=0.03, market="spot", pool="cloud")
    sure = Offer(name="sure", price_usd=0.1, pool="cloud")
    hand.step(OffersConfigured(hand.t, "cloud", [spot, sure]))
    hand.state.fleet.markets |= {
        spot.key: Seen(reclaimed=6, spells=6, up_s=3600.0),
        sure.key: Seen(up_s=1e7),  # hours on demand say nothing of how often spot is interrupted
    }
    service = SimpleNamespace(state=hand.state, driver=SimpleNamespace(clock=lambda: hand.t))
    told = {offer["name"]: offer["interruptions_per_h"] for offer in offers_told(service, ["cloud"])}
    shown = {row["offer"]: row["interrupted_per_h"] for row in market_rows(hand.state, hand.t)}
    assert told == shown and told["sure"] is None
    assert told["spot"] > 2.0
