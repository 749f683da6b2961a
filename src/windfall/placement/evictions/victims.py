"""The cheapest set of instances that frees enough of every resource, without trying all sets. Pure.

Algorithm 5 of the paper walks through all combinations. This is the same optimum: minimum-cost covering in several
resources, by a dynamic programme over groups of equal instances. Within a group only the cheapest k can be in an
optimal set, so a host full of a few flavours costs a few steps whatever its number of instances. A partial set is
dropped when another one costs no more and leaves no more of any resource to free (dominance).

Where many different sizes make too many partial sets, the programme starts again under the prices of the linear
relaxation: groups that the prices decide clearly come first, and a partial set is dropped when, at those prices, no
completion can beat a full set in hand (bound). Any prices give a true bound, and it is computed in whole numbers, so
the answer does not rest on the precision of the solver.

Among sets of equal cost the smaller wins, so no set holds a victim that could be spared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from windfall.numeric import np

Vector = tuple[int, ...]

# Above this many partial sets, a linear programme (a millisecond or two) is worth its price.
SMALL_FRONTIER = 64
CORE = 14  # groups that the prices leave most open: nearly always enough to find the optimum, if not to prove it
SHIFT = 100  # prices are integers of 2**-SHIFT: amounts may be 10**18, so a price per unit may be very small


class Cover(NamedTuple):
    """A sufficient set: its cost and the positions of its members, in order. `proved`: none is cheaper."""

    cost: int
    chosen: tuple[int, ...]
    proved: bool = True


class _Group(NamedTuple):
    """Instances that free the same (of what is short), cheapest first. `keys[k]` is the price of the first k."""

    size: Vector
    keys: tuple[int, ...]
    members: tuple[int, ...]


class _Partial(NamedTuple):
    """A partial set: its price, what is still short, how many of the last group, and the set before that group."""

    key: int
    short: Vector
    taken: int
    before: _Partial | None


class _Guide(NamedTuple):
    """Prices per unit short (times 2**SHIFT), what the groups from each on can save at them, and a full set's price."""

    prices: Vector
    savings: tuple[int, ...]
    in_hand: int


def cheapest_cover(sizes: Sequence[Sequence[int]], costs: Sequence[int], short: Sequence[int]) -> Cover | None:
    """The cheapest set whose sizes add up to at least `short` in every resource; None where all together are too few.

    `costs` are whole numbers, not negative. Exact.
    """
    wanted = [r for r, amount in enumerate(short) if amount > 0]
    if not wanted:
        return Cover(0, ())
    goal = tuple(short[r] for r in wanted)
    # More than is short is worth no more than what is short: clipping makes more instances equal.
    clipped = [tuple(min(size[r], need) for r, need in zip(wanted, goal, strict=True)) for size in sizes]
    if any(sum(size[r] for size in clipped) < need for r, need in enumerate(goal)):
        return None
    first = min(range(len(costs)), key=costs.__getitem__)
    if clipped[first] == goal:  # at least one must go, and none is cheaper
        return Cover(costs[first], (first,))
    # One number orders by cost, then by how many: every victim adds 1 and no sum of ones reaches the next cost.
    step = len(costs) + 1
    keys = [cost * step + 1 for cost in costs]
    groups = _grouped(clipped, keys)
    try:
        best = _programme(groups, goal, None)
        assert best is not None, "feasibility was checked before"
        chosen = _members(best, groups)
    except _TooMany:
        chosen = _guided(groups, goal, clipped, keys)
    return Cover(sum(costs[i] for i in chosen), chosen)


class _TooMany(Exception):
    """More partial sets than a search without a guide should hold."""


def _guided(groups: Sequence[_Group], goal: Vector, sizes: Sequence[Vector], keys: Sequence[int]) -> tuple[int, ...]:
    """The optimum under prices: a good set from the undecided groups alone first, then the proof over all groups."""
    fractions, rates = _relaxed(sizes, keys, goal)
    rounded = [i for i, part in enumerate(fractions) if part > 1e-9]
    if any(sum(sizes[i][r] for i in rounded) < need for r, need in enumerate(goal)):
        rounded = [i for i, size in enumerate(sizes) if any(size)]
    rounded.sort(key=lambda i: -keys[i])
    best = _spared(tuple(rounded), sizes, goal)
    # Whole prices, from floats whose errors only loosen the bound.
    largest = max(keys)
    prices = tuple(
        (int(rate * 2**40) * largest << (SHIFT - 40)) // need for rate, need in zip(rates, goal, strict=True)
    )
    # What the prices decide clearly comes first: it is settled while there are few partial sets.
    ordered = sorted(groups, key=lambda group: -min(abs(gain) for gain in _reduced(group, prices)))
    for undecided in (CORE, len(ordered)):
        settled, open_groups = ordered[:-undecided], ordered[-undecided:]
        taken = [i for g in settled for i, gain in zip(g.members, _reduced(g, prices), strict=True) if gain < 0]
        rest = tuple(max(0, need - sum(sizes[i][r] for i in taken)) for r, need in enumerate(goal))
        savings = [0]
        for group in reversed(open_groups):
            savings.append(savings[-1] + sum(min(0, gain) for gain in _reduced(group, prices)))
        in_hand = sum(keys[i] for i in best) - sum(keys[i] for i in taken)
        better = _programme(open_groups, rest, _Guide(prices, tuple(reversed(savings)), in_hand)) if any(rest) else None
        if better is not None:
            best = (*taken, *_members(better, open_groups))
    return tuple(sorted(best))


