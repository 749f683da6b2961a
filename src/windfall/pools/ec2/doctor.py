"""What `windfall pool doctor` finds of a pool of kind `ec2`, without starting an instance. Touches the EC2 API.

Permissions are tried by dry runs: AWS says whether it would have done it.
"""

from __future__ import annotations

from typing import Any

from windfall.pools.contract import CREDENTIALS, Check, Order, PoolError
from windfall.pools.ec2.api import Account, ApiError, Region
from windfall.pools.ec2.catalogue import Rentable
from windfall.pools.ec2.launch import launch_arguments
from windfall.pools.ec2.market import Market, offers_of, read_market
from windfall.pools.ec2.settings import HIBERNATE, HOWTO, SPOT, TERMINATE, Ec2Settings
from windfall.pools.ec2.sight import STATE
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.starting.reach import reach

_DRY_RUN = "DryRunOperation"
_PERMISSIONS = "the permissions that are needed stand in docs/howto/ec2.md"


def examine(pool: PoolConfig, place: Place, account: Account, now: float) -> list[Check]:
    """Credentials, what can be rented and at which prices, permissions, and the address of the server."""
    settings: Ec2Settings = pool.settings
    who = account.identity()
    hint = "aws sts get-caller-identity must work for the user who runs the server; or set `profile`"
    checks = [_check("the credentials are accepted", who, hint)]
    if isinstance(who, PoolError):
        return checks
    checks = [Check(f"the credentials are those of {who.get('Arn', 'somebody')}")]
    market = read_market(account, settings, now, None)
    if isinstance(market, PoolError):
        hint = _PERMISSIONS if market.kind == CREDENTIALS else f"correct the settings; {HOWTO}"
        return [*checks, _check("instance types and prices can be read", market, hint), reach(place, settings.server)]
    checks.append(_offered(pool, market))
    for region in account.regions.values():
        checks += _permissions(pool, place, region, market)
    return [*checks, reach(place, settings.server)]


def _check(what: str, answer: Any, hint: str) -> Check:
    return Check(what, answer.error, hint) if isinstance(answer, PoolError) else Check(what)


def _offered(pool: PoolConfig, market: Market) -> Check:
    offers = offers_of(pool, market)
    if not offers:
        return Check("offers were found", "none has a price", f"choose other types or zones; {HOWTO}")
    types = {market.rentables[offer.name].type.name for offer in offers}
    cheapest = min(offers, key=lambda offer: offer.price_usd / offer.cores)
    usd_per_h = cheapest.price_usd * 3600.0
    kinds = f"{len(types)} instance type{'s' * (len(types) != 1)}"
    return Check(
        f"{len(offers)} offers of {kinds}; the cheapest core is that of {cheapest.name}, "
        f"{usd_per_h:.4f} $ per hour for {cheapest.cores} core{'s' * (cheapest.cores != 1)}"
    )


def _permissions(pool: PoolConfig, place: Place, region: Region, market: Market) -> list[Check]:
    """One dry run of each call that changes something, and a list of what is there."""
    settings: Ec2Settings = pool.settings
    ours = [{"Name": "tag-key", "Values": [STATE]}]
    listed = region.pages("describe_instances", "Reservations", Filters=ours)
    checks = [_check(f"{region.name}: instances can be listed", listed, _PERMISSIONS)]
    for wanted in settings.markets:
        offered = (each for each in market.rentables.values() if (each.region, each.market) == (region.name, wanted))
        if (first := next(offered, None)) is not None:
            checks.append(_dry_start(pool, place, region, first))
    # Permissions may depend on our tags, so these are tried on what carries them.
    if not isinstance(listed, PoolError) and (
        ids := [row["InstanceId"] for each in listed for row in each["Instances"]]
    ):
        checks.append(_dry(region, "instances can be terminated", "terminate_instances", InstanceIds=ids[:1]))
    if SPOT in settings.markets:
        requests = region.pages("describe_spot_instance_requests", "SpotInstanceRequests", Filters=ours)
        checks.append(_check(f"{region.name}: spot requests can be listed", requests, _PERMISSIONS))
        if not isinstance(requests, PoolError) and requests and settings.interruption != TERMINATE:
            ids = [row["SpotInstanceRequestId"] for row in requests]
            said = "spot requests can be cancelled"
            checks.append(_dry(region, said, "cancel_spot_instance_requests", SpotInstanceRequestIds=ids[:1]))
    return checks


def _dry_start(pool: PoolConfig, place: Place, region: Region, first: Rentable) -> Check:
    what = f"{region.name}: {first.type.name} could be started ({first.market}; a dry run)"
    offer = next((each for each in offers_of(pool, Market({first.name: first}, {first.name: 1.0}))), None)
    try:
        arguments = launch_arguments(pool, place, Order("doctor", 1, 0, offer), first)
    except OSError as error:
        return Check(what, f"{error.filename}: {error.strerror}", "the token of the pool must be readable")
    if isinstance(arguments, PoolError):
        return Check(what, arguments.error)
    answer = region.call("run_instances", DryRun=True, **{**arguments, "ClientToken": ""})
    hint = f"see image, subnets, security_groups and launch_template; {HOWTO}"
    if pool.settings.interruption == HIBERNATE:
        hint = f"an image that can hibernate, with an encrypted root volume, is needed; {HOWTO}"
    return _judged(what, answer, hint)


def _dry(region: Region, said: str, method: str, **arguments: Any) -> Check:
    answer = region.call(method, DryRun=True, **arguments)
    if isinstance(answer, ApiError) and answer.kind != CREDENTIALS:
        answer = {}  # it may have gone meanwhile: the permission was looked at before
    return _judged(f"{region.name}: {said} (a dry run)", answer, _PERMISSIONS)


def _judged(what: str, answer: Any, hint: str) -> Check:
    if isinstance(answer, ApiError) and answer.code == _DRY_RUN:
        return Check(what)
    if isinstance(answer, PoolError) and answer.kind == CREDENTIALS:
        hint = _PERMISSIONS
    return _check(what, answer, hint)
