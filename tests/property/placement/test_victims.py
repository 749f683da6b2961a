"""Victims against brute force: the same least cost, and never one victim too many."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.placement import GROUPS, Count, Host, Instance, Period, Request, Revenue, Scheduler, Site, Work
from windfall.placement.evictions.costs import MICRO
from windfall.placement.evictions.victims import cheapest_cover, search_cover
from windfall.placement.model import UNITS, to_units

RESOURCES = ("vcpu", "ram_mb", "gpu")
CASES = 10_000
BATCHES = 10  # in parts, so that a failure names a small part


def brute_force(sizes, costs, short):
    """The least (cost, number of victims) over all combinations, as algorithm 5 goes through them."""
    best = None
    for count in range(len(sizes) + 1):
        for chosen in combinations(range(len(sizes)), count):
            if all(sum(sizes[i][r] for i in chosen) >= need for r, need in enumerate(short)):
                found = (sum(costs[i] for i in chosen), count)
                best = found if best is None else min(best, found)
    return best


def random_case(rng):
    n, width = int(rng.integers(0, 9)), int(rng.integers(1, 4))
    spread = int(rng.choice([2, 5, 1000]))  # many alike, some alike, none alike
    sizes = rng.integers(0, spread, size=(n, width)).tolist()
    costs = rng.integers(0, int(rng.choice([2, 60, 3600])), size=n).tolist()
    short = (rng.random(width) * (np.sum(sizes, axis=0) if n else 1) * 1.1).astype(int).tolist()
    return sizes, costs, short


@pytest.mark.parametrize("batch", range(BATCHES))
def test_on_10_000_random_hosts_the_cost_is_the_least_and_the_set_the_smallest(batch):
    rng = np.random.default_rng(batch)
    for _ in range(CASES // BATCHES):
        sizes, costs, short = random_case(rng)
        found, expected = cheapest_cover(sizes, costs, short), brute_force(sizes, costs, short)
        if expected is None:
            assert found is None
            continue
        assert (found.cost, len(found.chosen)) == expected, (sizes, costs, short)
        assert len(set(found.chosen)) == len(found.chosen)
        freed = [sum(sizes[i][r] for i in found.chosen) for r in range(len(short))]
        assert all(a >= b for a, b in zip(freed, short, strict=True))


def test_larger_hosts_with_all_sizes_different_agree_with_an_integer_programme():
    """Past the frontier where bounds begin to prune; HiGHS is the referee."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    rng = np.random.default_rng(7)
    for _ in range(25):
        n, width = int(rng.integers(15, 31)), int(rng.integers(1, 4))
        sizes = rng.integers(1, 100, size=(n, width))
        costs = rng.integers(0, 60, size=n)
        short = (sizes.sum(axis=0) * rng.uniform(0.1, 0.8)).astype(int)
        referee = milp(
            costs,
            constraints=LinearConstraint(sizes.T, short, np.inf),
            integrality=np.ones(n),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 0},
        )
        found = cheapest_cover(sizes.tolist(), costs.tolist(), short.tolist())
        assert found.cost == round(referee.fun)


def test_a_cost_that_is_not_additive_is_still_least_within_the_limit_and_says_so_beyond_it():
    rng = np.random.default_rng(3)
    for _ in range(300):
        sizes, _, short = random_case(rng)
        groups = rng.integers(0, 3, size=len(sizes)).tolist()

        def disturbed(chosen, groups=groups):
            return len({groups[i] for i in chosen})

        found = search_cover(sizes, disturbed, short, limit=10**6)
        sufficient = [
            (disturbed(chosen), count)
            for count in range(len(sizes) + 1)
            for chosen in combinations(range(len(sizes)), count)
            if all(sum(sizes[i][r] for i in chosen) >= need for r, need in enumerate(short))
        ]
        if not sufficient:
            assert found is None
            continue
        assert found.proved
        assert (found.cost, len(found.chosen)) == min(sufficient)
        hasty = search_cover(sizes, disturbed, short, limit=1)
        assert all(sum(sizes[i][r] for i in hasty.chosen) >= need for r, need in enumerate(short))
        assert hasty.cost >= found.cost
        assert hasty.proved is False or hasty.cost == found.cost


# ------------------------------------------------------------------ whole sites

amounts = st.sampled_from([0, 0.1, 0.2, 0.5, 1, 2, 3, 4])
resources = st.fixed_dictionaries({"vcpu": amounts}, optional={"ram_mb": amounts, "gpu": amounts})
instances = st.lists(st.tuples(st.booleans(), st.integers(0, 20_000), resources), max_size=6)


