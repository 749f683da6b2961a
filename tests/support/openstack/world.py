"""Kind `openstack` for the contract suite: all tests on one Nova, which each of them finds empty."""

from __future__ import annotations

import atexit
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.openstack import NovaCloud, cloud_on, nova_process, python_of_nova, until
from tests.support.pools.pool_worlds import World, kind_of_pool
from windfall.pools.kinds import Place, PoolConfig


@cache
def shared_nova() -> str:
    """The address of a Nova that lives as long as this process: it takes a while to start."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-")))
    url = stack.enter_context(nova_process(folder))
    with cloud_on(url, folder / "first") as cloud:
        cloud.test("flavor", name="normal", vcpu=2, ram_mb=4000)
        cloud.test("flavor", name="spare", vcpu=2, ram_mb=4000, preemptible=True)
    return url


def opened(cloud: NovaCloud, place: Place, name: str = "p", limit: int = 10, **other: Any) -> Any:
    from windfall.pools.openstack.pool import OpenStackPool
    from windfall.pools.openstack.settings import OpenStackSettings

    fields = {key: other.pop(key) for key in ("idle_exit", "unreachable_exit", "token_life") if key in other}
    settings = msgspec.convert(cloud.settings(**{"server": place.url, **other}), OpenStackSettings)
    return OpenStackPool(PoolConfig(name, "openstack", limit, settings=settings, **fields), place)


@kind_of_pool("openstack", marks=(pytest.mark.nova,))
@contextmanager
def openstack(directory: Path, url: str) -> Iterator[World]:
    python_of_nova()
    pytest.importorskip("openstack", reason="openstacksdk is missing: pip install 'windfall[openstack]'")
    with cloud_on(shared_nova(), directory / "openstack") as cloud:
        (directory / "pool").mkdir()
        place = Place(url, directory / "state" / "token", directory / "pool", owner="me")
        offer = next(each for each in opened(cloud, place).offers if each.market == "spot")
        yield World(lambda place, **fields: opened(cloud, place, **fields), directory, url, offer)


def poked(cloud: NovaCloud, place: Place) -> Any:
    """A pool `cloud` of at most 3 machines, with `poke`: what operators of the cloud do to a server."""
    pool = opened(cloud, place, "cloud", 3)

    def poke(id: str, what: str) -> None:
        if what == "terminate":
            cloud.call("DELETE", f"/servers/{id}")
            until(lambda: all(row["id"] != id for row in cloud.servers()))
        elif what == "notice":
            evicted_at = {"windfall:evicted_at_t": f"{time.time() + 60:.0f}"}
            cloud.call("POST", f"/servers/{id}/metadata", {"metadata": evicted_at})
        else:
            cloud.call("POST", f"/servers/{id}/action", {{"hibernate": "suspend", "resume": "resume"}[what]: None})
            wanted = "SUSPENDED" if what == "hibernate" else "ACTIVE"
            until(lambda: any(row["id"] == id and row["status"] == wanted for row in cloud.servers()))

    pool.poke = poke
    return pool
