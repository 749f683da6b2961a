"""The overlay's matching: maximum, cheapest, within every limit, and the same whether mended or made anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from windfall.core.state.hosts.pools import Matching, PoolRules, PoolState
from windfall.core.supply.apply import asked, joined
from windfall.core.supply.overlay import (
    ERRORS_TO_OPEN,
    Supply,
    after_refusal,
    after_use,
    asks,
    capacity_of,
    demand_of,
    solve,
)


def refuse(pool, count, error, t):
    """What a refusal comes to: the clients will not come, and the breaker counts it."""
    pool.queued -= count
    pool.note(after_refusal(pool, error, t))


NAMES = ("a", "b", "c", "d")
groups = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(lambda names: tuple(sorted(names)))
demands = st.dictionaries(groups, st.integers(0, 12), max_size=6)
capacities = st.fixed_dictionaries({name: st.integers(0, 10) for name in NAMES})
prices = st.fixed_dictionaries({name: st.sampled_from([0.0, 1.0, 2.0, 5.0]) for name in NAMES})


def by_linear_programme(demand, capacity, price):
    """(matched slots, their price) of the best matching, by a solver that knows nothing of ours."""
    pairs = [(group, pool) for group in demand for pool in group]
    if not pairs:
        return 0, 0.0
    rows, bounds = [], []
    for group, amount in demand.items():
        rows.append([float(g == group) for g, _ in pairs])
        bounds.append(amount)
    for pool, amount in capacity.items():
        rows.append([float(p == pool) for _, p in pairs])
        bounds.append(amount)
    # One more slot is worth more than any price.
    cost = [price[pool] - 1000.0 for _, pool in pairs]
    solution = linprog(cost, A_ub=np.array(rows), b_ub=bounds, method="highs")
    flow = solution.x
    return round(flow.sum()), sum(f * price[p] for f, (_, p) in zip(flow, pairs, strict=True))


def check(matching, demand, capacity, price):
    for group, flows in matching.flow.items():
        assert set(flows) <= set(group) and all(amount >= 0 for amount in flows.values())
        assert sum(flows.values()) <= demand[group]
    for pool, room in capacity.items():
        assert matching.of_pool(pool) <= room
    best, cheapest = by_linear_programme(demand, capacity, price)
    assert matching.total() == best
    paid = sum(amount * price[pool] for flows in matching.flow.values() for pool, amount in flows.items())
    assert abs(paid - cheapest) < 1e-6


@settings(deadline=None)
@given(demands, capacities, prices)
def test_a_matching_is_maximum_and_cheapest(demand, capacity, price):
    check(solve(demand, capacity, price), demand, capacity, price)


@settings(deadline=None)
@given(demands, demands, capacities, capacities, prices)
def test_a_mended_matching_is_as_good_as_a_new_one(before, after, old, new, price):
    check(solve(after, new, price, solve(before, old, price)), after, new, price)


def test_room_in_one_pool_draws_demand_out_of_a_dear_one_through_a_third():
    demand, price = {("a", "b"): 1, ("b", "c"): 1}, {"a": 1.0, "b": 0.0, "c": 0.0}
    before = solve(demand, {"a": 1, "b": 1, "c": 0}, price, Matching({("a", "b"): {"a": 1}, ("b", "c"): {"b": 1}}))
    check(solve(demand, {"a": 1, "b": 1, "c": 1}, price, before), demand, {"a": 1, "b": 1, "c": 1}, price)


def pool(limit=100, **rules) -> PoolState:
    return PoolState(PoolRules("p", limit=limit, **rules))


def there(clients: int, free: int = 0) -> dict[str, Supply]:
    return {"p": Supply(clients, clients - free, free)}


def test_what_is_pending_and_what_is_free_is_not_asked_for_again():
    state = pool()
    matching = solve(demand_of([(50, ("p",))]), {"p": 100}, {})
    (ask,) = asks({"p": state}, there(30, free=20), matching, t=0.0)
    assert ask.count == 30
    asked(state, 30, 0.0)
    assert asks({"p": state}, there(30, free=20), matching, t=1.0) == []


def test_a_pool_is_never_asked_beyond_its_limit_of_pending_and_running_clients():
    state = pool(limit=10, slots=4)
    state.queued = 3
    assert capacity_of(state, Supply(5, busy_slots=18, free_slots=2), t=0.0) == 22
    matching = solve({("p",): 1000}, {"p": 22}, {})
    (ask,) = asks({"p": state}, {"p": Supply(5, busy_slots=18, free_slots=2)}, matching, t=0.0)
    assert ask.count == 2


def test_a_pool_that_clients_join_by_themselves_is_supply_only():
    volunteers = pool(joins_itself=True)
    assert capacity_of(volunteers, Supply(9, free_slots=4), t=0.0) == 4
    assert asks({"p": volunteers}, {}, solve({("p",): 9}, {"p": 100}, {}), t=0.0) == []


def test_requests_are_limited_by_rate():
    state = pool(limit=10_000, per_minute=60)
    matching = solve({("p",): 10_000}, {"p": 10_000}, {})
    total = 0
    for second in range(120):
        for ask in asks({"p": state}, {}, matching, float(second)):
            asked(state, ask.count, float(second))
            total += ask.count
    assert total <= 60 + 2 * 60


@settings(deadline=None)
@given(st.integers(1, 500))
def test_a_pool_that_answers_with_errors_is_asked_ever_more_rarely(demand):
    state = pool(limit=500, per_minute=6000)
    matching = solve({("p",): demand}, {"p": 500}, {})
    requests = 0
    for second in range(4 * 3600):
        for ask in asks({"p": state}, {}, matching, float(second)):
            if ask.count:
                asked(state, ask.count, float(second))
                refuse(state, ask.count, "slurmctld is not there", float(second))
                requests += 1
    assert requests <= ERRORS_TO_OPEN + 10
    assert state.queued == 0


def test_after_the_pause_one_client_is_asked_for_as_a_test_and_its_first_task_closes_the_breaker():
    state = pool()
    for _ in range(ERRORS_TO_OPEN):
        asked(state, 5, 0.0)
        refuse(state, 5, "no", 0.0)
    matching = solve({("p",): 40}, {"p": 100}, {})
    assert asks({"p": state}, {}, matching, 1.0)[0].count == 0
    (test,) = asks({"p": state}, {}, matching, 61.0)
    assert test.count == 1
    asked(state, 1, 61.0)
    assert asks({"p": state}, {}, matching, 62.0)[0].count == 0, "the test has not come yet"
    joined(state, 63.0)
    assert asks({"p": state}, there(1), matching, 63.0)[0].count <= 1, "it came, but has done nothing yet"
    state.note(after_use(state))
    assert asks({"p": state}, there(1), matching, 70.0)[0].count > 1
