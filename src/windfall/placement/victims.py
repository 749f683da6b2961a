"""The cheapest set of instances that frees enough of every resource, without trying all sets. Pure.

Algorithm 5 of the paper walks through all combinations. This is the same optimum: minimum-cost covering in several
resources, by a dynamic programme over groups of equal instances. Within a group only the cheapest k can be in an
optimal set, so a host full of a few flavours costs a few steps whatever its number of instances. A partial set is
dropped when another one costs no more and leaves no more of any resource to free (dominance), or when even a
fractional completion costs at least as much as a full set in hand (bound).

Among sets of equal cost the smaller wins, so no set holds a victim that could be spared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

Vector = tuple[int, ...]

# Below this many partial sets, bounds cost more than they save.
SMALL_FRONTIER = 48


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
    """A partial set: its price, what is still short, and how it came about."""

    key: int
    short: Vector
    taken: int
    before: _Partial | None


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
    # One number orders by cost, then by how many: every victim adds 1 and no sum of ones reaches the next cost.
    step = len(costs) + 1
    groups = _grouped(clipped, [cost * step + 1 for cost in costs])
    best = _programme(groups, goal)
    chosen = _members(best, groups)
    return Cover(sum(costs[i] for i in chosen), chosen)


def _grouped(sizes: Sequence[Vector], keys: Sequence[int]) -> list[_Group]:
    alike: dict[Vector, list[int]] = {}
    for i, size in enumerate(sizes):
        if any(size):
            alike.setdefault(size, []).append(i)
    groups = []
    for size, members in alike.items():
        members.sort(key=lambda i: (keys[i], i))
        groups.append(_Group(size, tuple(accumulate((keys[i] for i in members), initial=0)), tuple(members)))
    # Large ones first: they decide most of what is short, so bounds and dominance bite early.
    groups.sort(key=lambda group: group.size, reverse=True)
    return groups


def _programme(groups: Sequence[_Group], goal: Vector) -> _Partial:
    """Partial sets group by group, the frontier pruned after each; the last one standing is the optimum."""
    able = _suffix_totals(groups, len(goal))
    full: _Partial | None = None
    frontier = [_Partial(0, goal, 0, None)]
    bounds: list[list[_Fractions]] | None = None
    for g, group in enumerate(groups):
        grown: dict[Vector, _Partial] = {}
        for partial in frontier:
            for taken, key, short in _extensions(partial, group):
                if full is not None and key >= full.key:
                    break
                if not any(short):
                    full = _Partial(key, short, taken, partial)
                    break  # taking more of this group only adds to the price
                if any(lack > rest for lack, rest in zip(short, able[g + 1], strict=True)):
                    continue
                known = grown.get(short)
                if known is None or key < known.key:
                    grown[short] = _Partial(key, short, taken, partial)
        frontier = list(grown.values())
        if len(frontier) > SMALL_FRONTIER:
            bounds = bounds if bounds is not None else _suffix_fractions(groups, len(goal))
            if full is None:
                full = _greedy(frontier, groups, g + 1)
            frontier = [p for p in frontier if p.key + _bound(p.short, bounds[g + 1]) < full.key]
        frontier = _undominated(frontier)
    assert full is not None, "feasibility was checked before"
    return full


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
    for partial in frontier:
        short = partial.short
        if not any(all(a <= b for a, b in zip(other.short, short, strict=True)) for other in kept):
            kept.append(partial)
    return kept


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


class _Fractions(NamedTuple):
    """Instances by price per amount of one resource, as running totals: the best that fractions of them could do."""

    amounts: list[int]
    keys: list[int]
    rates: list[tuple[int, int]]


def _suffix_totals(groups: Sequence[_Group], width: int) -> list[Vector]:
    totals: list[Vector] = [(0,) * width]
    for group in reversed(groups):
        count = len(group.members)
        totals.append(tuple(total + count * size for total, size in zip(totals[-1], group.size, strict=True)))
    return totals[::-1]


def _suffix_fractions(groups: Sequence[_Group], width: int) -> list[list[_Fractions]]:
    singles = [
        (g, group.size, group.keys[k + 1] - group.keys[k])
        for g, group in enumerate(groups)
        for k in range(len(group.members))
    ]
    result = []
    for depth in range(len(groups) + 1):
        row = []
        for r in range(width):
            useful = [(size[r], key) for g, size, key in singles if g >= depth and size[r]]
            useful.sort(key=lambda pair: pair[1] / pair[0])
            amounts = list(accumulate((size for size, _ in useful), initial=0))
            keys = list(accumulate((key for _, key in useful), initial=0))
            row.append(_Fractions(amounts, keys, useful))
        result.append(row)
    return result


def _bound(short: Vector, fractions: Sequence[_Fractions]) -> int:
    """No completion costs less: the dearest single resource, if instances could be evicted in parts."""
    worst = 0
    for lack, (amounts, keys, rates) in zip(short, fractions, strict=True):
        if lack:
            at = bisect_left(amounts, lack) - 1
            size, key = rates[at]
            worst = max(worst, keys[at] + (lack - amounts[at]) * key // size)
    # Rates were ordered as floats: two that differ in their last bit may stand the wrong way round.
    return worst - (worst >> 40) - 1


def _greedy(frontier: Sequence[_Partial], groups: Sequence[_Group], depth: int) -> _Partial:
    """Some full set, quickly: complete the most promising partial set with whole groups' cheapest, then stop."""
    best: _Partial | None = None
    for partial in sorted(frontier, key=lambda p: (sum(p.short), p.key))[:8]:
        link = partial
        for group in groups[depth:]:
            taken, key, short = _extensions(link, group)[-1]
            link = _Partial(key, short, taken, link)
            if not any(short):
                break
        if not any(link.short) and (best is None or link.key < best.key):
            best = link
    assert best is not None, "the frontier holds only sets that can still be completed"
    return best


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
    # Depth first, "take it" before "leave it": the first leaf is a full set, so a limit never leaves empty hands.
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