@st.composite
def sites(draw):
    hosts = []
    for h in range(draw(st.integers(1, 4))):
        capacity = draw(st.fixed_dictionaries({name: st.sampled_from([0, 2, 4, 8]) for name in RESOURCES}))
        kept, used = [], dict.fromkeys(RESOURCES, 0)
        for i, (preemptible, run_s, size) in enumerate(draw(instances)):
            units = {name: to_units(size.get(name, 0)) for name in RESOURCES}
            if all(used[name] + units[name] <= capacity[name] * UNITS for name in RESOURCES):
                used = {name: used[name] + units[name] for name in RESOURCES}
                checkpoint = draw(st.integers(0, run_s))
                kept.append(
                    Instance(
                        f"h{h}i{i}",
                        preemptible,
                        run_s,
                        size,
                        price_usd_per_h=draw(st.sampled_from([0.1, 1.0])),
                        checkpoint_s=checkpoint,
                        group=draw(st.sampled_from(["", "red", "blue"])),
                    )
                )
        hosts.append(Host(f"h{h}", capacity, tuple(kept)))
    return hosts


def free_of(host, name, without=()):
    """What is free on a host once some instances are gone, counted from scratch."""
    used = sum(to_units(i.resources.get(name, 0)) for i in host.instances if i.id not in without)
    return to_units(host.capacity[name]) - used


def fits(host, request, without=()):
    return all(free_of(host, name, without) >= to_units(amount) for name, amount in request.resources.items() if amount)


COSTS = {
    "period": (Period(), lambda i: (i.run_s % 3600) * MICRO),
    "count": (Count(), lambda i: 1),
    "revenue": (Revenue(), lambda i: round(i.price_usd_per_h * 1e6 * ((i.run_s % 3600) / 3600))),
    "work": (Work(), lambda i: (i.run_s - i.checkpoint_s) * MICRO),
}


@settings(max_examples=400, deadline=None)
@given(sites(), resources, st.sampled_from(sorted(COSTS)), st.integers(0, 5))
def test_a_normal_request_gets_the_least_cost_of_the_whole_site(hosts, size, name, seed):
    cost, cost_of = COSTS[name]
    request = Request(False, size)
    decision = Scheduler(Site(hosts), cost, rng=np.random.default_rng(seed)).decide(request)
    best = None
    for host in hosts:
        preemptible = [i for i in host.instances if i.preemptible]
        for count in range(len(preemptible) + 1):
            for gone in combinations(preemptible, count):
                if fits(host, request, {i.id for i in gone}):
                    found = (sum(cost_of(i) for i in gone), count)
                    best = found if best is None else min(best, found)
    if best is None:
        assert decision.host is None
        return
    assert (decision.cost, len(decision.victims)) == best
    host = next(h for h in hosts if h.name == decision.host)
    assert fits(host, request, set(decision.victims))


@settings(max_examples=300, deadline=None)
@given(
    sites(),
    resources,
    st.sampled_from([*sorted(COSTS), "groups"]),
    st.dictionaries(
        st.sampled_from(["cheapest", "overcommit", "period", "pack", "spread", "revenue"]), st.floats(-2, 2)
    ),
    st.booleans(),
)
def test_whatever_the_weighers_victims_are_preemptible_on_that_host_and_none_could_be_spared(
    hosts, size, name, weighers, preemptible
):
    cost = GROUPS if name == "groups" else COSTS[name][0]
    request = Request(preemptible, size)
    decision = Scheduler(Site(hosts), cost, weighers or None).decide(request)
    if decision.host is None:
        gone = {i.id for h in hosts for i in h.instances if i.preemptible and not preemptible}
        assert not any(fits(host, request, gone) for host in hosts)
        return
    host = next(h for h in hosts if h.name == decision.host)
    victims = set(decision.victims)
    assert victims <= {i.id for i in host.instances if i.preemptible}
    assert fits(host, request, victims)
    for victim in victims:
        assert not fits(host, request, victims - {victim})
    if preemptible:
        assert not victims


@settings(max_examples=200, deadline=None)
@given(sites(), resources, st.integers(0, 3))
def test_the_laid_open_pass_decides_like_the_quick_one(hosts, size, seed):
    request = Request(False, size)
    quick = Scheduler(Site(hosts), rng=np.random.default_rng(seed)).decide(request)
    open_pass = Scheduler(Site(hosts), rng=np.random.default_rng(seed)).weigh(request).decision
    assert quick == open_pass
    assert Scheduler(Site(hosts), rng=np.random.default_rng(seed)).outline(request).decision == quick
