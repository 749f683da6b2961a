"""When a bag enters its tail phase and when it may leave it (GridBot, section 6.3). Pure: counts in, a verdict out."""

from __future__ import annotations

from msgspec import Struct


class TailRule(Struct, frozen=True):
    """Thresholds on the number of unsent tasks. `leave=None`: once in the tail, always in the tail."""

    enter: int
    leave: int | None = None


def in_tail(was_in_tail: bool, unsent: int, rule: TailRule) -> bool:
    if not was_in_tail:
        return unsent <= rule.enter
    # Replicas refill the queue; without a gap between the thresholds the phase would flap at every replica.
    return rule.leave is None or unsent <= rule.leave
