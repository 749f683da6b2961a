"""The kept site equals one that is built anew, whatever came before."""

from __future__ import annotations

import numpy as np
import pytest
from windfall_nova.site import Inventory, KeptSite, Provider, Server

VCPU = {"VCPU": Inventory(8, 8)}


def _provider(name, generation=1, **consumers):
    return Provider(name, generation, VCPU, {uuid: {"VCPU": amount} for uuid, amount in consumers.items()})


def _kept(*providers, victims=()):
    kept = KeptSite()
    kept.learn(Server(uuid, uuid in victims, 1000.0) for one in providers for uuid in one.consumers)
    for one in providers:
        kept.put(one, 2000.0)
    return kept


def _states(kept):
    site = kept.site(2000.0)
    return dict(zip(site.names, zip(site.free_f[0].tolist(), site.free_n[0].tolist(), strict=True), strict=True))


def test_capacity_is_what_is_not_reserved_times_the_ratio():
    row = {"total": 10, "reserved": 1, "allocation_ratio": 1.5, "max_unit": 4, "step_size": 1}
    assert Inventory.of(row) == Inventory(13, 4, 1)


def test_normal_servers_count_in_both_states_and_preemptible_ones_in_one():
    kept = _kept(_provider("a", n=2, p=4), victims=("p",))
    assert _states(kept) == {"a": (2_000_000, 6_000_000)}


def test_changes_arrive_without_building_the_site_again():
    kept = _kept(_provider("a", n=2, p=4), _provider("b"), victims=("p", "q"))
    site = kept.site(2000.0)
    kept.learn([Server("q", True, 1500.0)])
    kept.put(_provider("a", 2, n=2, p=1, q=3), 2000.0)
    assert kept.site(2000.0) is site
    assert _states(kept) == {"a": (2_000_000, 6_000_000), "b": (8_000_000, 8_000_000)}
    assert kept.victims_on("a") == ["p", "q"]


@pytest.mark.parametrize("seed", range(5))
def test_a_site_that_was_changed_equals_one_that_is_new(seed):
    rng = np.random.default_rng(seed)
    kept = _kept(*(_provider(name) for name in "abc"))
    for generation in range(30):
        name = "abc"[int(rng.integers(3))]
        uuids = [f"{name}{i}" for i in range(8) if rng.random() < 0.5]
        kept.learn(Server(uuid, int(uuid[1]) % 2 == 0, 1000.0) for uuid in uuids)
        kept.put(_provider(name, generation, **dict.fromkeys(uuids, 1)), 2000.0)
        if generation % 3 == 0:
            kept.site(2000.0)
    fresh = KeptSite()
    fresh.learn(kept.servers.values())
    for one in kept.providers.values():
        fresh.put(one, 2000.0)
    assert _states(kept) == _states(fresh)


def test_a_host_that_was_shrunk_below_its_servers_has_no_room_and_does_no_harm():
    kept = _kept(_provider("a", n=8))
    kept.site(2000.0)
    kept.put(Provider("a", 2, {"VCPU": Inventory(4, 4)}, {"n": {"VCPU": 8}, "m": {"VCPU": 1}}), 2000.0)
    assert _states(kept)["a"][0] < 0


def test_what_no_provider_counts_is_forgotten():
    kept = _kept(_provider("a", n=2), _provider("b", m=2))
    kept.drop(["b"])
    kept.forget_unused()
    assert set(kept.servers) == {"n"}
    assert set(_states(kept)) == {"a"}
