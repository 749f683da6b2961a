"""What a user writes below a [[pool]] of kind `openstack`, and what is wrong with it. Pure."""

from __future__ import annotations

from msgspec import Struct

from windfall.errors import BadInput
from windfall.pools.kinds import PoolConfig
from windfall.pools.starting.shipped import check_account
from windfall.units import parse_duration

HOWTO = "see docs/howto/openstack.md"
MOST_USD_PER_H = 1e6
Words = list[str]
Prices = dict[str, float]


class OpenStackSettings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `openstack`."""

    cloud: str = ""
    """Name in clouds.yaml; default: OS_CLOUD, or the variables OS_AUTH_URL and so on."""
    region_name: str = ""
    prices: Prices = {}
    """Dollars per hour of a normal server, by flavor (name or id)."""
    preemptible_prices: Prices = {}
    """Dollars per hour of a preemptible server, by flavor; a flavor that does not say so itself gets a hint."""
    image: str = ""
    """Id of the image."""
    networks: Words = []
    """Ids of networks; default: what Nova chooses (`auto`), or `none`."""
    security_groups: Words = []
    key_name: str = ""
    zone: str = ""
    """Availability zone; default: any."""
    metadata: dict[str, str] = {}
    """More metadata for servers."""
    speed: dict[str, float] = {}
    """Speed relative to the reference machine, by flavor."""
    interruptions_per_h: float | None = None
    """Evictions that a preemptible server meets in an hour, if known."""
    boot: str | float = "60s"
    """Time from the order of a server until its worker asks for work."""
    server: str = ""
    """Address of the server as machines see it; default: the one on which it listens."""
    python: str = "python3"
    """The Python (3.8 or newer) of the image."""
    folder: str = "/var/lib/windfall"
    """Folder of the worker on the machine."""
    account: str = "windfall"
    """Account of the worker and its tasks, made if it is not there. Tasks of `root` read all that the worker has."""
    interval: str | float = "10s"
    """Time between two looks at the servers."""
    accepted_within: str | float = "15s"
    """How long an order waits for Nova to choose a host, so that a lack of room is known at once."""
    time_limit: str | float = "60s"
    """A call that takes longer has failed."""


def check_settings(pool: PoolConfig, where: str) -> None:
    """BadInput says which field is wrong; nothing is asked of the cloud."""
    settings: OpenStackSettings = pool.settings
    if not settings.prices and not settings.preemptible_prices:
        hint = 'as in preemptible_prices = { "m1.small" = 0.01 }'
        raise BadInput(f"{where}: it names no flavors and prices", hint=hint)
    if not settings.image:
        raise BadInput(f"{where}: it names no image", hint=f"say image = ID (openstack image list); {HOWTO}")
    check_account(settings.account, where)
    tables = {"prices": settings.prices, "preemptible_prices": settings.preemptible_prices, "speed": settings.speed}
    for name, table in tables.items():
        if bad := next((key for key, value in table.items() if not 0 < value < MOST_USD_PER_H), None):
            raise BadInput(f"{where}: {name}: '{bad}' = {table[bad]}", hint="it is a number above 0")
    if bad := next((key for key in settings.metadata if key.startswith("windfall:")), None):
        raise BadInput(f"{where}: metadata: '{bad}'", hint="names that begin with windfall: are taken")
    if "none" in settings.networks and len(settings.networks) > 1:
        raise BadInput(f"{where}: networks: 'none' beside others", hint='say networks = ["none"] alone')
    for name, least in {"interval": 0.1, "time_limit": 1.0, "boot": 0.0, "accepted_within": 0.0}.items():
        if parse_duration(getattr(settings, name), name) < least:
            raise BadInput(f"{where}: {name} = {getattr(settings, name)}", hint=f"at least {least:g} seconds")
    rate = settings.interruptions_per_h
    if rate is not None and not 0 <= rate <= 1e4:
        raise BadInput(f"{where}: interruptions_per_h = {rate}", hint="a rate from 0 up")
