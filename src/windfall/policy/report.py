"""Every policy of a bag against one host, one task and one pool: value, effect, clauses. Pure but for classad2.

It asks the same object that the engine asks, so what it says is what would happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from windfall.core.matching.policy import POLICIES, BagPolicy, Clause, default_concurrency, default_rank
from windfall.policy.compiled import ClassAdPolicy, compile_policies, named_policies
from windfall.policy.evaluate import Scopes, expression
from windfall.policy.explain import clauses_of, plain
from windfall.policy.names import ADS

CONDITIONS = ("JobRequirements", "ReplicationRequirements", "GridPolicy")
DEFAULTS = {
    "JobRequirements": "true",
    "Rank": "BOT.Priority",
    "Concurrency": "Host.Slots",
    "Deadline": "none",
    "ReplicationRequirements": "BOT.Tail",
    "GridPolicy": "true",
}


class PolicyResult(Struct, frozen=True):
    """One evaluated policy: the `value` of the expression, and its `effect` in the engine."""

    policy: str
    text: str
    is_default: bool
    value: Any
    effect: Any
    clauses: list[Clause]


def outcomes(texts: Mapping[str, object], scopes: Scopes) -> list[PolicyResult]:
    """All six, in the order of `POLICIES`. Raises BadInput for texts that do not compile."""
    policies = named_policies(texts)
    told = {ad: list(scope) for ad, scope in zip(ADS, scopes[:5], strict=True)}
    effects = _effects(compile_policies(texts, told), scopes)
    found = []
    for policy in POLICIES:
        text = policies.get(policy)
        found.append(
            PolicyResult(
                policy=policy,
                text=DEFAULTS[policy] if text is None else text,
                is_default=text is None,
                value=effects[policy] if text is None else plain(expression(text, policies).value(scopes)),
                effect=effects[policy],
                clauses=clauses_of(policy, policies, scopes) if text is not None and policy in CONDITIONS else [],
            )
        )
    return found


def _effects(policy: BagPolicy, scopes: Scopes) -> dict[str, Any]:
    host, job, bag, queue, pool, now = scopes
    return {
        "JobRequirements": policy.match(host, bag, queue, pool, now, job).matches,
        # Evaluated directly: a host that does not match gets neither, but the report shows them.
        "Rank": policy.rank(scopes) if isinstance(policy, ClassAdPolicy) else default_rank(bag),
        "Concurrency": policy.concurrency(scopes) if isinstance(policy, ClassAdPolicy) else default_concurrency(host),
        "Deadline": policy.deadline_s(host, job, bag, pool, now, queue),
        "ReplicationRequirements": policy.match_replica(host, job, bag, queue, pool, now),
        "GridPolicy": policy.wants_pool(bag, pool, now, queue),
    }
