"""Whether a host may be trusted: which records look like a black hole, and how long such a host waits. Pure."""

from __future__ import annotations

from windfall.core.state.hosts.reliability import Reliability

SUSPECT_RATE = 0.5
SUSPECT_WEIGHT = 3.0
SUSPECT_IN_A_ROW = 5
FIRST_PROBATION_S = 60.0
LONGEST_PROBATION_S = 3600.0
MOST_DOUBLINGS = 64
MOST_EXCLUDED = 0.5
"""At most this share of the live slots gets no tasks because of suspicion: a bad bag must not shut a good pool down."""


def suspicion(record: Reliability, witnesses: int) -> str:
    """Why this host looks like a black hole, or nothing.

    It is suspected only on evidence: the tasks that failed here succeeded elsewhere, or everything fails here while
    others of the same job (`witnesses`) do not: they are done, or have been running elsewhere since before the failures
    began. A few are enough: a black hole fails faster than others can succeed. A task that fails everywhere is not held
    against any host.
    """
    weight = record.weight
    if weight >= SUSPECT_WEIGHT and record.error_weight / weight >= SUSPECT_RATE:
        return f"{record.error_rate:.0%} of its recent tasks failed here and succeeded elsewhere"
    if record.failures_in_a_row >= SUSPECT_IN_A_ROW and witnesses >= SUSPECT_IN_A_ROW:
        return f"its last {record.failures_in_a_row} tasks failed while others of the same job do not"
    return ""


def probation_s(probations: int) -> float:
    """Each failed test doubles the wait for the next one."""
    # Not beyond what a float holds: after 43 days of failed tests there are more than a thousand.
    return min(LONGEST_PROBATION_S, FIRST_PROBATION_S * 2.0 ** min(probations, MOST_DOUBLINGS))
