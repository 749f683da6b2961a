"""Costs and weighers by their names in nova.conf, and the choice itself on the paper's tables."""

from __future__ import annotations

import pytest
from windfall_nova.choose import BadSetting, Chooser, cost_named, weighers_named
from windfall_nova.site import Inventory, KeptSite, Provider, Server

from windfall.lab.opie.tables import TABLES
from windfall.placement import Period

NOW_T = 1_800_000_000.0


def _kept(table):
    kept = KeptSite()
    for host in table.hosts:
        kept.learn(Server(one.id, one.preemptible, NOW_T - one.run_s) for one in host.instances)
        inventories = {name: Inventory(int(amount), int(amount)) for name, amount in host.capacity.items()}
        kept.put(Provider(host.name, 1, inventories, {one.id: one.resources for one in host.instances}), NOW_T)
    return kept


@pytest.mark.parametrize("number", TABLES)
def test_the_tables_of_the_paper(number):
    table = TABLES[number]
    chosen = Chooser(Period(), {"cheapest": 1.0}).choose(
        _kept(table), table.request.resources, [host.name for host in table.hosts], NOW_T
    )
    assert (chosen.provider, chosen.victims) == (table.host, table.victims)
    assert (chosen.cost / 60, chosen.unit) == (table.cost_min, "s")


def test_a_host_that_is_not_allowed_is_not_chosen():
    table = TABLES[3]
    chosen = Chooser(Period(), {"cheapest": 1.0}).choose(
        _kept(table), table.request.resources, ["host-A", "host-D"], NOW_T
    )
    assert chosen.provider == "host-D"


def test_nothing_is_chosen_where_one_server_may_not_be_so_large():
    kept = KeptSite()
    kept.put(Provider("a", 1, {"VCPU": Inventory(8, 2)}, {}), NOW_T)
    assert Chooser(Period(), {"cheapest": 1.0}).choose(kept, {"VCPU": 4}, ["a"], NOW_T) is None
    assert Chooser(Period(), {"cheapest": 1.0}).choose(kept, {"GPU": 1}, ["a"], NOW_T) is None


def test_the_weights_of_nova_count_where_they_are_asked_for():
    kept = KeptSite()
    kept.learn([Server("p", True, NOW_T - 60), Server("q", True, NOW_T - 120)])
    for host, server in (("a", "p"), ("b", "q")):
        kept.put(Provider(host, 1, {"VCPU": Inventory(8, 8)}, {server: {"VCPU": 8}}), NOW_T)
    chooser = Chooser(Period(), {"nova": 1.0})
    assert chooser.filters_all_first
    for best in "ab":
        weights = {host: float(host == best) for host in "ab"}
        assert chooser.choose(kept, {"VCPU": 1}, ["a", "b"], NOW_T, weights).provider == best


@pytest.mark.parametrize("name", ["period", "count", "revenue", "work"])
def test_built_in_costs(name):
    assert cost_named(name).name == name


def test_bad_settings_say_what_there_is():
    with pytest.raises(BadSetting, match="no such cost; there are: count, period"):
        cost_named("beauty")
    with pytest.raises(BadSetting, match="there is no weigher 'beauty'; there are: cheapest"):
        weighers_named({"beauty": "1"})
    with pytest.raises(BadSetting, match="multiplier of pack is no number: 'much'"):
        weighers_named({"pack": "much"})
    assert weighers_named({"cheapest": "2", "nova": "0.5"}) == {"cheapest": 2.0, "nova": 0.5}
