"""Pack tasks onto the cores of machines, longest first. Pure.

A `Bin` is one machine, rented or not yet: when each core is free and until when it is kept. A task that needs more
than one core's share of the memory occupies several cores, so that a packed machine never runs out of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from windfall.planning.contract import ONDEMAND, SPOT, Machine, Phase, Snapshot, Task
from windfall.planning.offers import Offer
from windfall.planning.room import market_key

Array = NDArray[np.float64]

TOLERANCE_S = 1e-6
NO_LIMIT = 2**62
MAX_TASKS_PACKED_EXACTLY = 300
"""Above this, the gaps at the end of each core are too small to matter."""

CORE_FILL_RATIO = 0.97
"""Share of a core's leased time that is used: tasks of unequal length leave gaps at the end."""
MERGED_WITHIN, MIN_SIZE_S = 0.02, 1e-3
"""Of very many different tasks, those whose run times differ by at most 2 % are planned as equal ones."""
MANY_SIZES = 24
"""From this number of different tasks on, it is computed for all at once which of them fit."""


class Item(Struct, gc=False):
    """`count` equal tasks to place; `ids` names them where the snapshot does. On spot they must end by `due_t`.

    `task.runtime_s` is the expected run time; `slack_s` is added to reach the quantile of the job's confidence.
    """

    task: Task
    count: int
    ids: list[int]
    due_t: float = math.inf
    slack_s: float = 0.0

    def quantile_s(self, offer: Offer) -> float:
        """Seconds that one of them takes there, at the quantile of the job's confidence."""
        return self.task.seconds_on(offer) + self.slack_s / offer.speed_for(self.task.task_class)

    def expected_end_t(self, offer: Offer, since_t: float, by_t: float, stretch: float = 1.0) -> float:
        """The latest expected end of a row that begins at `since_t` and ends by `by_t` with the job's confidence.

        The slack of n tasks in a row grows with the square root of n, not with n. `stretch`: seconds that pass for each
        second that the machine is up; the end is counted in seconds that it is up.
        """
        if (self.slack_s <= 0.0 and stretch <= 1.0) or not math.isfinite(by_t) or by_t <= since_t:
            return by_t
        seconds, slack_s = self.task.seconds_on(offer), self.slack_s / offer.speed_for(self.task.task_class)
        passed_s = seconds * stretch
        root = (math.sqrt(slack_s * slack_s + 4.0 * passed_s * (by_t - since_t)) - slack_s) / (2.0 * passed_s)
        return since_t + seconds * root * root


class Sizes(Struct, frozen=True):
    """Items on a machine of one offer: seconds of a task, what its quantile takes longer, and the due times."""

    seconds: list[float]
    arrays: tuple[Array, Array, Array]
    shortest_s: float
    ends_t: dict[tuple[float, float, float, bool], Array]
    """Latest expected ends that `fill` has computed: machines that could begin at the same moment have the same."""


def sizes_on(items: Sequence[Item], offer: Offer) -> Sizes:
    seconds = [item.task.seconds_on(offer) for item in items]
    slack_s = np.array([item.slack_s / offer.speed_for(item.task.task_class) for item in items])
    arrays = np.array(seconds), slack_s, np.array([item.due_t for item in items])
    return Sizes(seconds, arrays, min(seconds, default=math.inf), {})


class Placed(Struct, frozen=True, gc=False):
    """`count` tasks of one item, in a row on one core or in equal rows on several."""

    item: int
    count: int
    start_t: float
    end_t: float


class Bin(Struct, gc=False):
    """One machine: when its cores are free, until when it is kept, and what is placed on it."""

    name: str
    offer: Offer
    free_t: list[float]
    keep_t: float
    placed: list[Placed] = []
    is_new: bool = False
    since_t: float = -math.inf
    """When its first task could begin, tasks that already run included."""
    stretch: float = 1.0
    """Seconds that pass, on average, for each second that it is up: hibernations count."""

    def end_t(self) -> float:
        """When the last placed task ends; -inf if nothing is placed."""
        return max((entry.end_t for entry in self.placed), default=-math.inf)


class HibernatedMachine(Struct):
    """A hibernated machine, its tasks, and the last moment at which a resume would still spare them a rescue."""

    machine: Machine
    items: list[Item]
    limit_t: float


