"""What kind `ec2` promises beyond the contract of all pools, against moto's API behind the proxy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.ec2 import IMAGE, ZONE_A, ZONE_B, Cloud
from tests.support.ec2.world import opened, priced_cloud
from windfall.cli import cli
from windfall.errors import BadInput
from windfall.pools.contract import CREDENTIALS, ENDED, PENDING, RUNNING, TRANSIENT, Order, PoolError, Seen
from windfall.pools.ec2.kind import offers_now
from windfall.pools.ec2.pool import Ec2Pool
from windfall.pools.kinds import Place, PoolConfig


@pytest.fixture
def cloud(tmp_path):
    with priced_cloud(tmp_path / "ec2") as made:
        yield made


@pytest.fixture
def open_(cloud, tmp_path) -> Callable[..., Ec2Pool]:
    (tmp_path / "token").write_text("wf_x_y")

    def made(**settings: object) -> Ec2Pool:
        return opened(cloud, Place("http://127.0.0.1:9", tmp_path / "token", tmp_path / "pool", owner="me"), **settings)

    return made


def order(pool: Ec2Pool, number: int = 1, market: str = "spot", zone: str = "") -> Order:
    offer = next(offer for offer in pool.offers if offer.market == market and zone in offer.name)
    return Order(f"p-m{number}", offer.cores, number, offer)


def rows(pool: Ec2Pool) -> list[Seen]:
    found = pool.list()
    assert not isinstance(found, PoolError), found
    return found


def test_an_instance_that_is_not_listed_yet_counts_as_pending(cloud, open_):
    cloud.proxy.visible_after_s = 1e6
    pool = open_()
    id = pool.start(order(pool))
    assert [(row.id, row.phase) for row in rows(pool)] == [(id, PENDING)]
    assert pool.start(order(pool)) == id
    cloud.proxy.visible_after_s = 0.0
    assert [(row.id, row.phase) for row in rows(pool)] == [(id, RUNNING)]


def test_an_order_whose_answer_was_lost_is_found_although_the_token_has_changed(cloud, open_, tmp_path):
    first = open_()
    id = first.start(order(first))
    (tmp_path / "token").write_text("wf_x_z")
    second = open_()
    second._looked, second._rows = True, {}  # it has looked before the first one started
    assert second.start(order(second)) == id
    assert [call.code for call in cloud.proxy.calls_of("RunInstances")] == ["", "IdempotentParameterMismatch"]
    assert len(cloud.proxy.instances) == 1


def test_a_list_tells_the_launch_of_a_machine_whose_start_was_answered_to_another_server(cloud, open_):
    first = open_()
    id = first.start(order(first))
    second = open_()
    assert second.billed_from_t(id) is None
    rows(second)
    assert second.billed_from_t(id) == first.billed_from_t(id) == pytest.approx(time.time(), abs=60)


def test_machines_of_several_regions_are_rented_listed_and_stopped(cloud, open_):
    for region in ("us-east-1", "eu-west-1"):
        cloud.proxy.set_price("c5.large", f"{region}a", 0.05, time.time() - 100)
    pool = open_(
        regions=["us-east-1", "eu-west-1"], zones=["us-east-1a", "eu-west-1a"], markets=["spot"], image="resolve:ssm:/x"
    )
    ids = [pool.start(order(pool, number, zone=zone)) for number, zone in enumerate(("us-east-1a", "eu-west-1a"), 1)]
    assert [(row.id, row.phase) for row in rows(pool)] == [(id, RUNNING) for id in ids]
    assert [pool.stop(id) for id in ids] == [None, None]
    assert {row.phase for row in rows(pool)} == {ENDED} and cloud.proxy.running() == []


def test_machines_start_by_a_launch_template_and_only_those_of_the_architecture_of_its_image(cloud, open_):
    import boto3

    client = boto3.client("ec2", region_name="us-east-1", endpoint_url=cloud.proxy.url)
    client.create_launch_template(LaunchTemplateName="base", LaunchTemplateData={"ImageId": IMAGE})
    cloud.proxy.set_price("c6g.large", ZONE_A, 0.02, time.time() - 100)
    pool = open_(launch_template="base", image="", types=["c5.large", "c6g.large"], markets=["spot"], zones=[ZONE_A])
    assert [offer.name for offer in pool.offers] == [f"c5.large:{ZONE_A}:spot"], "the image is for x86_64"
    id = pool.start(order(pool))
    assert [(row.id, row.phase) for row in rows(pool)] == [(id, RUNNING)]
    assert cloud.proxy.calls_of("RunInstances")[0].params["LaunchTemplate.LaunchTemplateName"] == "base"


def test_a_machine_that_shut_itself_down_leaves_neither_disk_nor_request(cloud, open_):
    pool = open_(interruption="stop", unreachable_exit="1s")
    id = pool.start(order(pool))
    until(lambda: cloud.proxy.instances[id].reason == "Client.InstanceInitiatedShutdown")
    found = next(row for row in rows(pool) if row.id == id)
    assert found.phase == ENDED and found.cause == "failed" and "cannot be reached" in found.about
    rows(pool)
    assert cloud.proxy.requests[cloud.proxy.instances[id].request].state == "cancelled"
    assert [call.ids for call in cloud.proxy.calls_of("TerminateInstances")] == [[id]]
    assert cloud.proxy.running() == []


def test_a_persistent_request_is_cancelled_before_its_instance_is_ended(cloud, open_):
    pool = open_(interruption="stop")
    id = pool.start(order(pool))
    rows(pool)
    assert pool.stop(id) is None
    actions = [call.action for call in cloud.proxy.calls]
    assert actions.index("CancelSpotInstanceRequests") < actions.index("TerminateInstances")
    assert len(cloud.proxy.instances) == 1, "the request has started another one"


def test_prices_move_with_the_history_which_is_read_in_pages(cloud, open_):
    cloud.proxy.page_size = 2
    pool = open_(prices_every=0.1)
    before = len(pool.price_moves())
    for minute in range(5):
        cloud.proxy.set_price("c5.large", ZONE_A, 0.1 + minute / 100, time.time() - 300 + 60 * minute)
    time.sleep(0.15)
    rows(pool)
    moves = pool.price_moves()
    assert len(moves) == before + 5 and moves[-1].price_usd == pytest.approx(0.14 / 3600)
    prices = {offer.name: offer.price_usd for offer in pool.offers}
    assert prices[f"c5.large:{ZONE_A}:spot"] == pytest.approx(0.14 / 3600)
    assert prices[f"c5.large:{ZONE_B}:spot"] == pytest.approx(0.04 / 3600)
    assert cloud.proxy.calls[-1].params.get("NextToken")


def test_expired_credentials_are_read_again_and_the_catalogue_outlives_a_restart(cloud, open_):
    pool = open_()
    cloud.proxy.bad_keys.add("AKIAFIRST")
    failed = pool.list()
    assert isinstance(failed, PoolError) and failed.kind == CREDENTIALS and "AuthFailure" in failed.error
    again = open_()
    assert again.offers == pool.offers, "those of the last time"
    cloud.use_key("AKIASECOND")
    assert rows(again) == rows(pool) == []


def test_credentials_that_never_worked_and_types_that_are_not_there_are_refused(cloud, open_):
    with pytest.raises(BadInput, match="no instance type"):
        open_(types=["z9.*"])
    cloud.proxy.bad_keys.add("AKIAFIRST")
    with pytest.raises(BadInput, match="AuthFailure") as caught:
        open_()
    assert "get-caller-identity" in caught.value.hint


def test_throttled_reads_are_repeated_and_a_throttled_start_is_transient(cloud, open_):
    pool = open_()
    cloud.proxy.throttle("DescribeInstances", 2)
    assert rows(pool) == []
    cloud.proxy.throttle("RunInstances", 1)
    refused = pool.start(order(pool))
    assert isinstance(refused, PoolError) and refused.kind == TRANSIENT
    assert isinstance(pool.start(order(pool)), str)


def test_the_doctor_says_which_permission_is_missing(cloud, open_):
    pool = open_(server="http://127.0.0.1:9")
    cloud.proxy.fail("RunInstances", "UnauthorizedOperation", 403, times=2)
    wrong = {check.what: check for check in pool.doctor() if check.error}
    assert len(wrong) == 3 and sum("could be started" in what for what in wrong) == 2
    assert all("UnauthorizedOperation" in check.error for what, check in wrong.items() if "started" in what)
    assert "permissions" in next(check.hint for what, check in wrong.items() if "started" in what)
    cloud.proxy.bad_keys.add("AKIAFIRST")
    [first, *rest] = pool.doctor()
    assert "ExpiredToken" in first.error and rest == []


def test_offers_can_be_asked_for_without_opening_a_pool(cloud: Cloud, open_, tmp_path: Path):
    pool = open_()
    config = PoolConfig("p", "ec2", 10, settings=pool._settings)
    assert offers_now(config) == pool.offers
    cloud.proxy.bad_keys.add("AKIAFIRST")
    with pytest.raises(BadInput, match="AuthFailure"):
        offers_now(config)


def test_offers_say_how_many_gpus_a_machine_has_and_how_many_machines_the_pool(cloud: Cloud, open_):
    for type_ in ("g4dn.xlarge", "g4dn.12xlarge"):
        cloud.proxy.set_price(type_, ZONE_A, 1.0, time.time() - 100)
    pool = open_(types=["c5.large", "g4dn.xlarge", "g4dn.12xlarge"], markets=["spot"], zones=[ZONE_A], limit=7)
    assert {offer.name.partition(":")[0]: offer.gpus for offer in pool.offers} == {
        "c5.large": 0,
        "g4dn.xlarge": 1,
        "g4dn.12xlarge": 4,
    }
    assert {offer.pool_limit for offer in pool.offers} == {7}


def test_a_bag_is_planned_with_the_prices_of_now(cloud: Cloud, tmp_path: Path):
    job, pools = tmp_path / "job.toml", tmp_path / "pools.toml"
    job.write_text('[job]\nname = "b"\ncommand = "sleep {}"\nrange = "1-6"\nestimate = "10m"\n')
    pools.write_text(cloud.pool(limit=3))
    typed = ["plan", str(job), "--pools", str(pools), "--pool", "cloud", "--deadline", "2h", "--seeds", "5", "--json"]

    def cost_usd() -> float:
        ended = CliRunner().invoke(cli, typed)
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)["cost_usd"]["mean"]

    before = cost_usd()
    for zone in (ZONE_A, ZONE_B):
        cloud.proxy.set_price("c5.large", zone, 0.06, time.time() - 1.0)
    assert cost_usd() > 1.2 * before > 0


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