def _reduced(group: _Group, prices: Vector) -> list[int]:
    """What each member of a group costs more than it is worth at these prices, times 2**SHIFT."""
    worth = _priced(group.size, prices)
    return [((after - key) << SHIFT) - worth for key, after in zip(group.keys, group.keys[1:], strict=False)]


def _relaxed(sizes: Sequence[Vector], keys: Sequence[int], goal: Vector) -> tuple[list[float], list[float]]:
    """The linear relaxation, every number scaled to at most 1: parts of instances, and prices of what is short."""
    from scipy.optimize import linprog

    scaled = np.array([[amount / need for amount, need in zip(size, goal, strict=True)] for size in sizes])
    largest = max(keys)
    answer = linprog(
        [key / largest for key in keys], A_ub=-scaled.T, b_ub=-np.ones(len(goal)), bounds=(0, 1), method="highs"
    )
    if not answer.success:  # the bound is then weak, and still true
        return [1.0] * len(keys), [0.0] * len(goal)
    return list(answer.x), [max(0.0, -float(rate)) for rate in answer.ineqlin.marginals]


def _grouped(sizes: Sequence[Vector], keys: Sequence[int]) -> list[_Group]:
    alike: dict[Vector, list[int]] = {}
    for i, size in enumerate(sizes):
        if any(size):
            alike.setdefault(size, []).append(i)
    groups = []
    for size, members in alike.items():
        members.sort(key=lambda i: (keys[i], i))
        groups.append(_Group(size, tuple(accumulate((keys[i] for i in members), initial=0)), tuple(members)))
    # Large ones first: they decide most of what is short, so bounds and dominance prune early.
    groups.sort(key=lambda group: group.size, reverse=True)
    return groups


def _programme(groups: Sequence[_Group], goal: Vector, guide: _Guide | None) -> _Partial | None:
    """Partial sets group by group, pruned after each; the cheapest full set, or None where none beats the guide's."""
    able = _suffix_totals(groups, len(goal))
    full: _Partial | None = None
    least = None if guide is None else guide.in_hand
    frontier = [_Partial(0, goal, 0, None)]
    for g, group in enumerate(groups):
        grown: dict[Vector, _Partial] = {}
        for partial in frontier:
            for taken, key, short in _extensions(partial, group):
                if least is not None and key >= least:
                    break
                if not any(short):
                    full, least = _Partial(key, short, taken, partial), key
                    break  # taking more of this group only adds to the price
                if any(lack > rest for lack, rest in zip(short, able[g + 1], strict=True)):
                    continue
                known = grown.get(short)
                if known is None or key < known.key:
                    grown[short] = _Partial(key, short, taken, partial)
        frontier = list(grown.values())
        if guide is not None and least is not None:
            ceiling = (least << SHIFT) - guide.savings[g + 1]
            frontier = [p for p in frontier if (p.key << SHIFT) + _priced(p.short, guide.prices) < ceiling]
        frontier = _undominated(frontier)
        if guide is None and len(frontier) > SMALL_FRONTIER:
            raise _TooMany
    return full


def _priced(amounts: Vector, prices: Vector) -> int:
    return sum(amount * price for amount, price in zip(amounts, prices, strict=True))


def _extensions(partial: _Partial, group: _Group) -> list[tuple[int, int, Vector]]:
    """The partial set with the cheapest 0, 1, 2... of a group added, while one more frees something still short."""
    short = partial.short
    result = [(0, partial.key, short)]
    for taken in range(1, len(group.keys)):
        if not any(lack and size for lack, size in zip(short, group.size, strict=True)):
            break
        short = tuple(max(lack - size, 0) for lack, size in zip(short, group.size, strict=True))
        result.append((taken, partial.key + group.keys[taken], short))
    return result


def _members(best: _Partial, groups: Sequence[_Group]) -> tuple[int, ...]:
    chain: list[int] = []
    link: _Partial | None = best
    while link is not None and link.before is not None:
        chain.append(link.taken)
        link = link.before
    chosen = [i for group, taken in zip(groups, reversed(chain), strict=False) for i in group.members[:taken]]
    return tuple(sorted(chosen))


