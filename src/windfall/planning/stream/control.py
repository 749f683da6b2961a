"""The control loop of SCS: waiting tasks and rented machines in, a decision out. Pure.

One call is one loop of algorithm 3: load vectors per type, consolidation, acquisition, release near a full cycle, EDF
per type. Load vectors are sums over (begin, due) pairs into one row of minutes per type, so a loop is linear in the
waiting tasks. Times are seconds on the caller's clock.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Market(Struct, frozen=True, eq=False):
    """The types of machines, as columns."""

    cycle_s: Floats
    lag_s: Floats
    price_usd: Floats
    limit: Ints


class Waiting(Struct, frozen=True, eq=False):
    """Tasks that have not started, as columns. `kind` is a row of the table of durations.

    `due_s` is the assigned end, `latest_s` the one after which its descendants could not keep their types.
    """

    kind: Ints
    offer: Ints  # the type it was assigned to
    begin_s: Floats
    due_s: Floats
    latest_s: Floats
    ready: Flags
    count: Floats | None = None
    """How many tasks each row stands for; None: one each. A row of several is load and is never moved."""


class Busy(Struct, frozen=True, eq=False):
    """What runs on machines, as columns: until when, and which part of a machine it takes."""

    offer: Ints
    free_s: Floats
    share: Floats


class Rented(Struct, frozen=True, eq=False):
    """Machines booting or up, as columns. `free_s`: when its last task is expected to end; in the past if idle.

    `busy`: what runs, where machines run several tasks at a time; None: each runs one, until `free_s`.
    """

    offer: Ints
    leased_s: Floats
    up_s: Floats
    free_s: Floats
    busy: Busy | None = None


class Rules(Struct, frozen=True):
    """How the loop behaves."""

    period_s: float = 60.0  # time between two loops
    bin_s: float = 60.0  # the finest granularity of a load vector
    horizon_bins: int = 180
    damping: float = 2.0  # a machine is kept if it is needed within this many lags: renting again costs a boot
    consolidations: int = 64  # moves per loop and type at most


class Decision(Struct, frozen=True, eq=False):
    """What one loop decides. Indices refer to the columns given."""

    acquire: Ints  # machines per type
    release: list[int]
    moves: list[tuple[int, int]]  # task -> type
    starts: list[tuple[int, int]]  # task -> machine
    needed: Ints  # machines per type that the load asks for


def control(
    now_s: float, waiting: Waiting, rented: Rented, durations_s: Floats, market: Market, rules: Rules,
    shares: Floats | None = None,
) -> Decision:  # fmt: skip
    """One loop: rent for the load that a machine requested now could still serve, release what is not needed.

    `shares`: by kind and type, the part of a machine that a task takes; None: all of it.
    """
    shares = np.ones_like(durations_s) if shares is None else shares
    types = len(market.cycle_s)
    offer = waiting.offer.copy()
    count = np.bincount(rented.offer, minlength=types)
    window_s = market.lag_s + rules.period_s  # machines for later load are requested later
    soon = load(now_s, waiting, offer, rented, durations_s, market, rules, True, shares)
    needed = _peak(soon, window_s, rules)
    moves: list[tuple[int, int]] = []
    if (needed > count).any():
        parts = _parts(now_s, waiting, offer, durations_s, market, rules, True, shares)
        moves = _consolidate(now_s, waiting, offer, soon, needed, count, durations_s, shares, window_s, rules, parts)
        needed = _peak(soon, window_s, rules)
    acquire = np.minimum(np.maximum(needed - count, 0), np.maximum(market.limit - count, 0))
    starts = earliest_deadline_first(now_s, waiting, offer, rented)
    started = {machine for _, machine in starts}
    release = [machine for machine in near_the_cycle(now_s, rented, market, rules) if machine not in started]
    if release:
        later = load(now_s, waiting, offer, rented, durations_s, market, rules, False, shares)
        keep = np.maximum(needed, _peak(later, rules.damping * market.lag_s + rules.period_s, rules))
        release = _surplus(release, rented, count - keep)
    return Decision(acquire, release, moves, starts, needed)


def load(
    now_s: float,
    waiting: Waiting,
    offer: Ints,
    rented: Rented,
    durations_s: Floats,
    market: Market,
    rules: Rules,
    after_boot: bool,
    shares: Floats | None = None,
) -> Floats:
    """Machines needed per type and bin. `after_boot`: only the load that a machine requested now could serve."""
    bins, width = rules.horizon_bins, rules.bin_s
    types = len(market.cycle_s)
    begin, end, share = _parts(now_s, waiting, offer, durations_s, market, rules, after_boot, shares)
    first, last = begin.astype(np.int64), end.astype(np.int64)
    into, beyond = begin - first, end - last
    row = offer * (bins + 2)
    runs = rented.busy or Busy(rented.offer, rented.free_s, np.ones(len(rented.offer)))
    busy = np.ceil(np.maximum(runs.free_s - now_s, 0.0) / width).astype(np.int64)
    busy_row = runs.offer * (bins + 2)
    index = np.concatenate(
        [row + first, row + first + 1, row + last, row + last + 1, busy_row, busy_row + np.minimum(busy, bins)]
    )
    one = np.where(busy > 0, runs.share, 0.0)
    # A task that begins or ends within a bin takes a part of it: of two in a row none is counted twice.
    parts = [share * (1 - into), share * into, -share * (1 - beyond), -share * beyond, one, -one]
    change = np.bincount(index, np.concatenate(parts), minlength=types * (bins + 2))
    return np.cumsum(change.reshape(types, bins + 2)[:, :bins], axis=1)


def _parts(
    now_s: float,
    waiting: Waiting,
    offer: Ints,
    durations_s: Floats,
    market: Market,
    rules: Rules,
    after_boot: bool,
    shares: Floats | None,
) -> tuple[Floats, Floats, Floats]:
    """What each task adds to the load of its type: from when until when, in bins from now, how many machines."""
    width = rules.bin_s
    duration = durations_s[waiting.kind, offer]
    begin = np.maximum(waiting.begin_s, now_s)
    if after_boot:
        # A task that begins after the boot keeps its whole interval.
        begin = np.maximum(begin, np.minimum(now_s + market.lag_s[offer], waiting.due_s - duration))
    span = np.maximum(waiting.due_s - begin, width)
    share = np.minimum(duration / span, 1.0)
    if shares is not None:
        share = share * shares[waiting.kind, offer]
    if waiting.count is not None:
        share = share * waiting.count
    most = float(rules.horizon_bins)
    return np.minimum((begin - now_s) / width, most), np.clip((begin + span - now_s) / width, 0.0, most), share


def _filled(begin: float, end: float, rules: Rules) -> Floats:
    """By bin the part of it that lies between two moments, which are counted in bins."""
    at = np.arange(rules.horizon_bins, dtype=np.float64)
    filled: Floats = np.clip(np.minimum(at + 1, end) - np.maximum(at, begin), 0.0, 1.0)
    return filled


def _peak(load: Floats, window_s: Floats, rules: Rules) -> Ints:
    """The most machines needed within each type's window."""
    upto = np.maximum.accumulate(load, axis=1)
    at = np.minimum(np.maximum(np.ceil(window_s / rules.bin_s), 1.0), rules.horizon_bins).astype(np.int64) - 1
    return np.ceil(upto[np.arange(len(load)), at] - 1e-6).astype(np.int64)


