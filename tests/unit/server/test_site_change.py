"""`POST /v1/sites/SITE/change`: what is named changes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server.asgi import InProcess
from windfall.cli.site.rules import KEYS, body_of

RULES = {
    "name": "lab", "instance": {"vcpu": 1, "ram_mb": 1000}, "limit": 7, "grace": "20s", "cost": "period",
    "idle_exit": "5m", "price_usd": 0.01, "weighers": {"cheapest": 1.0}, "only_tags": ["os=linux"], "market": True,
    "reserve_usd": 0.002, "bid_usd": 0.004, "consolidate": "2m", "power_usd": 0.05, "review": "30s",
}  # fmt: skip


@pytest.fixture
def server(tmp_path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "state") as server:
        yield server
        server.check()


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        ({"limit": 20}, {"limit": 20}),
        ({"grace": "1m"}, {"grace_s": 60.0}),
        ({"cost": "work"}, {"cost": "work"}),
        ({"idle_exit": 90}, {"idle_exit_s": 90.0}),
        ({"price_usd": 0.02}, {"price_usd": 0.02}),
        ({"weighers": {}}, {"weighers": {}}),
        ({"only_tags": []}, {"only_tags": []}),
        ({"instance": {"ram_mb": 2000}}, {"instance": {"vcpu": 1.0, "ram_mb": 2000.0}}),
        ({"market": False}, {"market": False, "reserve_usd": 0.0, "bid_usd": 0.0}),
        ({"reserve_usd": 0.001, "bid_usd": 0.005}, {"reserve_usd": 0.001, "bid_usd": 0.005}),
        ({"consolidate": None}, {"consolidate_s": None}),
        ({"consolidate": "never"}, {"consolidate_s": None}),
        ({"power_usd": 0.0}, {"power_usd": 0.0}),
        ({"review": "2m"}, {"review_s": 120.0}),
        ({}, {}),
    ],
)
def test_what_is_named_changes_and_everything_else_stays(server: InProcess, said, changed):
    assert server.post("/v1/sites", RULES)[0] == 201
    before = server.get("/v1/sites/lab")[1]
    assert server.post("/v1/sites/lab/change", said)[0] == 200
    after = server.get("/v1/sites/lab")[1]
    assert {key: after[key] for key in changed} == changed
    same = set(before) - set(changed) - {"hosts", "notes", "evictions_per_h", "slots"}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}


@pytest.mark.parametrize(
    "said", [{"limit": -1}, {"limit": 2**64}, {"cost": "love"}, {"grace": "soon"}, {"instance": {"vcpu": -1}},
             {"name": "other"}, {"weighers": {"fastest": 1.0}}]
)  # fmt: skip
def test_a_wrong_change_is_refused_and_nothing_changes(server: InProcess, said):
    server.post("/v1/sites", RULES)
    before = server.get("/v1/sites/lab")[1]
    assert server.post("/v1/sites/lab/change", said)[0] == 400
    assert server.get("/v1/sites/lab")[1] == before


def test_a_site_that_is_not_there_is_named_in_the_refusal(server: InProcess):
    code, error = server.post("/v1/sites/attic/change", {"limit": 3})
    assert code == 404 and "windfall site create" in str(error)


def test_the_command_line_takes_a_filter_of_tags_back_with_a_word():
    unsaid = dict.fromkeys(("instance_vcpu", "instance_ram", "instance_disk", *KEYS)) | {"weighers": ()}
    assert body_of(unsaid | {"only_tags": ("any",)}) == {"only_tags": []}
    assert body_of(unsaid | {"only_tags": ("disk=ssd",)}) == {"only_tags": ["disk=ssd"]}
    assert body_of(unsaid | {"only_tags": ()}) == {}