class Choice(Struct, frozen=True, gc=False):
    """A lease that could be bought: of a new machine, or longer of one that runs; and its price per task."""

    bin: Bin
    price_usd: float
    per_task_usd: float


def expected(item: Item) -> Item:
    """The item with the mean run time in `task` and the rest of the quantile in `slack_s`."""
    task = item.task
    if task.mean_s is None or task.mean_s >= task.runtime_s:
        return item
    slack_s = task.runtime_s - task.mean_s
    return Item(replace(task, runtime_s=task.mean_s, mean_s=None), item.count, item.ids, item.due_t, slack_s)


def merged(items: Iterable[Item]) -> list[Item]:
    """The items; of more than `MAX_TASKS_PACKED_EXACTLY` different ones, those that are nearly alike as one item.

    Its run time is their mean, its quantile the highest of theirs.
    """
    found = list(items)
    if len(found) <= MAX_TASKS_PACKED_EXACTLY:
        return found
    alike: dict[tuple[Task, int], list[Item]] = {}
    for item in found:
        size = math.floor(math.log(max(item.task.runtime_s, MIN_SIZE_S)) / MERGED_WITHIN)
        alike.setdefault((replace(item.task, id=-1, runtime_s=0.0, mean_s=None), size), []).append(item)
    return [_as_one(group) for group in alike.values()]


def _as_one(items: list[Item]) -> Item:
    if len(items) == 1:
        return items[0]
    count = sum(item.count for item in items)
    mean_s = math.fsum(item.task.runtime_s * item.count for item in items) / count
    quantile_s = max(item.task.runtime_s + item.slack_s for item in items)
    ids = [number for item in longest_first(items) for number in item.ids]
    due_t = min(item.due_t for item in items)
    return Item(replace(items[0].task, runtime_s=mean_s), count, ids, due_t, quantile_s - mean_s)


def width(task: Task, offer: Offer) -> int:
    """Cores that it occupies, its memory and resources considered; more than the offer has if it does not fit at all.

    A task of one GPU occupies half of the cores of a machine with two GPUs: only two of them run at once.
    """
    if task.nodes:
        return offer.cores if task.fits(offer) else offer.cores + 1
    if task.resources:
        if not task.fits(offer):
            return offer.cores + 1
        at_once = min(tasks_at_once(need, offer.units[name]) for name, need in task.resources)
        own = max(task.cores, math.ceil(offer.cores / at_once))
    else:
        own = task.cores
    if task.memory_gb <= 0.0 or math.isinf(offer.memory_gb):
        return own
    if task.memory_gb > offer.memory_gb:
        return offer.cores + 1
    return max(own, math.ceil(task.memory_gb * offer.cores / offer.memory_gb - 1e-9))


def all_narrow(items: Iterable[Item], bins: Iterable[Bin]) -> bool:
    """Whether each of these tasks occupies one core on each of these machines."""
    offers = {market_key(bin.offer): bin.offer for bin in bins}.values()
    return all(width(item.task, offer) == 1 for item in items for offer in offers)


def tasks_at_once(need: float, units: float) -> int:
    """Tasks of this need that units serve at once: of 0.4, two on each; of 1.5, one has a unit and shares another."""
    if need <= 1.0:
        return int(units) * int(1.0 / need + 1e-9)
    return max(1, int(units / math.ceil(need)))


def fill(
    bin: Bin,
    items: Sequence[Item],
    left: list[int],
    until_t: float = math.inf,
    sizes: Sizes | None = None,
) -> int:
    """Place as many tasks as fit before the machine is given back, in order. Counts `left` down; returns how many.

    `sizes`: what each item takes there, if that is known already.
    """
    before = len(bin.placed)
    _fill_exactly(bin, items, left, until_t)
    free_t, end_t = min(bin.free_t), min(bin.keep_t, until_t) + TOLERANCE_S
    if sizes is not None and free_t + sizes.shortest_s > end_t:
        return sum(entry.count for entry in bin.placed[before:])
    is_many = sizes is not None and len(items) >= MANY_SIZES and math.isfinite(bin.since_t)
    limits = _limits(bin, left, until_t, sizes) if sizes is not None and is_many else None
    for place in range(len(items)) if limits is None else limits:
        item = items[place]
        if left[place] <= 0:
            continue
        seconds = item.task.seconds_on(bin.offer) if sizes is None else sizes.seconds[place]
        if free_t + seconds > end_t:
            continue
        limit_t = _limit_t(bin, item, until_t) if limits is None else limits[place]
        if free_t + seconds > limit_t:
            continue
        lanes = width(item.task, bin.offer)
        if lanes > bin.offer.cores:
            continue
        if lanes > 1:
            _fill_wide(bin, place, seconds, lanes, limit_t, left)
        else:
            _fill_narrow(bin, place, seconds, limit_t, left)
        free_t = min(bin.free_t)
    return sum(entry.count for entry in bin.placed[before:])


