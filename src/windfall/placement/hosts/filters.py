"""Which hosts may take a request: one mask per filter, so that a refusal can name its filter. Pure.

A normal request is filtered on h_n, as if no preemptible instance ran anywhere; a preemptible one on h_f.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from windfall.numeric import Bools, Ints, np
from windfall.placement.model import Request, from_units
from windfall.placement.site import Site

# A compiled expression: sees {"Host": {...}, "Request": {...}} and says why not, or nothing.
Predicate = Callable[[Mapping[str, object]], str]


class Stage(NamedTuple):
    """One filter: the hosts that pass it, and why another does not."""

    name: str
    passes: Bools
    reason: Callable[[int], str]


def room(state: Ints, need: Ints) -> Bools:
    """The hosts with at least `need` of every resource that is asked for at all."""
    asked = np.flatnonzero(need).tolist()
    if not asked:
        return np.ones(state.shape[1], dtype=np.bool_)
    passes: Bools = state[asked[0]] >= need[asked[0]]
    for r in asked[1:]:
        passes &= state[r] >= need[r]
    return passes


def stages(site: Site, request: Request, need: Ints, predicate: Predicate | None) -> list[Stage]:
    """Every filter that the request calls for, cheap ones first. A host must pass all."""
    result = []
    if request.aggregates:
        result.append(_labels("aggregates", site.aggregates, request.aggregates, site, any_of=True))
    if request.tags:
        result.append(_labels("tags", site.tags, request.tags, site, any_of=False))
    if request.affinity:
        result.append(_affinity(site, request.affinity))
    if request.anti_affinity:
        result.append(_anti_affinity(site, request.anti_affinity))
    result.append(_resources(site, request, need))
    if predicate is not None:
        result.append(_expression(site, request, predicate, passing(result)))
    return result


def passing(of: Sequence[Stage]) -> Bools:
    passes: Bools = np.logical_and.reduce([stage.passes for stage in of])
    return passes


def protected(site: Site, request: Request, h: int) -> set[int]:
    """Slots of a host that must not be evicted: the instances that the request wants to be close to."""
    names = set(request.affinity)
    if not names:
        return set()
    members = (site.instances[identity] for identity in site.on_host[h])
    return {p.slot for p in members if p.slot >= 0 and (p.instance.id in names or p.instance.group in names)}


def _hosts_of(site: Site, name: str) -> list[int]:
    """Where the instance or the group of that name runs."""
    placed = site.instances.get(name)
    return [*([placed.host] if placed else []), *site.groups.get(name, {})]


def _labels(kind: str, masks: Mapping[str, Bools], wanted: Sequence[str], site: Site, *, any_of: bool) -> Stage:
    nobody = np.zeros(len(site.names), dtype=np.bool_)
    found = [masks.get(name, nobody) for name in wanted]
    passes = np.logical_or.reduce(found) if any_of else np.logical_and.reduce(found)

    def reason(h: int) -> str:
        if any_of:
            return f"in none of the aggregates {', '.join(wanted)}"
        return f"lacks the tags {', '.join(name for name in wanted if not masks.get(name, nobody)[h])}"

    return Stage(kind, passes, reason)


def _affinity(site: Site, wanted: Sequence[str]) -> Stage:
    passes = np.ones(len(site.names), dtype=np.bool_)
    for name in wanted:
        here = np.zeros(len(site.names), dtype=np.bool_)
        here[_hosts_of(site, name)] = True
        passes &= here

    def reason(h: int) -> str:
        return f"does not run {', '.join(name for name in wanted if h not in _hosts_of(site, name))}"

    return Stage("affinity", passes, reason)


def _anti_affinity(site: Site, unwanted: Sequence[str]) -> Stage:
    passes = np.ones(len(site.names), dtype=np.bool_)
    for name in unwanted:
        passes[_hosts_of(site, name)] = False

    def reason(h: int) -> str:
        return f"runs {', '.join(name for name in unwanted if h in _hosts_of(site, name))}"

    return Stage("anti-affinity", passes, reason)


def _resources(site: Site, request: Request, need: Ints) -> Stage:
    state = site.free_f if request.preemptible else site.free_n
    beside = "" if request.preemptible else " beside normal instances"
    if request.affinity and not request.preemptible:
        state, beside = state.copy(), " beside instances that stay"
        for h in {h for name in request.affinity for h in _hosts_of(site, name)}:
            for slot in protected(site, request, h):
                state[:, h] -= site.size[:, h, slot]

    def reason(h: int) -> str:
        lacks = [
            f"{from_units(need[r]):g} {site.resources[r]}, {from_units(state[r, h]):g} free"
            for r in np.flatnonzero(need)
            if need[r] > state[r, h]
        ]
        return f"needs {'; '.join(lacks)}{beside}"

    return Stage("resources", room(state, need), reason)


def _expression(site: Site, request: Request, predicate: Predicate, candidates: Bools) -> Stage:
    passes = np.ones(len(site.names), dtype=np.bool_)
    reasons: dict[int, str] = {}
    asked = {"Preemptible": request.preemptible, "Resources": dict(request.resources)}
    for h in np.flatnonzero(candidates):
        why_not = predicate({"Host": host_view(site, int(h)), "Request": asked})
        if why_not:
            passes[h] = False
            reasons[int(h)] = why_not
    return Stage("expression", passes, lambda h: reasons[h])


def host_view(site: Site, h: int) -> dict[str, object]:
    """A host as an expression sees it: its own attributes, and ours on top."""
    host = site.hosts[h]

    def amounts(of: Ints) -> dict[str, float]:
        return {name: from_units(of[r, h]) for r, name in enumerate(site.resources)}

    return {
        **host.attributes,
        "Name": host.name,
        "Capacity": amounts(site.capacity),
        "Free": amounts(site.free_f),
        "FreeBesideNormal": amounts(site.free_n),
        "Instances": len(site.on_host[h]),
        "Tags": list(host.tags),
        "Aggregates": list(host.aggregates),
    }
