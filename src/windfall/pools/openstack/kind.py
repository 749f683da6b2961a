"""The kind `openstack` as the registry knows it. Touches the compute API when a pool is opened or asked for offers."""

from __future__ import annotations

from windfall.planning.offers import Offer
from windfall.pools.contract import PoolError
from windfall.pools.kinds import MACHINES, Kind, PoolConfig
from windfall.pools.openstack.api import Compute
from windfall.pools.openstack.flavors import offers_of, read_flavors, refused
from windfall.pools.openstack.pool import OpenStackPool
from windfall.pools.openstack.settings import OpenStackSettings, check_settings


def offers_now(pool: PoolConfig) -> tuple[Offer, ...]:
    """What the pool rents. BadInput: the cloud does not say."""
    found = read_flavors(Compute(pool.settings), pool.settings)
    if isinstance(found, PoolError):
        raise refused(pool.name, found)
    return offers_of(pool, found)


KIND = Kind(
    gives=MACHINES, settings=OpenStackSettings, open=OpenStackPool, check=check_settings, offers=offers_now,
    limit=100, idle_exit="10m", token_life="4h",
)  # fmt: skip
