"""Kind `ec2` for the contract suite: a cloud of its own for each test, all on one moto server."""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.support.ec2 import ZONE_A, ZONE_B, Cloud, cloud_on, moto_server
from tests.support.pools.pool_worlds import World, kind_of_pool
from windfall.pools.ec2.pool import Ec2Pool
from windfall.pools.ec2.settings import Ec2Settings
from windfall.pools.kinds import Place, PoolConfig


@cache
def shared_moto() -> int:
    """The port of a moto server that lives as long as this process: it takes seconds to start."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moto-")))
    port = stack.enter_context(moto_server(folder))
    _warm_up(port)
    return port


def _warm_up(port: int) -> None:
    """Have moto read its tables, which takes seconds, before anything waits for an answer."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "ec2", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="x",
        aws_secret_access_key="x", config=Config(read_timeout=120),
    )  # fmt: skip
    client.describe_instance_types(InstanceTypes=["c5.large"])
    client.describe_instance_type_offerings(Filters=[{"Name": "instance-type", "Values": ["c5.large"]}])
    client.close()


@contextmanager
def priced_cloud(directory: Path) -> Iterator[Cloud]:
    """A cloud with spot prices in two zones, which boto3 in this process uses, too."""
    with cloud_on(shared_moto(), directory) as cloud:
        for zone, usd_per_h in ((ZONE_A, 0.03), (ZONE_B, 0.04)):
            cloud.proxy.set_price("c5.large", zone, usd_per_h, time.time() - 7200.0)
        before = {key: os.environ.get(key) for key in cloud.environment}
        os.environ.update(cloud.environment)
        try:
            yield cloud
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


def opened(cloud: Cloud, place: Place, name: str = "p", limit: int = 10, **other: Any) -> Ec2Pool:
    fields = {key: other.pop(key) for key in ("idle_exit", "unreachable_exit", "token_life") if key in other}
    settings = msgspec.convert(cloud.settings(**{"server": place.url, **other}), Ec2Settings)
    return Ec2Pool(PoolConfig(name, "ec2", limit, settings=settings, **fields), place)


class PokedEc2(Ec2Pool):
    """Kind `ec2` with a provider that does as it is told."""

    cloud: Cloud

    def poke(self, id: str, what: str) -> None:
        proxy = self.cloud.proxy
        if what == "resume":
            proxy.resume(id)
        elif what == "notice":
            proxy.mark(id, "marked-for-hibernation")
        else:
            proxy.interrupt(id, behaviour=what)


def poked(cloud: Cloud, place: Place) -> PokedEc2:
    """A pool `cloud` of at most 3 machines; those of spot are hibernated."""
    settings = msgspec.convert(cloud.settings(interruption="hibernate"), Ec2Settings)
    pool = PokedEc2(PoolConfig("cloud", "ec2", 3, settings=settings), place)
    pool.cloud = cloud
    return pool


@kind_of_pool("ec2")
@contextmanager
def ec2(directory: Path, url: str) -> Iterator[World]:
    with priced_cloud(directory / "ec2") as cloud:
        (directory / "pool").mkdir()
        place = Place(url, directory / "state" / "token", directory / "pool", owner="me")
        offer = next(each for each in opened(cloud, place).offers if each.market == "on-demand")
        yield World(lambda place, **fields: opened(cloud, place, **fields), directory, url, offer)
