"""What a pool of kind ec2 finds to rent, and its prices, of an API in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from windfall.pools.contract import CREDENTIALS, INVALID, PoolError
from windfall.pools.ec2.catalogue import read_catalogue
from windfall.pools.ec2.market import LATE_S, Market, offers_of, price_moves, priced, read_market
from windfall.pools.ec2.prices import Move
from windfall.pools.ec2.settings import Ec2Settings
from windfall.pools.kinds import PoolConfig


def type_row(name: str, cores: int = 2, memory_gb: int = 4, arm: bool = True, **other: object) -> dict:
    return {
        "InstanceType": name, "VCpuInfo": {"DefaultVCpus": cores}, "MemoryInfo": {"SizeInMiB": memory_gb * 1024},
        "ProcessorInfo": {"SupportedArchitectures": ["arm64" if arm else "x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"], **other,
    }  # fmt: skip


TYPES = [
    type_row("c7g.large"),
    type_row("c7g.xlarge", 4, 8, HibernationSupported=True),
    type_row("c7gn.large"),
    type_row("c5.large", arm=False),
    type_row("g5g.xlarge", 4, 8, GpuInfo={"Gpus": [{"Count": 1}, {"Count": 2}]}),
    type_row("mac2.metal", SupportedUsageClasses=["on-demand"]),
]
ZONES = {"r1": ("r1a", "r1b"), "r2": ("r2a",)}


class FakeRegion:
    """Answers as EC2 does to what the catalogue asks."""

    def __init__(self, name: str, answers: dict[str, object]) -> None:
        self.name, self.answers, self.asked = name, answers, list[tuple[str, dict]]()

    def pages(self, method: str, key: str, **arguments: object) -> object:
        self.asked.append((method, arguments))
        found = self.answers.get(method, [])
        return found(**arguments) if callable(found) else found

    call = pages


def account(**answers: object) -> SimpleNamespace:
    regions = {}
    for name, zones in ZONES.items():
        offered = [{"InstanceType": row["InstanceType"], "Location": zone} for row in TYPES for zone in zones]
        usual = {
            "describe_instance_types": TYPES, "describe_instance_type_offerings": offered,
            "describe_images": [{"Architecture": "arm64"}],
        }  # fmt: skip
        regions[name] = FakeRegion(name, usual | answers)
    listed = FakeRegion("us-east-1", {"get_products": [], **answers})
    return SimpleNamespace(regions=regions, price_list=lambda: listed)


def settings(**other: object) -> Ec2Settings:
    return Ec2Settings(**{"types": ["c7g.*"], "image": "ami-1", **other})


def names(**other: object) -> list[str]:
    found = read_catalogue(account(), settings(**other))
    assert not isinstance(found, PoolError), found
    return list(found)


def test_a_pattern_stands_for_types_in_all_zones_regions_and_markets():
    found = names()
    assert len(found) == 2 * 3 * 2 and "c7g.large:r1b:spot" in found and "c7g.xlarge:r2a:on-demand" in found
    assert not [name for name in found if name.startswith("c7gn")]


def test_types_of_another_architecture_than_the_image_are_left_out():
    assert {name.split(":")[0] for name in names(types=["c*.large"])} == {"c7g.large", "c7gn.large"}


def test_images_may_be_given_by_region_and_architecture():
    by = settings(types=["c7g.large", "c5.large"], image={"x86_64": "resolve:ssm:/x", "r2/arm64": "resolve:ssm:/y"})
    found = read_catalogue(account(), by)
    assert {(each.type.name, each.region, each.image) for each in found.values()} == {
        ("c5.large", "r1", "resolve:ssm:/x"), ("c5.large", "r2", "resolve:ssm:/x"),
        ("c7g.large", "r2", "resolve:ssm:/y"),
    }  # fmt: skip


def test_zones_markets_and_what_can_hibernate_narrow_the_choice():
    assert names(zones=["r1b"], markets=["spot"]) == ["c7g.large:r1b:spot", "c7g.xlarge:r1b:spot"]
    assert names(zones=["r1b"], interruption="hibernate") == [
        "c7g.large:r1b:on-demand", "c7g.xlarge:r1b:spot", "c7g.xlarge:r1b:on-demand",
    ]  # fmt: skip
    assert {name.split(":")[2] for name in names(types=["mac2.*"])} == {"on-demand"}


def test_cores_memory_and_gpus_are_read():
    found = read_catalogue(account(), settings(types=["g5g.*"]))
    assert {(each.type.cores, each.type.memory_gb, each.type.gpus) for each in found.values()} == {(4, 8.0, 3)}


def test_the_first_subnet_of_each_zone_is_used_and_zones_without_one_are_left_out():
    rows = [{"SubnetId": "s2", "AvailabilityZone": "r1a"}, {"SubnetId": "s1", "AvailabilityZone": "r1a"}]
    found = read_catalogue(account(describe_subnets=rows), settings(subnets=["s1", "s2"]))
    assert {(each.zone, each.subnet) for each in found.values()} == {("r1a", "s1")}


def test_nothing_to_rent_is_an_error_that_names_what_was_asked_for():
    found = read_catalogue(account(), settings(types=["z9.*"]))
    assert isinstance(found, PoolError) and found.kind == INVALID and "z9.*" in found.error


@pytest.mark.parametrize("method", ["describe_instance_types", "describe_instance_type_offerings", "describe_images"])
def test_an_error_of_the_api_is_passed_on(method):
    error = PoolError("no", CREDENTIALS)
    assert read_catalogue(account(**{method: error}), settings()) == error


# --- prices ---------------------------------------------------------------------------------------------------------


def history(*rows: tuple[float, str, float]) -> list[dict]:
    return [
        {
            "InstanceType": "c7g.large", "AvailabilityZone": zone, "SpotPrice": str(usd),
            "Timestamp": datetime.fromtimestamp(t, UTC),
        }
        for t, zone, usd in rows
    ]  # fmt: skip


ONE = settings(types=["c7g.large"], zones=["r1a", "r1b"], regions=["r1"], on_demand_prices={"c7g.large": 0.072})


def market(*rows: tuple[float, str, float]) -> Market:
    found = read_market(account(describe_spot_price_history=history(*rows)), ONE, 1000.0, None)
    assert isinstance(found, Market), found
    return found


def test_offers_are_billed_by_the_second_at_the_latest_price():
    pool = PoolConfig("cloud", "ec2", 7, settings=ONE)
    offers = {offer.name: offer for offer in offers_of(pool, market((100.0, "r1a", 0.018), (200.0, "r1a", 0.036)))}
    assert set(offers) == {"c7g.large:r1a:spot", "c7g.large:r1a:on-demand", "c7g.large:r1b:on-demand"}
    spot = offers["c7g.large:r1a:spot"]
    assert spot.price_usd == pytest.approx(1e-5) and (spot.cycle_s, spot.minimum_s, spot.limit) == (1.0, 60.0, 7)
    assert offers["c7g.large:r1b:on-demand"].price_usd == pytest.approx(2e-5)
    assert (spot.free_if_taken_within_s, offers["c7g.large:r1b:on-demand"].free_if_taken_within_s) == (3600.0, 0.0)


def test_moves_of_prices_are_kept_once_for_a_day_with_the_price_in_effect():
    first = market((100.0, "r1a", 0.01), (200.0, "r1a", 0.02))
    later = account(describe_spot_price_history=history((200.0, "r1a", 0.02), (2000.0, "r1b", 0.03)))
    second = priced(later, first, 3000.0)
    assert [(move.since_t, move.usd_per_h) for move in second.moves] == [(100.0, 0.01), (200.0, 0.02), (2000.0, 0.03)]
    assert later.regions["r1"].asked[-1][1]["StartTime"].timestamp() == 1000.0 - LATE_S
    third = priced(later, second, 90_000.0)
    assert [move.since_t for move in third.moves] == [200.0, 2000.0]
    assert price_moves(third)[0].price_usd == pytest.approx(0.02 / 3600)


def test_prices_on_demand_come_from_the_price_list_and_are_asked_for_once():
    terms = {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": "0.0725"}}}}}
    reserved = {"terms": {"Reserved": {}}}
    answers = account(get_products=[reserved, {"terms": {"OnDemand": terms}}])
    asked = settings(types=["c7g.large"], markets=["on-demand"], zones=["r1a", "r1b"])
    found = read_market(answers, asked, 0.0, None)
    assert set(found.on_demand.values()) == {0.0725} and len(answers.price_list().asked) == 1
    again = account()
    assert read_market(again, asked, 0.0, found).on_demand == found.on_demand and again.price_list().asked == []


@pytest.mark.parametrize("error", [None, PoolError("AccessDenied: no", CREDENTIALS)])
def test_a_type_without_a_price_on_demand_is_refused_with_what_to_do(error):
    found = read_market(account(get_products=error or []), settings(types=["c7g.large"]), 0.0, None)
    assert isinstance(found, PoolError)
    for words in ("c7g.large", "pricing:GetProducts", "on_demand_prices", 'markets = ["spot"]'):
        assert words in found.error
    assert error is None or "AccessDenied" in found.error


def test_spot_alone_needs_no_price_list():
    answers = account(
        get_products=PoolError("no", CREDENTIALS), describe_spot_price_history=history((1.0, "r1a", 0.01))
    )
    found = read_market(answers, settings(types=["c7g.large"], markets=["spot"]), 100.0, None)
    assert found.moves == [Move("c7g.large:r1a:spot", 1.0, 0.01)]
