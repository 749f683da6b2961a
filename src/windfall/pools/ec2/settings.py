"""What a user writes below a [[pool]] of kind `ec2`, and what is wrong with it. Pure."""

from __future__ import annotations

import re

from msgspec import Struct, field

from windfall.errors import BadInput
from windfall.pools.kinds import PoolConfig
from windfall.pools.starting.shipped import check_account
from windfall.units import parse_duration

ON_DEMAND, SPOT = "on-demand", "spot"
TERMINATE, STOP, HIBERNATE = "terminate", "stop", "hibernate"
DRAIN, LEAVE, IGNORE = "drain", "leave", "ignore"
HOWTO = "see docs/howto/ec2.md"
_TYPE = re.compile(r"[a-z0-9*?-]+(\.[a-z0-9*?-]+)?\Z")
Words = list[str]


class Ec2Settings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `ec2`."""

    regions: Words = []
    """As in ["eu-central-1"]; default: the region of the AWS configuration."""
    types: Words = []
    """Instance types, `*` for any part: ["c7g.*", "m7i.large"]."""
    markets: Words = field(default_factory=lambda: [SPOT, ON_DEMAND])
    interruption: str = TERMINATE
    """What happens to a spot machine that is reclaimed: terminate, stop or hibernate."""
    image: str | dict[str, str] = ""
    """Image (ami-...), or a table of them by region, architecture, or `region/architecture`."""
    launch_template: str = ""
    """Name or id (lt-...) of a launch template, `NAME:VERSION` for a version of it; default version: $Default."""
    zones: Words = []
    """Availability zones; default: all of the regions."""
    subnets: Words = []
    """Subnets, at most one is used in each zone; default: the default subnets."""
    security_groups: Words = []
    key_name: str = ""
    instance_profile: str = ""
    """Name of the IAM instance profile, for tasks that use AWS themselves."""
    tags: dict[str, str] = {}
    """More tags for machines and their volumes."""
    on_demand_prices: dict[str, float] = {}
    """Dollars per hour by instance type, where the price list cannot be read."""
    speed: dict[str, float] = {}
    """Speed relative to the reference machine, by instance type or pattern."""
    interruptions_per_h: float | None = None
    """Interruptions that a spot machine meets in an hour, if known."""
    boot: str | float = "60s"
    """Time from the order of a machine until its worker asks for work."""
    minimum: str | float = "60s"
    """The shortest time that is billed."""
    rebalance: str = DRAIN
    """On a rebalance recommendation: drain (take no new task), leave (end tasks with their grace time) or ignore."""
    notices_every: str | float = "5s"
    """Time between two looks of a worker at the metadata service."""
    profile: str = ""
    """Profile of the AWS configuration."""
    endpoint: str = ""
    """Address of another service that speaks the EC2 API."""
    server: str = ""
    """Address of the server as machines see it; default: the one on which it listens."""
    python: str = "python3"
    """The Python (3.8 or newer) of the image."""
    folder: str = "/var/lib/windfall"
    """Folder of the worker on the machine."""
    account: str = "windfall"
    """Account of the worker and its tasks, made if it is not there. Tasks of `root` read all that the worker has."""
    interval: str | float = "10s"
    """Time between two looks at the machines."""
    prices_every: str | float = "5m"
    """Time between two looks at the price history."""
    calls_per_s: float = 5.0
    """Most calls of the API per second and region; bursts of four seconds' worth are allowed."""
    data_usd_per_gb: float | dict[str, float] = 0.0
    """Dollars for a GB that a machine fetches from another region, or a table by the region of the data."""
    data_mb_per_s: float | dict[str, float] | None = None
    """How fast it comes, likewise; default: its time is not counted."""
    time_limit: str | float = "60s"
    """A call that takes longer has failed."""

    def image_for(self, region: str, architecture: str) -> str:
        if isinstance(self.image, str):
            return self.image
        keys = (f"{region}/{architecture}", region, architecture)
        return next((self.image[key] for key in keys if key in self.image), "")

    def speed_of(self, type_name: str) -> float:
        from fnmatch import fnmatchcase

        return next((speed for pattern, speed in self.speed.items() if fnmatchcase(type_name, pattern)), 1.0)


def launch_template(text: str) -> dict[str, str]:
    """`NAME`, `lt-ID` or either with `:VERSION`."""
    name, _, version = text.partition(":")
    key = "LaunchTemplateId" if name.startswith("lt-") else "LaunchTemplateName"
    return {key: name, "Version": version or "$Default"}


def check_settings(pool: PoolConfig, where: str) -> None:
    """BadInput says which field is wrong; nothing is asked of AWS."""
    settings: Ec2Settings = pool.settings
    if not settings.types:
        raise BadInput(f"{where}: it names no instance types", hint='as in types = ["c7g.*"]')
    if bad := next((name for name in settings.types if not _TYPE.match(name)), None):
        raise BadInput(f"{where}: types: '{bad}' is not an instance type", hint='as in "c7g.*" or "m7i.large"')
    if not settings.image and not settings.launch_template:
        hint = f'say image = "ami-...", or launch_template = "NAME"; {HOWTO}'
        raise BadInput(f"{where}: it names no image and no launch template", hint=hint)
    check_account(settings.account, where)
    _check_choices(settings, where)
    _check_numbers(settings, where)


def _check_choices(settings: Ec2Settings, where: str) -> None:
    for market in settings.markets:
        if market not in (SPOT, ON_DEMAND):
            raise BadInput(f"{where}: markets: '{market}'", hint=f'they are "{SPOT}" and "{ON_DEMAND}"')
    if not settings.markets:
        raise BadInput(f"{where}: markets is empty", hint=f'as in markets = ["{SPOT}", "{ON_DEMAND}"]')
    for name, choices in (("interruption", (TERMINATE, STOP, HIBERNATE)), ("rebalance", (DRAIN, LEAVE, IGNORE))):
        if getattr(settings, name) not in choices:
            raise BadInput(f"{where}: {name} = '{getattr(settings, name)}'", hint=f"it is one of: {', '.join(choices)}")
    if bad := next((key for key in settings.tags if key.startswith(("windfall:", "aws:"))), None):
        raise BadInput(f"{where}: tags: '{bad}'", hint="names that begin with windfall: or aws: are taken")


def _check_numbers(settings: Ec2Settings, where: str) -> None:
    leasts = {"interval": 0.1, "prices_every": 0.1, "notices_every": 0.1, "time_limit": 1.0}
    for name, least in (leasts | {"boot": 0.0, "minimum": 0.0}).items():
        if parse_duration(getattr(settings, name), name) < least:
            raise BadInput(f"{where}: {name} = {getattr(settings, name)}", hint=f"at least {least:g} seconds")
    if not 0.1 <= settings.calls_per_s <= 1000:
        raise BadInput(f"{where}: calls_per_s = {settings.calls_per_s}", hint="it is a number from 0.1 to 1000")
    for table in (settings.on_demand_prices, settings.speed):
        if bad := next((key for key, value in table.items() if not 0 < value < 1e6), None):
            raise BadInput(f"{where}: '{bad}' = {table[bad]}", hint="it is a number above 0")
    rate = settings.interruptions_per_h
    if rate is not None and not 0 <= rate <= 1e4:
        raise BadInput(f"{where}: interruptions_per_h = {rate}", hint="a rate from 0 up")
