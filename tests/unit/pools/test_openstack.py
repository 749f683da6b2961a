"""Kind `openstack` without a cloud: settings, flavors, phases, endings, and the pool on a small compute API."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import (
    CAPACITY,
    CREDENTIALS,
    ENDED,
    FAILED,
    HIBERNATED,
    INVALID,
    PENDING,
    QUOTA,
    RELEASED,
    RUNNING,
    TAKEN,
    TRANSIENT,
    Order,
    PoolError,
)
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.openstack.api import Refusal, kind_of
from windfall.pools.openstack.doctor import examine
from windfall.pools.openstack.pool import OpenStackPool
from windfall.pools.openstack.settings import OpenStackSettings, check_settings
from windfall.pools.openstack.sight import ending_of, failure_of, sighted, time_of
from windfall.pools.starting.secrets import ticket
from windfall.server.pool_tokens import PoolTokens

ME = {"windfall:state": "me", "windfall:pool": "p"}
FLAVORS = [
    {"id": "1", "name": "normal", "vcpus": 2, "ram": 4096, "extra_specs": {}},
    {"id": "2", "name": "spare", "vcpus": 2, "ram": 4096, "extra_specs": {"windfall:preemptible": "true"}},
    {"id": "3", "name": "fixed", "vcpus": 2, "ram": 4096, "extra_specs": {"windfall:preemptible": "false"}},
]


class FakeCompute:
    """Servers in a dict; every start succeeds unless `room` is false."""

    def __init__(self) -> None:
        self.servers: dict[str, dict] = {}
        self.bodies: list[dict] = []
        self.deleted: list[str] = []
        self.actions: dict[str, list[dict]] = {}
        self.room = True
        self.down = False

    def pages(self, path, key):
        if self.down:
            return PoolError("nobody answers", TRANSIENT)
        return FLAVORS if key == "flavors" else [*self.servers.values()]

    def call(self, method, path, body=None):
        parts = path.strip("/").split("/")
        if (method, path) == ("POST", "/servers"):
            self.bodies.append(body)
            id = f"s{len(self.bodies)}"
            row = {"id": id, "status": "ACTIVE" if self.room else "ERROR", "metadata": body["server"]["metadata"]}
            row |= {"created": f"2026-01-01T00:00:{len(self.bodies):02}Z"}
            if not self.room:
                row["fault"] = {"message": "No valid host was found. "}
            self.servers[id] = row
            return {"server": {"id": id}}
        if parts[-1] == "os-instance-actions":
            return {"instanceActions": self.actions.get(parts[1], [])}
        if parts[-1] == "action":
            return {"output": "windfall: the worker ended with code 3; this machine shuts down"}
        if method == "DELETE":
            self.deleted.append(parts[1])
            return {} if self.servers.pop(parts[1], None) else Refusal("404: no", INVALID, 0.0, 404)
        return {"server": self.servers[parts[1]]} if parts[1] in self.servers else Refusal("404: no", INVALID, 0.0, 404)


def _settings(**other):
    fields = {"preemptible_prices": {"spare": 0.01, "normal": 0.02}, "prices": {"normal": 0.05}, "image": "i"}
    return msgspec.convert({**fields, "server": "http://w:1", **other}, OpenStackSettings)


def _pool(tmp_path, compute, limit=5, owner="me", **other):
    (tmp_path / "token").write_text(PoolTokens(b"k" * 32).make("p", 60.0, 0.0))
    place = Place("http://w:1", tmp_path / "token", tmp_path / "pool", owner=owner)
    return OpenStackPool(PoolConfig("p", "openstack", limit, settings=_settings(**other)), place, compute=compute)


def _order(pool, number, market="spot", flavor="spare"):
    offer = next(each for each in pool.offers if each.name == f"{flavor}/{market}")
    return Order(f"p-{number}", 2, number, offer)


def examined(tmp_path, answers, **other):
    """What the doctor finds: (what, error, hint). `answers`: what the API says, by the beginning of the path."""

    class Answering(FakeCompute):
        def call(self, method, path, body=None):
            return next((answer for begin, answer in answers.items() if path.startswith(begin)), {})

    place = Place("http://127.0.0.1:9", tmp_path / "token", tmp_path)
    config = PoolConfig("p", "openstack", 5, settings=_settings(**other))
    return [(check.what, check.error, check.hint) for check in examine(config, place, Answering())]


def test_the_doctor_says_that_the_credentials_are_not_let_in(tmp_path):
    found = examined(tmp_path, {"/servers": PoolError("401: The request you have made requires authentication.")})
    assert found == [
        (
            "servers can be listed",
            "401: The request you have made requires authentication.",
            "openstack server list must work for this user",
        )
    ]


def test_the_doctor_says_which_flavor_is_missing_and_that_no_machine_reaches_the_server(tmp_path):
    listed, flavors, reach = examined(tmp_path, {}, prices={"huge": 1.0}, server="")
    assert not listed[1] and "huge" in flavors[1] and "openstack flavor list" in flavors[2]
    assert reach[1] == "the server listens on this host only" and "--listen" in reach[2]


def test_the_doctor_says_that_the_quota_is_full_and_that_the_address_does_not_answer(tmp_path):
    full = {"limits": {"absolute": {"maxTotalInstances": 4, "totalInstancesUsed": 4}}}
    *_, quota, reach = examined(tmp_path, {"/limits": full}, server="http://127.0.0.1:9")
    assert quota == ("the quota has room", "4 of 4 servers exist", "delete some, or ask for more")
    assert reach[1].startswith("not even from here") and "firewall" in reach[2]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prices": {}, "preemptible_prices": {}}, "names no flavors"),
        ({"image": ""}, "names no image"),
        ({"prices": {"normal": 0}}, "prices: 'normal' = 0"),
        ({"metadata": {"windfall:x": "y"}}, "metadata: 'windfall:x'"),
        ({"interval": "0s"}, "interval = 0s"),
        ({"networks": ["none", "x"]}, "'none' beside others"),
    ],
)
def test_bad_settings_name_the_field(fields, words):
    with pytest.raises(BadInput, match=words):
        check_settings(PoolConfig("p", "openstack", settings=_settings(**fields)), "pools.toml")


def test_offers_are_flavors_with_prices_in_their_markets(tmp_path):
    pool = _pool(tmp_path, FakeCompute())
    assert {(offer.name, offer.market, round(offer.price_usd * 3600, 6)) for offer in pool.offers} == {
        ("normal/on-demand", "on-demand", 0.05),
        ("normal/spot", "spot", 0.02),
        ("spare/spot", "spot", 0.01),
    }
    assert {(offer.cores, offer.memory_gb) for offer in pool.offers} == {(2, 4.0)}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prices": {"huge": 1}}, "no flavor 'huge'"),
        ({"prices": {"spare": 1}}, "is preemptible: its price belongs to preemptible_prices"),
        ({"preemptible_prices": {"fixed": 1}}, "are not preemptible"),
    ],
)
def test_a_flavor_that_does_not_fit_its_table_is_refused(tmp_path, fields, words):
    with pytest.raises(BadInput, match=words):
        _pool(tmp_path, FakeCompute(), **fields)


def test_a_hint_is_sent_only_where_the_flavor_says_nothing(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute)
    pool.start(_order(pool, 1))
    pool.start(_order(pool, 2, flavor="normal"))
    pool.start(_order(pool, 3, "on-demand", "normal"))
    assert ["os:scheduler_hints" in body for body in compute.bodies] == [False, True, False]
    script = base64.b64decode(compute.bodies[0]["server"]["user_data"]).decode()
    assert ticket((tmp_path / "token").read_text(), "p-1") in script and " http://w:1 " in script
    assert (tmp_path / "token").read_text() not in script, "the token of the pool stays with the pool"


def test_no_room_is_an_error_at_once_and_leaves_nothing(tmp_path):
    compute = FakeCompute()
    compute.room = False
    pool = _pool(tmp_path, compute)
    answer = pool.start(_order(pool, 1))
    assert isinstance(answer, PoolError) and answer.kind == CAPACITY
    assert compute.servers == {} and pool.list() == []


def test_the_limit_and_the_loopback_and_a_lost_offer_are_refused(tmp_path):
    pool = _pool(tmp_path, FakeCompute(), limit=1)
    pool.start(_order(pool, 1))
    assert pool.start(_order(pool, 2)).kind == QUOTA
    assert pool.start(Order("p-9", 1, 9, Offer(name="gone", price_usd=1.0))).kind == INVALID
    local = OpenStackPool(
        PoolConfig("p", "openstack", 5, settings=_settings(server="")),
        Place("http://127.0.0.1:1", tmp_path / "token", tmp_path / "other", owner="me"),
        compute=FakeCompute(),
    )
    assert "no machine could reach" in local.start(_order(local, 1)).error


def test_an_evicted_server_is_a_loss_with_its_reason_also_for_the_next_server(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute)
    id = pool.start(_order(pool, 1))
    compute.servers[id]["metadata"] |= {"windfall:evicted_at_t": "1800000000", "windfall:evicted_for": "abc"}
    [row] = pool.list()
    assert (row.phase, row.taken_at_t) == (RUNNING, 1800000000.0)
    del compute.servers[id]
    for one in (pool, _pool(tmp_path, compute)):
        [row] = one.list()
        assert (row.id, row.host, row.phase, row.cause) == (id, "p-1", ENDED, TAKEN)
        assert row.about == "evicted for server abc"
    assert pool.start(_order(pool, 1)) == id


def test_a_server_that_vanished_while_no_server_looked_is_a_loss(tmp_path):
    compute = FakeCompute()
    first = _pool(tmp_path, compute)
    id = first.start(_order(first, 1))
    first.list()
    compute.servers.clear()
    [row] = _pool(tmp_path, compute).list()
    assert (row.id, row.cause, row.about) == (id, TAKEN, "deleted by the cloud")


def test_one_that_is_off_ends_with_its_last_words_and_is_deleted(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute)
    id = pool.start(_order(pool, 1))
    compute.servers[id]["status"] = "SHUTOFF"
    [row] = pool.list()
    assert (row.phase, row.cause) == (ENDED, FAILED) and "ended with code 3" in row.about
    assert compute.deleted == [id]
    assert [each.id for each in pool.list()] == [id]


def test_one_that_we_stopped_has_ended_while_nova_deletes_it_and_is_deleted_until_it_is_gone(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute, limit=1)
    id = pool.start(_order(pool, 1))
    kept = dict(compute.servers[id])
    pool.stop(id)
    compute.servers[id] = {**kept, "OS-EXT-STS:task_state": "deleting"}
    assert [(row.phase, row.cause) for row in pool.list()] == [(ENDED, RELEASED)]
    assert compute.deleted == [id, id], "a deletion that Nova has lost is asked for again"
    assert isinstance(pool.start(_order(pool, 2)), str), "its place is free"


def test_one_that_others_delete_runs_until_it_is_gone(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute)
    id = pool.start(_order(pool, 1))
    compute.servers[id]["OS-EXT-STS:task_state"] = "deleting"
    assert [row.phase for row in pool.list()] == [RUNNING] and compute.deleted == []


def test_of_two_servers_with_one_name_the_older_stays(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute)
    id = pool.start(_order(pool, 1))
    compute.servers["twin"] = {**compute.servers[id], "id": "twin", "created": "2026-01-02T00:00:00Z"}
    assert [row.id for row in pool.list()] == [id]
    assert compute.deleted == ["twin"]


def test_an_api_that_is_down_is_an_error_and_ends_nobody(tmp_path):
    compute = FakeCompute()
    pool = _pool(tmp_path, compute)
    id = pool.start(_order(pool, 1))
    compute.down = True
    assert pool.list().kind == TRANSIENT
    compute.down = False
    assert [(row.id, row.phase) for row in pool.list()] == [(id, RUNNING)]


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (401, "", CREDENTIALS),
        (403, "Policy doesn't allow it", CREDENTIALS),
        (403, "Quota exceeded for cores", QUOTA),
        (403, "Only volume-backed servers are allowed", INVALID),
        (404, "", INVALID),
        (409, "", TRANSIENT),
        (429, "", TRANSIENT),
        (503, "", TRANSIENT),
    ],
)
def test_kinds_of_errors(status, words, kind):
    assert kind_of(status, words) == kind


@pytest.mark.parametrize(
    ("status", "phase"),
    [("BUILD", PENDING), ("ACTIVE", RUNNING), ("SUSPENDED", HIBERNATED), ("SHUTOFF", ENDED), ("NEW ONE", PENDING)],
)
def test_phases(status, phase):
    assert sighted({"id": "x", "status": status, "metadata": ME}).phase == phase


def test_endings():
    row = sighted({"id": "x", "status": "ACTIVE", "metadata": ME})
    mine = [{"action": "delete", "user_id": "u", "start_time": "2026-01-01T00:00:00.000000"}]
    assert ending_of(row, mine, "u", True, 5.0).cause == RELEASED
    found = ending_of(row, mine, "u", False, 5.0)
    assert (found.cause, found.since_t) == (RELEASED, time_of("2026-01-01T00:00:00Z"))
    assert ending_of(row, [{"action": "delete", "user_id": None}], "u", False, 5.0).cause == TAKEN
    assert ending_of(row, None, "u", False, 5.0).cause == TAKEN
    broken = sighted({"id": "x", "status": "ERROR", "metadata": ME, "fault": {"message": "no luck"}})
    assert (failure_of(broken, "", 5.0).cause, failure_of(broken, "", 5.0).about) == (FAILED, "no luck")


def test_the_page_names_every_field():
    page = (Path(__file__).parents[3] / "docs" / "howto" / "openstack.md").read_text()
    assert [name for name in OpenStackSettings.__struct_fields__ if f"`{name}`" not in page] == []
