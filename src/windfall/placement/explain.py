"""Why a request went where it went, or nowhere, in words and host by host. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windfall.numeric import np
from windfall.placement.evictions.costs import Cost, SetCost
from windfall.placement.hosts.filters import Stage
from windfall.placement.hosts.weighers import CHEAPEST, normalised
from windfall.placement.model import Decision, Request, from_units
from windfall.placement.scheduler import Scheduler, Weighed
from windfall.units import show_duration

ALTERNATIVES = 2


def shown_cost(cost: Cost | SetCost, units: int) -> float:
    """A cost in the unit that people read; whole where it is whole."""
    return units // cost.scale if units % cost.scale == 0 else units / cost.scale


def why(scheduler: Scheduler, request: Request, weighed: Weighed) -> list[str]:
    """The reasons for a decision, the main one first."""
    names = scheduler.site.names
    if weighed.decision.host is None:
        if not names:
            return ["there are no hosts"]
        return [
            f"none of {len(names)} hosts can take it",
            *_refusals(scheduler, weighed),
            *_nearest(scheduler, request),
        ]
    return [
        _verdict(scheduler, weighed.decision),
        *_standing(scheduler, request, weighed),
        *_refusals(scheduler, weighed),
    ]


def per_host(scheduler: Scheduler, weighed: Weighed) -> list[dict[str, object]]:
    """For every host the filter that refused it, or its weights and the victims it would take."""
    site, cost = scheduler.site, scheduler.cost
    position = {int(h): i for i, h in enumerate(weighed.rows)}
    weights = {name: normalised(raw) for name, raw in weighed.raw.items()}
    result: list[dict[str, object]] = []
    for h, name in enumerate(site.names):
        i = position.get(h)
        if i is None:
            stage = _refused_by(weighed.stages, h)
            result.append({"host": name, "refused_by": stage.name, "reason": stage.reason(h)})
            continue
        found = weighed.covers[i]
        result.append(
            {
                "host": name,
                "refused_by": None,
                "chosen": name == weighed.decision.host,
                "weight": float(weighed.total[i]),
                "weights": {
                    weigher: {
                        "raw": _raw(scheduler, weigher, weighed, i),
                        "normalised": float(weights[weigher][i]),
                        "multiplier": multiplier,
                    }
                    for weigher, multiplier in scheduler.weighers.items()
                },
                "victims": [site.slot_ids[h][slot] for slot in found.chosen],
                "cost": shown_cost(cost, found.cost),
                "proved": found.proved,
            }
        )
    return result


def _raw(scheduler: Scheduler, weigher: str, weighed: Weighed, i: int) -> float:
    raw = float(weighed.raw[weigher][i])
    scaled = raw / scheduler.cost.scale if weigher == CHEAPEST else raw
    return scaled + 0.0  # no -0.0 on a screen


def _verdict(scheduler: Scheduler, decision: Decision) -> str:
    if not decision.victims:
        return f"{decision.host} has room; nobody is evicted"
    cost = shown_cost(scheduler.cost, decision.cost)
    lost = show_duration(cost) if scheduler.cost.unit == "s" else f"{cost:g} {scheduler.cost.unit}"
    losses = {"work": f"{lost} of work", "period": f"{lost} of paid time", "revenue": f"{lost} of revenue"}
    ids = ", ".join(decision.victims)
    text = f"{decision.host} evicts {ids} and loses {losses.get(scheduler.cost.name, lost)}"
    if not decision.proved:
        text += (
            f"; {scheduler.cost.name} is not additive and the search met its limit of "
            f"{getattr(scheduler.cost, 'limit', 0):,} sets, so a cheaper one may exist"
        )
    return text


def _standing(scheduler: Scheduler, request: Request, weighed: Weighed) -> list[str]:
    """The chosen host compared with the next best ones."""
    ways = ", ".join(f"{name} x {multiplier:g}" for name, multiplier in scheduler.weighers.items())
    count = len(weighed.rows)
    if not weighed.raw:
        return [f"ranked {count:,} hosts that passed the filters by {ways}; `explain` shows the weights of all"]
    best = weighed.total.max()
    lines = [f"weighed {count} host{'s' if count > 1 else ''} by {ways}"]
    equals = int((weighed.total == best).sum())
    if equals > 1 and CHEAPEST in scheduler.weighers and not request.preemptible:
        lines[0] += f"; {equals} weigh the same, told apart by cost, by number of victims, then by the seed"
    elif equals > 1:
        lines[0] += f"; {equals} weigh the same, told apart by the seed"
    order = np.argsort(-weighed.total, kind="stable")
    others = [i for i in order.tolist() if scheduler.site.names[weighed.rows[i]] != weighed.decision.host]
    for i in others[:ALTERNATIVES]:
        found, name = weighed.covers[i], scheduler.site.names[weighed.rows[i]]
        ids = ", ".join(scheduler.site.slot_ids[weighed.rows[i]][slot] for slot in found.chosen)
        cost = f"{shown_cost(scheduler.cost, found.cost):g} {scheduler.cost.unit}"
        lines.append(f"next: {name}, weight {weighed.total[i]:.3g}, " + (f"{ids} for {cost}" if ids else "has room"))
    return lines


def _refused_by(filters: Sequence[Stage], h: int) -> Stage:
    return next(stage for stage in filters if not stage.passes[h])


def _refusals(scheduler: Scheduler, weighed: Weighed) -> list[str]:
    """How many hosts each filter excluded, with one host as the example."""
    names = scheduler.site.names
    passed = set(weighed.rows.tolist())
    refused = {h: _refused_by(weighed.stages, h) for h in range(len(names)) if h not in passed}
    counts = Counter(stage.name for stage in refused.values())
    lines = []
    for name, count in counts.most_common():
        h, stage = next((h, stage) for h, stage in refused.items() if stage.name == name)
        verdict = "too small" if name == "resources" else f"excluded by {name}"
        subject = f"{names[h]} is {verdict}" if count == 1 else f"{count} hosts are {verdict}, such as {names[h]}"
        lines.append(f"{subject}: {stage.reason(h)}")
    return lines


def _nearest(scheduler: Scheduler, request: Request) -> list[str]:
    """The host that lacks least of its scarcest resource: by how much the request is too large."""
    site = scheduler.site
    need = site.units(request.resources)
    state = site.free_f if request.preemptible else site.free_n
    asked = np.flatnonzero(need)
    if not asked.size:
        return []
    lacks = np.maximum(need[asked, None] - state[asked], 0)
    h = int((lacks / need[asked, None]).max(axis=0).argmin())
    if not lacks[:, h].any():
        return []
    short = ", ".join(
        f"{from_units(lack):g} {site.resources[r]}" for r, lack in zip(asked, lacks[:, h], strict=True) if lack
    )
    return [f"nearest miss: {site.names[h]} lacks {short}"]
