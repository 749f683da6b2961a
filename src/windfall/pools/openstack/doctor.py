"""What `windfall pool doctor` finds of a pool of kind `openstack`, and starts no server. Touches the compute API."""

from __future__ import annotations

from typing import Any

from windfall.pools.contract import Check, PoolError
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.openstack.api import Compute
from windfall.pools.openstack.flavors import offers_of, read_flavors
from windfall.pools.openstack.settings import HOWTO, OpenStackSettings
from windfall.pools.starting.reach import reach


def examine(pool: PoolConfig, place: Place, compute: Compute) -> list[Check]:
    """Credentials, flavors, quota, and the address of the server."""
    settings: OpenStackSettings = pool.settings
    listed = compute.call("GET", "/servers?limit=1")
    checks = [_check("servers can be listed", listed, "openstack server list must work for this user")]
    if isinstance(listed, PoolError):
        return checks
    found = read_flavors(compute, settings)
    if isinstance(found, PoolError):
        wrong = Check("the flavors exist", found.error, f"openstack flavor list; {HOWTO}")
        return [*checks, wrong, reach(place, settings.server)]
    offers = offers_of(pool, found)
    checks.append(Check(f"{len(offers)} offers: {', '.join(offer.name for offer in offers)}"))
    checks.append(_quota(compute))
    return [*checks, reach(place, settings.server)]


def _check(what: str, answer: Any, hint: str) -> Check:
    return Check(what, answer.error, hint) if isinstance(answer, PoolError) else Check(what)


def _quota(compute: Compute) -> Check:
    answer = compute.call("GET", "/limits")
    if isinstance(answer, PoolError):
        return Check("the quota can be read", answer.error, "the role member of the project lets this")
    limits = answer.get("limits", {}).get("absolute", {})
    most, used = limits.get("maxTotalInstances", -1), limits.get("totalInstancesUsed", 0)
    if 0 <= most <= used:
        return Check("the quota has room", f"{used} of {most} servers exist", "delete some, or ask for more")
    return Check(f"the quota has room: {used} of {'any number of' if most < 0 else most} servers exist")