def _consolidate(
    now_s: float,
    waiting: Waiting,
    offer: Ints,
    load: Floats,
    needed: Ints,
    count: Ints,
    durations_s: Floats,
    shares: Floats,
    window_s: Floats,
    rules: Rules,
    parts: tuple[Floats, Floats, Floats],
) -> list[tuple[int, int]]:
    """Algorithm 2: instead of renting, move the first tasks of a short type to spare machines of other types.

    A moved task may take longer than assigned, as long as its descendants keep their types (line 3).
    """
    moves: list[tuple[int, int]] = []
    spare = np.flatnonzero((np.ceil(load.max(axis=1) - 1e-6) <= count) & (count > 0))
    if not spare.size:
        return moves
    for source in np.flatnonzero(needed > count).tolist():
        movable = (offer == source) & (waiting.begin_s <= now_s + window_s[source])
        queue = np.flatnonzero(movable if waiting.count is None else movable & (waiting.count == 1.0))
        if queue.size > rules.consolidations:
            queue = queue[np.argpartition(waiting.due_s[queue], rules.consolidations)[: rules.consolidations]]
        for task in queue[np.argsort(waiting.due_s[queue], kind="stable")].tolist():
            target = _move(now_s, task, source, spare.tolist(), waiting, load, count, durations_s, shares, rules)
            if target is not None:
                begin, end, share = (float(part[task]) for part in parts)
                load[source] -= share * _filled(begin, end, rules)
                offer[task] = target
                moves.append((task, target))
                if _peak(load, window_s, rules)[source] <= count[source]:
                    break
    return moves


