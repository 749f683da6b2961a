"""The arguments of `run_instances` for one order. Touches the files of the token and the certificate."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from windfall.pools.contract import INVALID, Order, PoolError
from windfall.pools.ec2.catalogue import Rentable
from windfall.pools.ec2.settings import HIBERNATE, SPOT, TERMINATE, Ec2Settings, launch_template
from windfall.pools.ec2.sight import HOST, PERSISTENT, POOL, STATE
from windfall.pools.ec2.userdata import MOST_BYTES, user_data
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.starting.reach import LISTEN
from windfall.pools.starting.shipped import is_loopback, server_of, worker_options
from windfall.units import parse_duration

Json = dict[str, Any]


def client_token(owner: str, pool: str, host: str) -> str:
    """At most 64 characters, and the same for the same order."""
    return sha256(f"{owner}/{pool}/{host}".encode()).hexdigest()


def our_tags(owner: str, pool: str, host: str) -> dict[str, str]:
    return {STATE: owner, POOL: pool, HOST: host}


def tag_list(tags: dict[str, str]) -> list[Json]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def launch_arguments(pool: PoolConfig, place: Place, order: Order, rentable: Rentable) -> Json | PoolError:
    """OSError: the token cannot be read."""
    settings: Ec2Settings = pool.settings
    data = _user_data(pool, place, order, rentable)
    if len(data.encode()) > MOST_BYTES:
        return PoolError(f"the user data has {len(data.encode())} bytes, and EC2 takes {MOST_BYTES}", INVALID)
    arguments: Json = {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": rentable.type.name,
        "ClientToken": client_token(place.owner, pool.name, order.host),
        "UserData": data,
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "TagSpecifications": _tag_specifications(pool, place, order, rentable),
        **_place(settings, rentable),
        **_market(settings, rentable),
    }
    if rentable.image:
        arguments["ImageId"] = rentable.image
    if settings.launch_template:
        arguments["LaunchTemplate"] = launch_template(settings.launch_template)
    if settings.security_groups:
        arguments["SecurityGroupIds"] = settings.security_groups
    if settings.key_name:
        arguments["KeyName"] = settings.key_name
    if settings.instance_profile:
        arguments["IamInstanceProfile"] = {"Name": settings.instance_profile}
    return arguments


def unreachable(settings: Ec2Settings, place: Place) -> PoolError | None:
    """An error if machines would be told an address of their own: they would be paid for without doing anything.

    Machines of a service on this host may use such an address.
    """
    server = server_of(place, settings.server)
    if not is_loopback(server) or (settings.endpoint and is_loopback(settings.endpoint)):
        return None
    return PoolError(f"no machine could reach the server at {server}: {LISTEN}", INVALID)


def _place(settings: Ec2Settings, rentable: Rentable) -> Json:
    if rentable.subnet:
        return {"SubnetId": rentable.subnet}
    return {"Placement": {"AvailabilityZone": rentable.zone}}


def _market(settings: Ec2Settings, rentable: Rentable) -> Json:
    if rentable.market != SPOT:
        return {"InstanceInitiatedShutdownBehavior": "terminate"}
    once = settings.interruption == TERMINATE
    options = {
        "SpotInstanceType": "one-time" if once else PERSISTENT,
        "InstanceInterruptionBehavior": settings.interruption,
    }
    found: Json = {
        "InstanceMarketOptions": {"MarketType": SPOT, "SpotOptions": options},
        # A persistent request would replace an instance that terminates itself; one that stops it leaves alone.
        "InstanceInitiatedShutdownBehavior": "terminate" if once else "stop",
    }
    if settings.interruption == HIBERNATE:
        found["HibernationOptions"] = {"Configured": True}
    return found


def _tag_specifications(pool: PoolConfig, place: Place, order: Order, rentable: Rentable) -> list[Json]:
    ours = our_tags(place.owner, pool.name, order.host)
    tags = tag_list({"Name": f"windfall {order.host}", **pool.settings.tags, **ours})
    kinds = ["instance", "volume", *(["spot-instances-request"] if rentable.market == SPOT else [])]
    return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


def _user_data(pool: PoolConfig, place: Place, order: Order, rentable: Rentable) -> str:
    settings: Ec2Settings = pool.settings
    options = worker_options(order, pool)
    options += ["--notices", "ec2", "--rebalance", settings.rebalance]
    options += ["--notices-every", f"{parse_duration(settings.notices_every):g}"]
    about = {"type": rentable.type.name, "zone": rentable.zone, "market": rentable.market}
    about |= {"gpus": str(rentable.type.gpus)} if rentable.type.gpus else {}
    for key, value in about.items():
        options += ["--tag", f"{key}={value}"]
    return user_data(
        server=server_of(place, settings.server),
        ticket=place.ticket_for(order.host),
        certificate=Path(place.cafile).read_text() if place.cafile else "",
        folder=f"{settings.folder}/{order.host}",
        python=settings.python,
        account=settings.account,
        patience_s=pool.unreachable_exit_s,
        options=options,
    )
