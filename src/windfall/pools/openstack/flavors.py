"""What can be rented: flavors with the prices of the pool's file. Touches the compute API."""

from __future__ import annotations

from msgspec import Struct

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import CREDENTIALS, INVALID, TRANSIENT, PoolError
from windfall.pools.kinds import PoolConfig
from windfall.pools.openstack.api import Compute
from windfall.pools.openstack.settings import HOWTO, OpenStackSettings
from windfall.units import parse_duration

ON_DEMAND, SPOT = "on-demand", "spot"
PREEMPTIBLE = "windfall:preemptible"
_YES = ("true", "yes", "1", "on")


class Rentable(Struct, frozen=True):
    """A flavor in one market."""

    name: str
    id: str
    flavor: str
    market: str
    usd_per_h: float
    cores: int
    memory_gb: float
    by_hint: bool = False
    """The flavor does not say that its servers are preemptible: the request does."""


def read_flavors(compute: Compute, settings: OpenStackSettings) -> dict[str, Rentable] | PoolError:
    """By the name of the offer: FLAVOR/MARKET. A flavor that does not exist is an error."""
    rows = compute.pages("/flavors/detail", "flavors")
    if isinstance(rows, PoolError):
        return rows
    by_name = {str(row[key]): row for row in rows for key in ("id", "name")}
    found: dict[str, Rentable] = {}
    for market, prices in ((ON_DEMAND, settings.prices), (SPOT, settings.preemptible_prices)):
        for name, usd_per_h in prices.items():
            row = by_name.get(name)
            if row is None:
                return PoolError(f"there is no flavor '{name}'", INVALID)
            says = str((row.get("extra_specs") or {}).get(PREEMPTIBLE, "")).lower()
            if says in _YES and market == ON_DEMAND:
                return PoolError(f"flavor '{name}' is preemptible: its price belongs to preemptible_prices", INVALID)
            if says and says not in _YES and market == SPOT:
                return PoolError(f"flavor '{name}' says that its servers are not preemptible", INVALID)
            offer = f"{row['name']}/{market}"
            found[offer] = Rentable(
                offer, str(row["id"]), str(row["name"]), market, usd_per_h, max(1, int(row["vcpus"])),
                int(row["ram"]) / 1024, market == SPOT and not says,
            )  # fmt: skip
    return found


def offers_of(pool: PoolConfig, rentables: dict[str, Rentable]) -> tuple[Offer, ...]:
    """The offers of a pool. A server is billed by the second until it ends, also if Nova evicts it."""
    settings: OpenStackSettings = pool.settings
    return tuple(
        Offer(
            name=each.name,
            price_usd=each.usd_per_h / 3600.0,
            cores=each.cores,
            memory_gb=each.memory_gb,
            speed=settings.speed.get(each.flavor, 1.0),
            cycle_s=1.0,
            lag_s=parse_duration(settings.boot, "boot"),
            market=each.market,
            limit=pool.most,
            pool=pool.name,
            free_if_taken=False,
            when_taken="terminate",
            interruptions_per_h=settings.interruptions_per_h if each.market == SPOT else None,
            pool_limit=pool.most,
        )
        for each in rentables.values()
    )


def refused(pool: str, error: PoolError) -> BadInput:
    """Why a pool cannot be opened, and what to do."""
    hint = f"correct the settings; {HOWTO}"
    if error.kind == CREDENTIALS:
        hint = "openstack server list must work for the user who runs the server"
    elif error.kind == TRANSIENT:
        hint = "try again; the compute API must be reachable"
    return BadInput(f"pool '{pool}': {error.error}", hint=hint)