def _move(
    now_s: float,
    task: int,
    source: int,
    targets: list[int],
    waiting: Waiting,
    load: Floats,
    count: Ints,
    durations_s: Floats,
    shares: Floats,
    rules: Rules,
) -> int | None:
    begin = max(float(waiting.begin_s[task]), now_s)
    due, latest = float(waiting.due_s[task]), float(waiting.latest_s[task])
    row, part = durations_s[waiting.kind[task]], shares[waiting.kind[task]]
    first = int((begin - now_s) / rules.bin_s)

    def upto(end_s: float) -> int:
        return min(rules.horizon_bins, max(first + 1, int(np.ceil((end_s - now_s) / rules.bin_s))))

    for target in targets:
        if not np.isfinite(row[target]):
            continue
        end = max(due, begin + float(row[target]))
        if end > latest:
            continue
        added, last = part[target] * row[target] / (end - begin), upto(end)
        if load[target, first:last].max(initial=0.0) + added <= count[target] + 1e-6:
            load[target, first:last] += added
            return target
    return None


def earliest_deadline_first(now_s: float, waiting: Waiting, offer: Ints, rented: Rented) -> list[tuple[int, int]]:
    """Ready tasks to idle machines of their type, the earliest deadline first."""
    starts: list[tuple[int, int]] = []
    idle = np.flatnonzero((rented.free_s <= now_s) & (rented.up_s <= now_s))
    if not idle.size:
        return starts
    ready = np.flatnonzero(waiting.ready)
    of_ready, of_idle = offer[ready], rented.offer[idle]
    for kind in sorted(set(of_idle.tolist()) & set(of_ready.tolist())):
        machines = idle[of_idle == kind]
        tasks = ready[of_ready == kind]
        if tasks.size > machines.size:
            tasks = tasks[np.argpartition(waiting.due_s[tasks], machines.size - 1)[: machines.size]]
        tasks = tasks[np.argsort(waiting.due_s[tasks], kind="stable")]
        starts += list(zip(tasks.tolist(), machines.tolist(), strict=False))
    return starts


def near_the_cycle(now_s: float, rented: Rented, market: Market, rules: Rules) -> list[int]:
    """Idle machines whose paid cycle ends before the next loop."""
    cycle_s = market.cycle_s[rented.offer]
    left_s = cycle_s - np.mod(now_s - rented.leased_s, cycle_s)
    near = (left_s <= rules.period_s) & (rented.free_s <= now_s) & (rented.up_s <= now_s)
    return np.flatnonzero(near).tolist()


def _surplus(machines: list[int], rented: Rented, surplus: Ints) -> list[int]:
    """Those of these machines that exceed the need for their type."""
    left = surplus.tolist()
    chosen = []
    for machine in machines:
        kind = int(rented.offer[machine])
        if left[kind] > 0:
            left[kind] -= 1
            chosen.append(machine)
    return chosen
