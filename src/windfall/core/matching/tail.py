"""When a bag enters its tail phase and when it may leave it (GridBot, section 6.3). Pure."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from windfall.core.decisions import Assigned
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.columns import WAITING
from windfall.core.state.state import State


class TailRule(Struct, frozen=True):
    """Thresholds on the number of unsent tasks. `leave=None`: once in the tail, always in the tail."""

    enter: int
    leave: int | None = None


def in_tail(was_in_tail: bool, unsent: int, rule: TailRule) -> bool:
    if not was_in_tail:
        return unsent <= rule.enter
    # Replicas refill the queue; without a gap between the thresholds the phase would flap at every replica.
    return rule.leave is None or unsent <= rule.leave


def tail_changes(state: State, host: Host, assigned: list[Assigned]) -> list[tuple[int, bool]]:
    """Bags that enter or leave their tail phase once these tasks are handed out."""
    bags = state.bags
    if not bags.tails and len(assigned) == 1:
        # Nearly always there is far more left than any threshold.
        piece = assigned[0]
        bag, slots = bags[piece.job], state.hosts.live_slots
        if slots < host.slots:
            slots = host.slots
        if not bag._terms.tail and bag.counts[WAITING] - piece.count > state.settings.tail_enter * slots + 1:
            return []
    taken: dict[int, int] = {}
    for piece in assigned:
        if piece.first not in state.bags[piece.job].attempts.live:
            taken[piece.job] = taken.get(piece.job, 0) + piece.count
    if state.bags.tails and state.settings.tail_leave is not None:
        taken = dict.fromkeys(sorted(state.bags.tails), 0) | taken
    rule: TailRule | None = None
    found: list[tuple[int, bool]] = []
    for job, count in taken.items():
        bag = state.bags[job]
        if bag.tail and state.settings.tail_leave is None:
            continue
        rule = rule or _rule(state, host)
        now = in_tail(bag.tail, bag.counts[WAITING] - count, rule)
        if now != bag.tail and bag.sealed:
            found.append((job, now))
    return found


def _rule(state: State, host: Host) -> TailRule:
    slots = max(state.hosts.live_slots, host.slots)
    leave = state.settings.tail_leave
    return TailRule(ceil(state.settings.tail_enter * slots), None if leave is None else ceil(leave * slots))
