"""A policy tried against the hosts that are there, before a job has it. Reads the state; changes nothing."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.requests import Request

from windfall.api.asking import TriedHost, TriedPolicy
from windfall.bounds import Name, Text
from windfall.core.matching.ads import bag_ad, class_ad, host_ad, pool_ad, queue_ad
from windfall.core.state.hosts.hosts import GONE
from windfall.core.state.jobs.bags import Bag
from windfall.errors import BadInput
from windfall.server.http.bodies import typed_body
from windfall.server.service import Service

MOST_HOSTS = 200


class TryBody(Struct):
    """`POST /v1/policies/test`. `job`: whose attributes and tasks it is tried with; the newest one if empty."""

    expression: Text
    policy: Name = "JobRequirements"
    job: Name = ""


async def test(service: Service, request: Request) -> tuple[int, TriedPolicy]:
    """What is wrong with it, and of each host whether it matches and by which clause it does not."""
    from windfall.policy.check import check_policies
    from windfall.policy.compiled import named_policies

    body = await typed_body(request, TryBody)
    state = service.state
    bag = service.bag(body.job or "last") if state.bags else None
    declared = [] if bag is None else list(bag.rules.attributes)
    texts = named_policies({body.policy: body.expression})
    findings = check_policies(texts, {"BOT": declared} if declared else {})
    told: TriedPolicy = {
        "policy": body.policy, "job": None if bag is None else bag.number,
        "findings": msgspec.to_builtins(findings), "hosts": [], "matching": 0, "tried": 0,
        "hosts_live": len(state.hosts.live),
    }  # fmt: skip
    if bag is None or any(finding.level == "error" for finding in findings):
        return 200, told
    rows = _tried(service, bag, texts)
    return 200, {**told, "hosts": rows, "matching": sum(row["matches"] is True for row in rows), "tried": len(rows)}


def _tried(service: Service, bag: Bag, texts: dict[str, str]) -> list[TriedHost]:
    """Each host by itself, as the engine would ask; without a host there is nothing to try."""
    from windfall.policy.evaluate import expression
    from windfall.policy.explain import clauses_of, plain
    from windfall.policy.report import CONDITIONS

    state, t = service.state, service.driver.clock()
    ((policy, text),) = texts.items()
    rows: list[TriedHost] = []
    for host in [host for host in state.hosts.values() if host.state != GONE][:MOST_HOSTS]:
        scopes = (
            host_ad(host, t), class_ad(bag.classes[0]), bag_ad(bag, t), queue_ad(state), pool_ad(state, host.pool), t,
        )  # fmt: skip
        try:
            value = plain(expression(text, texts).value(scopes))
            clauses = clauses_of(policy, texts, scopes) if policy in CONDITIONS else []
        except (ValueError, TypeError) as error:
            raise BadInput(f"it cannot be evaluated on host '{host.name}': {error}") from None
        rows.append(
            {
                "host": host.name,
                "pool": host.pool,
                "matches": value is True if policy in CONDITIONS else None,
                "value": value if isinstance(value, bool | int | float | str) or value is None else str(value),
                "clauses": [{"text": each.text, "ok": each.ok, "detail": each.detail} for each in clauses],
            }
        )
    return rows
