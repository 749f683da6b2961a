"""A very large bag made smaller, so that simulating it takes seconds. Pure.

Short tasks are bundled: several in a row count as one. If there are still very many, a sample is simulated: each of its
tasks and machines counts several times. The chance that the planner counts with is raised accordingly, so that its
quantile of a run time is that of the whole bag, and the longest task of the sample is drawn as the longest of all.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, log1p, sqrt
from statistics import fmean, pvariance

from msgspec.structs import replace

from windfall.planning.offers import Offer
from windfall.sim.studies.forecast import Question

MOST_TASKS, BUNDLE_SHARE = 5_000, 1 / 40
"""Bags with more than `MOST_TASKS` tasks are simulated in bundles of at most this fraction of the deadline."""
MOST_SIMULATED, LEAST_LIMIT = 3_000, 8
"""Of more tasks a sample is simulated, unless a limit of an offer would be less than `LEAST_LIMIT` machines in it."""


def smaller(question: Question, deadline_s: float) -> tuple[Question, list[str]]:
    """What to simulate instead of a very large bag, and what that assumes, in words."""
    question, size = bundled(question, deadline_s)
    question = sampled(question)
    words = [f"{size} tasks at a time count as one, which takes as long: there are very many"] if size > 1 else []
    if question.stands_for > 1:
        words.append(
            f"1 of {question.stands_for:.3g} tasks is simulated, on as small a share of the machines: there are very "
            "many"
        )
    return question, words


def bundled(question: Question, deadline_s: float) -> tuple[Question, int]:
    """A very large bag with several tasks merged into one, and how many: the same work with far fewer events.

    A bundle is short compared with the deadline, and its run time varies less than that of a task, as sums do.
    """
    mean_s = fmean(question.seen_s or question.estimates_s)
    size = min(ceil(question.tasks / MOST_TASKS), int(deadline_s * BUNDLE_SHARE / mean_s))
    if size <= 1 or question.edges:
        return question, 1
    spread = question.spread
    if question.seen_s:
        spread = sqrt(log1p(pvariance(question.seen_s) / mean_s**2))
    kinds = Counter(zip(question.estimates_s, question.memory_bytes, strict=True))
    rows = [kind for kind, count in kinds.items() for _ in range(ceil(count / size))]
    # The last bundle of a class would be smaller: instead all are slightly smaller, so that the work is the same.
    sizes = {kind: count / ceil(count / size) for kind, count in kinds.items()}
    return replace(
        question,
        estimates_s=tuple((mean_s if question.seen_s else kind[0]) * sizes[kind] for kind in rows),
        memory_bytes=tuple(need for _, need in rows),
        spread=spread / sqrt(size),
        told_spread=None if question.told_spread is None else question.told_spread / sqrt(size),
        seen_s=(),
    ), size


def sampled(question: Question) -> Question:
    """A sample of a very large bag and of the machines that it may rent.

    Only of independent tasks that share nothing but machines: no workflow, no licences of the server, no free hosts, no
    tasks of several machines.
    """
    shares = question.edges or question.of_server or question.free_slots or question.nodes
    offers = [supply.offer for supply in question.supplies]
    limits = [limit for offer in offers for limit in (offer.limit, offer.pool_limit) if limit is not None and limit > 0]
    factor = min([ceil(question.tasks / MOST_SIMULATED), *(limit // LEAST_LIMIT for limit in limits)])
    if factor <= 1 or shares:
        return question
    # In the order of their lengths, so that the sample has short and long ones as the bag has.
    rows = sorted(zip(question.estimates_s, question.memory_bytes, strict=True))
    count = ceil(len(rows) / factor)
    chosen = [rows[int((place + 0.5) * len(rows) / count)] for place in range(count)]
    scale = question.tasks / count
    return replace(
        question,
        estimates_s=tuple(estimate_s for estimate_s, _ in chosen),
        memory_bytes=tuple(need for _, need in chosen),
        supplies=tuple(replace(s, offer=_fewer(s.offer, scale)) for s in question.supplies),
        budget_usd=None if question.budget_usd is None else question.budget_usd / scale,
        stands_for=scale,
    )


def _fewer(offer: Offer, scale: float) -> Offer:
    """The same offer with its share of machines."""
    limits = {"limit": offer.limit, "pool_limit": offer.pool_limit}
    return replace(offer, **{key: limit and max(1, int(limit / scale)) for key, limit in limits.items()})
