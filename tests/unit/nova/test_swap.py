"""The claim takes exactly what is missing, and can be taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windfall_nova import swap
from windfall_nova.site import Inventory, Provider

OWNER = {"project_id": "p", "user_id": "u"}


def _before(amounts, generation=1, elsewhere=None):
    allocations = {"host": {"resources": amounts, "generation": 7}} if amounts else {}
    allocations |= {uuid: {"resources": one, "generation": 3} for uuid, one in (elsewhere or {}).items()}
    return {"allocations": allocations, "consumer_generation": generation, "project_id": "vp", "user_id": "vu"}


@given(
    st.integers(1, 20),
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(0, 10),
)
def test_placement_never_counts_more_than_there_is_nor_room_that_is_not_there(need, victims, free):
    consumers = {f"v{i}": {"VCPU": amount} for i, amount in enumerate(victims)}
    provider = Provider("host", 1, {"VCPU": Inventory(sum(victims) + free, 99)}, consumers)
    if need > sum(victims) + free:
        with pytest.raises(ValueError, match="missing on host"):
            swap.reduced(provider, {"VCPU": need}, list(consumers))
        return
    kept = swap.reduced(provider, {"VCPU": need}, list(consumers))
    used = need + sum(amounts.get("VCPU", 0) for amounts in kept.values())
    assert used == max(sum(victims) + free, need) if need > free else used == sum(victims) + need


def test_the_claim_is_one_body_for_all_and_keeps_what_victims_hold_elsewhere():
    before = {"v": _before({"VCPU": 4}, 2, {"disk": {"DISK_GB": 10}}), "w": _before({"VCPU": 1})}
    body = swap.claim("host", {"VCPU": 3}, OWNER, "new", before, {"v": {"VCPU": 2}, "w": {}})
    assert body["v"]["allocations"] == {
        "disk": {"resources": {"DISK_GB": 10}},
        "host": {"resources": {"VCPU": 2}},
    }
    assert (body["v"]["consumer_generation"], body["v"]["project_id"]) == (2, "vp")
    assert body["w"]["allocations"] == {}
    assert body["new"] == {
        "allocations": {"host": {"resources": {"VCPU": 3}}},
        "consumer_generation": None,
        **OWNER,
    }


def test_undo_gives_victims_back_what_they_had_and_takes_the_claim_away():
    before = {"v": _before({"VCPU": 4}, 2), "w": _before({"VCPU": 1}, 5)}
    now = {"v": _before({"VCPU": 2}, 3), "w": _before({}), "new": _before({"VCPU": 3}, 1)}
    body = swap.undo(before, now, "new")
    assert body["v"]["allocations"] == {"host": {"resources": {"VCPU": 4}}}
    assert (body["v"]["consumer_generation"], body["w"]["consumer_generation"]) == (3, None)
    assert body["w"]["allocations"] == {"host": {"resources": {"VCPU": 1}}}
    assert body["new"]["allocations"] == {}


def test_undo_of_a_claim_whose_server_is_gone_touches_victims_only():
    assert set(swap.undo({"v": _before({"VCPU": 4})}, {"v": _before({})}, "new")) == {"v"}