def _undominated(frontier: list[_Partial]) -> list[_Partial]:
    """Without the partial sets that another one beats in price and in everything still short."""
    frontier.sort(key=lambda partial: (partial.key, partial.short))
    kept: list[_Partial] = []
    if frontier and len(frontier[0].short) == 1:
        for partial in frontier:
            if not kept or partial.short < kept[-1].short:
                kept.append(partial)
        return kept
    if frontier and len(frontier[0].short) == 2:
        return _undominated_in_two(frontier)
    return _undominated_in_many(frontier)


def _undominated_in_many(frontier: list[_Partial]) -> list[_Partial]:
    """The same for three resources or more, by comparison with all that is kept so far."""
    if not frontier:
        return []
    shorts = np.array([partial.short for partial in frontier], dtype=np.int64)
    kept = np.empty_like(shorts)
    result: list[_Partial] = []
    for partial, short in zip(frontier, shorts, strict=True):
        if not (kept[: len(result)] <= short).all(axis=1).any():
            kept[len(result)] = short
            result.append(partial)
    return result


def _undominated_in_two(frontier: list[_Partial]) -> list[_Partial]:
    """The same for two resources, by a staircase of what the cheaper ones leave short: first rising, second falling."""
    firsts: list[int] = []
    seconds: list[int] = []
    kept = []
    for partial in frontier:
        first, second = partial.short
        at = bisect_left(firsts, first + 1)
        if at and seconds[at - 1] <= second:
            continue
        kept.append(partial)
        end = at = bisect_left(firsts, first)
        while end < len(firsts) and seconds[end] >= second:
            end += 1
        firsts[at:end] = [first]
        seconds[at:end] = [second]
    return kept


def _suffix_totals(groups: Sequence[_Group], width: int) -> list[Vector]:
    totals: list[Vector] = [(0,) * width]
    for group in reversed(groups):
        count = len(group.members)
        totals.append(tuple(total + count * size for total, size in zip(totals[-1], group.size, strict=True)))
    return totals[::-1]


def search_cover(
    sizes: Sequence[Sequence[int]],
    cost_of: Callable[[tuple[int, ...]], int],
    short: Sequence[int],
    limit: int,
) -> Cover | None:
    """The cheapest sufficient set under a cost that is not a sum, by branch and bound over at most `limit` sets.

    `cost_of` must not fall when a member is added. Where the limit is met, the best so far, `proved=False`.
    """
    wanted = [r for r, amount in enumerate(short) if amount > 0]
    goal = tuple(short[r] for r in wanted)
    clipped = [tuple(min(size[r], need) for r, need in zip(wanted, goal, strict=True)) for size in sizes]
    order = sorted((i for i, size in enumerate(clipped) if any(size)), key=lambda i: (cost_of((i,)), i))
    rest: list[Vector] = [(0,) * len(goal)]
    for i in reversed(order):
        rest.append(tuple(a + b for a, b in zip(rest[-1], clipped[i], strict=True)))
    rest.reverse()
    if any(lack > able for lack, able in zip(goal, rest[0], strict=True)):
        return None
    best: tuple[int, int, tuple[int, ...]] | None = None
    looked = 0
    # Depth first, "take it" before "leave it": the first leaf is a full set, so there is one even if the limit is met.
    stack: list[tuple[int, Vector, tuple[int, ...]]] = [(0, goal, ())]
    while stack:
        depth, lacks, chosen = stack.pop()
        looked += 1
        if looked > limit and best is not None:
            return Cover(best[0], tuple(sorted(_spared(best[2], clipped, goal))), proved=False)
        cost = cost_of(chosen) if chosen else 0
        if best is not None and (cost, len(chosen)) >= best[:2]:
            continue
        if not any(lacks):
            best = (cost, len(chosen), chosen)
            continue
        if any(lack > able for lack, able in zip(lacks, rest[depth], strict=True)):
            continue
        i = order[depth]
        left = tuple(max(lack - size, 0) for lack, size in zip(lacks, clipped[i], strict=True))
        stack.append((depth + 1, lacks, chosen))
        if left != lacks:
            stack.append((depth + 1, left, (*chosen, i)))
    assert best is not None
    return Cover(best[0], tuple(sorted(best[2])))


def _spared(chosen: tuple[int, ...], sizes: Sequence[Vector], goal: Vector) -> tuple[int, ...]:
    """Without the members that the others make unnecessary: an unproved set must still not evict for nothing."""
    kept = list(chosen)
    for i in chosen:
        others = [j for j in kept if j != i]
        if all(sum(sizes[j][r] for j in others) >= need for r, need in enumerate(goal)):
            kept = others
    return tuple(kept)