def count_copies(bin: Bin, before: Sequence[int], left: list[int], most: int) -> int:
    """How many more machines `fill` would fill just like this one, up to `most`. Counts `left` down for them.

    `before`: the tasks that were left when this machine was filled; it was empty then. While `cores` times as many
    tasks are left as a machine takes, none gets shorter rows for want of tasks.
    """
    taken = [(place, was - now) for place, (was, now) in enumerate(zip(before, left, strict=True)) if was > now]
    count = sum(number for _, number in taken)
    copies = min([most, *((left[place] - 1) // number - bin.offer.cores + 1 for place, number in taken)])
    if math.isfinite(bin.keep_t):
        copies = min(copies, (sum(left) - MAX_TASKS_PACKED_EXACTLY - 1) // max(1, count) + 1)
    if copies <= 0:
        return 0
    for place, number in taken:
        left[place] -= number * copies
    return copies


def spread(bins: Sequence[Bin], items: Sequence[Item], left: list[int], until_t: float = math.inf) -> None:
    """If all tasks fit, place each where it ends soonest, so that no machine idles while others queue.

    If they do not all fit, nothing is placed: `fill` then packs each core as full as possible.
    """
    if not 0 < sum(left) <= MAX_TASKS_PACKED_EXACTLY or not all_narrow(items, bins):
        return
    lanes = [list(bin.free_t) for bin in bins]
    placed = [list[Placed]() for _ in bins]
    for place, item in enumerate(items):
        if not left[place]:
            continue
        limits_t = [_limit_t(bin, item, until_t) for bin in bins]
        seconds = [item.task.seconds_on(bin.offer) for bin in bins]
        ends_t = [min(free_t) + takes_s for free_t, takes_s in zip(lanes, seconds, strict=True)]
        for _ in range(left[place]):
            fitting = [(end_t, number) for number, end_t in enumerate(ends_t) if end_t <= limits_t[number]]
            if not fitting:
                return
            end_t, number = min(fitting)
            free_t = lanes[number]
            core = free_t.index(min(free_t))
            placed[number].append(Placed(place, 1, free_t[core], end_t))
            free_t[core] = end_t
            ends_t[number] = min(free_t) + seconds[number]
    for bin, free_t, added in zip(bins, lanes, placed, strict=True):
        bin.free_t, bin.placed = free_t, [*bin.placed, *added]
    left[:] = [0] * len(left)


def _limit_t(bin: Bin, item: Item, until_t: float) -> float:
    """The latest expected end of such a task there: within the lease, in time, and on spot open to a rescue."""
    since_t = min(bin.free_t) if math.isinf(bin.since_t) else bin.since_t
    safe_t = min(until_t, item.due_t) if bin.offer.market == SPOT else until_t
    return min(bin.keep_t, item.expected_end_t(bin.offer, since_t, safe_t, bin.stretch)) + TOLERANCE_S


def _limits(bin: Bin, left: Sequence[int], until_t: float, sizes: Sizes) -> dict[int, float]:
    """By place: `_limit_t` of the items of which a task fits now. Of many different ones, most do not fit."""
    limit_t = np.minimum(bin.keep_t, _ends_t(bin, until_t, sizes)) + TOLERANCE_S
    fits = (min(bin.free_t) + sizes.arrays[0] <= limit_t) & (np.asarray(left) > 0)
    places = np.flatnonzero(fits)
    return dict(zip(places.tolist(), limit_t[places].tolist(), strict=True))


def _ends_t(bin: Bin, until_t: float, sizes: Sizes) -> Array:
    """`Item.expected_end_t` of all items at once: the slack of a row grows with the square root of its length."""
    is_spot, since_t = bin.offer.market == SPOT, bin.since_t
    key = (since_t, until_t, bin.stretch, is_spot)
    if key not in sizes.ends_t:
        seconds, slack_s, due_t = sizes.arrays
        room_s = np.minimum(until_t, due_t) - since_t if is_spot else np.full(len(seconds), until_t - since_t)
        passed_s = np.maximum(seconds * bin.stretch, TOLERANCE_S)
        with np.errstate(invalid="ignore"):
            root = (np.sqrt(slack_s * slack_s + 4.0 * passed_s * np.maximum(room_s, 0.0)) - slack_s) / (2.0 * passed_s)
        is_exact = ((slack_s <= 0.0) & (bin.stretch <= 1.0)) | ~np.isfinite(room_s) | (room_s <= 0.0)
        sizes.ends_t[key] = since_t + np.where(is_exact, room_s, seconds * root * root)
    return sizes.ends_t[key]


def _fill_exactly(bin: Bin, items: Sequence[Item], left: list[int], until_t: float) -> None:
    """If there is more than fits, give each core the longest task and others that leave the least time unused."""
    until_t = min(bin.keep_t, until_t)
    if not math.isfinite(bin.keep_t) or until_t <= min(bin.free_t) or not 0 < sum(left) <= MAX_TASKS_PACKED_EXACTLY:
        return
    able = [place for place, item in enumerate(items) if left[place] > 0 and width(item.task, bin.offer) == 1]
    seconds = {place: items[place].task.seconds_on(bin.offer) for place in able}
    room_s = math.fsum(max(0.0, until_t - free_t) for free_t in bin.free_t)
    if math.fsum(seconds[place] * left[place] for place in able) <= room_s:
        return
    for lane in sorted(range(len(bin.free_t)), key=bin.free_t.__getitem__):
        now_t = bin.free_t[lane]
        for place in _fullest_subset(until_t - now_t, [(p, seconds[p]) for p in able for _ in range(left[p])]):
            end_t = now_t + seconds[place]
            if end_t <= _limit_t(bin, items[place], until_t):
                bin.placed.append(Placed(place, 1, now_t, end_t))
                left[place] -= 1
                now_t = end_t
        bin.free_t[lane] = now_t


def _fullest_subset(room_s: float, sizes: Sequence[tuple[int, float]]) -> list[int]:
    """From (name, seconds), longest first: the longest that fits and the others that leave the least time unused.

    A subset-sum in tenths of a second: bit k of `sums` says that a total of k can be reached.
    """
    room = int(room_s * 10.0 + 1e-6)
    fitting = [(name, math.ceil(size * 10.0 - 1e-6)) for name, size in sizes]
    fitting = [(name, size) for name, size in fitting if 0 < size <= room]
    if not fitting:
        return []
    # Beside the longest task, so that there are fewer bits and fewer tasks that fit.
    room -= fitting[0][1]
    others = [entry for entry in fitting[1:] if entry[1] <= room]
    mask = (2 << room) - 1
    sums, before, last, is_vain = 1, [], 0, False
    for _, size in others:
        if sums.bit_length() > room:
            # The time is used up to the last tenth of a second: no other task changes the choice.
            break
        before.append(sums)
        # If a task reached no new total, others of its length do not either.
        if size != last or not is_vain:
            sums |= (sums << size) & mask
            last, is_vain = size, sums == before[-1]
    target = sums.bit_length() - 1
    chosen = []
    for (name, size), reached in zip(reversed(others[: len(before)]), reversed(before), strict=True):
        if not reached >> target & 1:
            chosen.append(name)
            target -= size
    return [fitting[0][0], *reversed(chosen)]


def _fill_narrow(bin: Bin, place: int, seconds: float, limit_t: float, left: list[int]) -> None:
    free_t = bin.free_t
    if left[place] > len(free_t) and free_t.count(free_t[0]) == len(free_t):
        # Many equal tasks: place whole rows on all cores at once.
        rows = min(_room(limit_t - free_t[0], seconds), left[place] // len(free_t))
        if rows > 0:
            end_t = free_t[0] + rows * seconds
            bin.placed.append(Placed(place, rows * len(free_t), free_t[0], end_t))
            left[place] -= rows * len(free_t)
            free_t[:] = [end_t] * len(free_t)
    while left[place] > 0:
        lane = min(range(len(free_t)), key=free_t.__getitem__)
        count = min(_room(limit_t - free_t[lane], seconds), max(1, left[place] // len(free_t)))
        if count <= 0:
            return
        end_t = free_t[lane] + count * seconds
        bin.placed.append(Placed(place, count, free_t[lane], end_t))
        free_t[lane] = end_t
        left[place] -= count


def _fill_wide(bin: Bin, place: int, seconds: float, lanes: int, limit_t: float, left: list[int]) -> None:
    free_t = bin.free_t
    while left[place] > 0:
        chosen = sorted(range(len(free_t)), key=free_t.__getitem__)[:lanes]
        start_t = free_t[chosen[-1]]
        count = min(_room(limit_t - start_t, seconds), max(1, left[place] * lanes // len(free_t)))
        if count <= 0:
            return
        bin.placed.append(Placed(place, count, start_t, start_t + count * seconds))
        for lane in chosen:
            free_t[lane] = start_t + count * seconds
        left[place] -= count


def _room(time_s: float, seconds: float) -> int:
    """How many tasks of `seconds` fit in a row."""
    return NO_LIMIT if math.isinf(time_s) or seconds <= 0.0 else int(time_s / seconds)


def longest_first(items: Iterable[Item]) -> list[Item]:
    """The order of placing: by run time, then by memory, both descending."""
    return sorted(items, key=lambda item: (-item.task.runtime_s, -item.task.memory_gb, item.task.id))


def existing(machine: Machine, snapshot: Snapshot) -> Bin:
    """A running machine with its running tasks, kept to the end of the billing cycle in which they end."""
    ready_t = max(snapshot.t, machine.ready_t)
    free_t = [ready_t] * machine.offer.cores
    lane = 0
    for entry in machine.running:
        task = snapshot.tasks[entry.task]
        for _ in range(width(task, machine.offer)):
            if lane < len(free_t):
                free_t[lane] = snapshot.t + expected_left_s(task, entry.left_s)
                lane += 1
    keep_t = kept_until_t(machine, max(free_t) if lane else -math.inf)
    return Bin(machine.id, machine.offer, free_t, keep_t, [], since_t=ready_t)


def expected_left_s(task: Task, left_s: float) -> float:
    """Expected seconds left of a running task whose quantile is `left_s`."""
    return left_s if task.mean_s is None else left_s * min(1.0, task.mean_s / max(task.runtime_s, 1e-9))


def kept_until_t(machine: Machine, busy_until_t: float) -> float:
    """The end of the billing cycle in which the machine's work ends; at least the end of the present one."""
    if not math.isfinite(machine.paid_until_t) or busy_until_t <= machine.paid_until_t:
        return machine.paid_until_t
    cycles = math.ceil((busy_until_t - machine.paid_until_t) / machine.offer.cycle_s - 1e-9)
    return machine.paid_until_t + cycles * machine.offer.cycle_s


def fresh(name: str, offer: Offer, t: float, keep_s: float, stretch: float = 1.0) -> Bin:
    """A machine that would be requested at `t` and kept for `keep_s` from then on."""
    ready_t = t + offer.lag_s
    return Bin(name, offer, [ready_t] * offer.cores, t + keep_s, [], is_new=True, since_t=ready_t, stretch=stretch)


def lease_usd(offer: Offer, lease_s: float) -> float:
    """Dollars for a new machine and its lease, every begun cycle in full."""
    return cycles_usd(offer, lease_s) + offer.start_usd


def cycles_usd(offer: Offer, lease_s: float) -> float:
    """Dollars for the begun cycles of a lease."""
    billed_s = lease_s if offer.bills_boot else lease_s - offer.lag_s
    return offer.cycles(max(billed_s, offer.minimum_s)) * offer.price_usd


def ondemand_offers(snapshot: Snapshot, task_class: str = "") -> list[Offer]:
    """On-demand offers, the cheapest per core second of work on such tasks first."""
    able = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
    return sorted(able, key=lambda o: (o.compared_usd / o.cycle_s / o.cores / o.speed_for(task_class), o.cores, o.key))


def is_usable(machine: Machine) -> bool:
    """Whether tasks may be given to it: neither hibernated nor about to end."""
    return machine.phase is not Phase.HIBERNATED and machine.noticed_t is None and not machine.is_recalled


def all_noticed(offer: Offer, machines: Iterable[Machine]) -> bool:
    """Whether we have machines of the offer and all of them are about to be reclaimed."""
    noticed = [m.noticed_t is not None for m in machines if m.offer.key == offer.key and m.offer.market == offer.market]
    return bool(noticed) and all(noticed)
