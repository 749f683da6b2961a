"""The claim: one atomic call of placement that takes from victims what a new server needs. Pure.

Victims give up exactly what is missing, no more: what else they hold stays theirs until they are gone, so that
placement never counts room that a running server still fills. The same call in reverse takes the claim back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall_nova.site import Amounts, Provider

Json = dict[str, Any]


def reduced(provider: Provider, need: Amounts, victims: Sequence[str]) -> dict[str, dict[str, int]]:
    """What each victim keeps on the provider; an empty dict: nothing. ValueError if they have too little."""
    kept = {uuid: dict(provider.consumers[uuid]) for uuid in victims}
    for name, amount in need.items():
        missing = amount - provider.free(name)
        for amounts in kept.values():
            taken = max(0, min(missing, amounts.get(name, 0)))
            missing -= taken
            if taken:
                amounts[name] -= taken
        if missing > 0:
            raise ValueError(f"{missing} of {name} are missing on {provider.uuid} even without its victims")
    return {uuid: {name: amount for name, amount in amounts.items() if amount} for uuid, amounts in kept.items()}


def claim(
    provider: str, need: Amounts, owner: Mapping[str, str], consumer: str,
    before: Mapping[str, Json], kept: Mapping[str, Amounts],
) -> Json:  # fmt: skip
    """The body of POST /allocations. `before`: GET /allocations/{victim} of each victim."""
    body: Json = {uuid: _with(now, provider, kept[uuid]) for uuid, now in before.items()}
    body[consumer] = {
        "allocations": {provider: {"resources": dict(need)}},
        "project_id": owner["project_id"],
        "user_id": owner["user_id"],
        "consumer_generation": None,
    }
    return body


def _with(now: Json, provider: str, amounts: Amounts) -> Json:
    elsewhere = {
        uuid: {"resources": part["resources"]} for uuid, part in now["allocations"].items() if uuid != provider
    }
    here = {provider: {"resources": dict(amounts)}} if amounts else {}
    return {
        "allocations": {**elsewhere, **here},
        "project_id": now["project_id"],
        "user_id": now["user_id"],
        "consumer_generation": now["consumer_generation"],
    }


def undo(before: Mapping[str, Json], now: Mapping[str, Json], consumer: str) -> Json:
    """The body that gives the victims back what they had. `now`: as GET shows them and the consumer now.

    Victims that are gone are left out: nothing of theirs is to be restored.
    """
    body: Json = {}
    for uuid, was in before.items():
        allocations = {rp: {"resources": part["resources"]} for rp, part in was["allocations"].items()}
        # A victim that gave up everything is no consumer any more: it comes back as a new one.
        generation = now[uuid]["consumer_generation"] if now.get(uuid, {}).get("allocations") else None
        body[uuid] = {
            "allocations": allocations,
            "project_id": was["project_id"],
            "user_id": was["user_id"],
            "consumer_generation": generation,
        }
    held = now.get(consumer, {})
    if held.get("allocations"):
        body[consumer] = {
            "allocations": {},
            "project_id": held["project_id"],
            "user_id": held["user_id"],
            "consumer_generation": held["consumer_generation"],
        }
    return body
