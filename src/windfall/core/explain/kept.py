"""Why a host with free slots gives nothing to a job: it is kept for a task that takes several whole hosts. Pure."""

from __future__ import annotations

from windfall.core.matching import gangs
from windfall.core.matching.matcher import Matcher
from windfall.core.state.jobs.bags import Bag


def why_kept(matcher: Matcher, bag: Bag) -> str:
    """Which job of the same or a higher rank waits for this host; empty if none does."""
    state, host, t = matcher.state, matcher.host, matcher.t
    for group in matcher.by_rank():
        for other, policy, _, classes in group:
            for index in range(len(other.classes)) if classes is None else classes:
                nodes = other.classes[index].nodes
                if other is bag or not nodes or not other.queues.by_class[index].size:
                    continue
                if gangs.gather(state, other, index, policy, host, t)[1]:
                    hosts = f"{nodes} hosts of pool {host.pool} are" if nodes > 1 else "it is"
                    return f"job {other.number} waits until {hosts} idle at once"
        if any(other is bag for other, *_ in group):
            break
    return ""
