"""The kind `ec2` as the registry knows it. Touches the EC2 API when a pool is opened or its offers are asked for."""

from __future__ import annotations

import time

from windfall.planning.offers import Offer
from windfall.pools.contract import PoolError
from windfall.pools.ec2.api import Account
from windfall.pools.ec2.market import offers_of, read_market
from windfall.pools.ec2.pool import Ec2Pool, refused
from windfall.pools.ec2.settings import Ec2Settings, check_settings
from windfall.pools.kinds import MACHINES, Kind, PoolConfig


def offers_now(pool: PoolConfig) -> tuple[Offer, ...]:
    """What the pool rents, at the prices of now. BadInput: AWS does not say."""
    market = read_market(Account(pool.settings), pool.settings, time.time(), None)
    if isinstance(market, PoolError):
        raise refused(pool.name, market)
    return offers_of(pool, market)


KIND = Kind(
    gives=MACHINES, settings=Ec2Settings, open=Ec2Pool, check=check_settings, offers=offers_now,
    limit=100, idle_exit="10m", token_life="4h",
)  # fmt: skip
