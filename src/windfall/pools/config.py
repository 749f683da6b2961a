"""A pools.toml, read and checked; errors name the file and the field. Touches that file and the traces it names."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windfall.core.sites.instances import SiteRules
from windfall.core.state.pools import PoolRules
from windfall.errors import BadInput
from windfall.pools.emulated_config import Cloud, rented_from
from windfall.pools.site import check_site
from windfall.units import parse_duration

LOCAL, SELF, SITE, EMULATED = "local", "self", "site", "emulated"
KINDS = (LOCAL, SELF, SITE, EMULATED)
RENTS = (EMULATED,)
"""Kinds that rent machines for the plans of jobs; the others start workers when tasks wait."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}\Z")
_FIELD = re.compile(r"unknown field `(?P<name>[^`]+)`")
_PATH = re.compile(r"`\$\.?(?P<path>[^`]*)`")


def is_name(text: str) -> bool:
    """Whether the text is a valid name of a pool."""
    return bool(_NAME.match(text))


class PoolConfig(Struct, forbid_unknown_fields=True):
    """One [[pool]] of the file."""

    name: str
    kind: str = LOCAL
    limit: int | None = None
    """Most workers or machines; default 1, for a site or a cloud 1000."""
    slots: int = 1
    price: float = 0.0
    """Dollars per hour of one worker."""
    per_minute: float = 60.0
    idle_exit: str | float | None = None
    """Time without work after which a worker ends: default 1m; 1h on a rented machine, which its plan ends."""
    instance: dict[str, float] = {}
    """Site: resources of one preemptible instance."""
    grace: str | float = "10s"
    cost: str = "work"
    offer: list[dict[str, Any]] = []
    """Cloud: its offers, each with a `law` that says how machines are interrupted."""
    time_scale: float = 1.0
    """Cloud: seconds of the cloud per real second."""
    notice: str | float = "0s"
    """Cloud: time between the notice and the interruption of a machine."""
    seed: int = 0
    base: str = ""
    """Folder of the file, set by the reader: paths in the file are relative to it."""

    @property
    def site(self) -> SiteRules:
        return SiteRules(
            self.name,
            self.instance,
            1000 if self.limit is None else self.limit,
            parse_duration(self.grace, "grace"),
            self.cost,
            self.idle_exit_s,
            float(self.price),
            float(self.per_minute),
        )

    @property
    def rules(self) -> PoolRules:
        if self.kind == SITE:
            return self.site.pool
        limit = 1 if self.limit is None else self.limit
        return PoolRules(
            self.name, self.kind, limit, self.slots, float(self.price), float(self.per_minute), self.kind == SELF
        )

    @property
    def idle_exit_s(self) -> float:
        default = "1h" if self.kind in RENTS else "1m"
        return parse_duration(default if self.idle_exit is None else self.idle_exit, "idle_exit")

    def cloud(self, where: str = "") -> Cloud:
        """The emulated provider of this [[pool]], with times in real seconds."""
        notice_s = parse_duration(self.notice, "notice") / self.time_scale
        rented = tuple(
            rented_from(table, self.name, self.time_scale, Path(self.base), f"{where}: offer {number}")
            for number, table in enumerate(self.offer, 1)
        )
        limit = 1000 if self.limit is None else self.limit
        return Cloud(self.name, rented, limit, notice_s, self.seed, self.idle_exit_s)


class PoolsFile(Struct, forbid_unknown_fields=True):
    pool: list[PoolConfig]


def read_pools(path: Path, time_scale: float | None = None) -> list[PoolConfig]:
    """The pools of a file; BadInput says what is wrong with it. `time_scale` overrides that of its clouds."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", hint='a file with [[pool]] and name = "..." is needed') from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from None
    if not table.get("pool"):
        raise BadInput(f"{path} has no pool in it", hint='begin one with [[pool]], then name = "here", limit = 4')
    try:
        pools = msgspec.convert(table, PoolsFile).pool
    except msgspec.ValidationError as error:
        raise _worded(error, table, path) from None
    seen: set[str] = set()
    for number, pool in enumerate(pools, 1):
        pool.base = str(path.parent)
        if time_scale is not None and pool.kind == EMULATED:
            pool.time_scale = time_scale
        _check(pool, f"{path}: pool {number} '{pool.name}'")
        if pool.name in seen:
            raise BadInput(f"{path}: two pools are called '{pool.name}'", hint="give one of them another name")
        seen.add(pool.name)
    return pools


def _check(pool: PoolConfig, where: str) -> None:
    if not is_name(pool.name):
        raise BadInput(f"{where}: not a name", hint="letters, digits, '.', '_' and '-', at most 60")
    if pool.kind not in KINDS:
        near = get_close_matches(pool.kind, KINDS, n=1)
        hint = f'did you mean kind = "{near[0]}"?' if near else f"the kinds are: {', '.join(KINDS)}"
        raise BadInput(f"{where}: there is no kind '{pool.kind}'", hint=hint)
    for name, least, most in (("limit", 1, 100_000), ("slots", 1, 4096), ("price", 0, 1e6), ("per_minute", 0.01, 1e6)):
        value = getattr(pool, name)
        if value is not None and not least <= value <= most:
            raise BadInput(f"{where}: {name} = {value}", hint=f"it is a number from {least:g} to {most:g}")
    try:
        idle_exit_s = pool.idle_exit_s
    except BadInput as error:
        raise BadInput(f"{where}: {error.message}", hint=error.hint) from None
    if idle_exit_s < 1:
        raise BadInput(f"{where}: idle_exit = {pool.idle_exit}", hint="at least one second")
    if pool.kind == EMULATED:
        _check_cloud(pool, where)
    elif pool.offer:
        raise BadInput(f"{where}: only a cloud has offers", hint=f'say kind = "{EMULATED}", or leave `offer` out')
    if pool.kind == SITE:
        check_site(pool.site, where)
    elif pool.instance:
        raise BadInput(f"{where}: only a site has instances", hint='say kind = "site", or leave `instance` out')


def _check_cloud(pool: PoolConfig, where: str) -> None:
    if not 1e-3 <= pool.time_scale <= 1e6:
        raise BadInput(f"{where}: time_scale = {pool.time_scale}", hint="as in 60: a minute of the cloud in a second")
    try:
        offers = pool.cloud(where).offers
    except BadInput as error:
        message = error.message if error.message.startswith(where) else f"{where}: {error.message}"
        raise BadInput(message, hint=error.hint) from None
    if not offers:
        raise BadInput(f"{where}: it rents nothing", hint="begin an offer with [[pool.offer]]; see docs/howto/cloud.md")
    names = [offer.name for offer in offers]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{where}: two offers are called '{twice}'", hint="give one of them another name")


def _worded(error: msgspec.ValidationError, table: dict[str, Any], path: Path) -> BadInput:
    message = str(error)
    place = _PATH.search(message)
    numbered = re.match(r"pool\[(\d+)\](?:\.(?P<field>\w+))?", place["path"] if place else "")
    where = str(path)
    if numbered:
        entry = table["pool"][int(numbered[1])]
        name = f" '{entry['name']}'" if isinstance(entry, dict) and "name" in entry else ""
        where = f"{path}: pool {int(numbered[1]) + 1}{name}"
    unknown = _FIELD.search(message)
    if unknown:
        fields = PoolConfig.__struct_fields__ if numbered else ("pool",)
        near = get_close_matches(unknown["name"], fields, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"what it may say: {', '.join(fields)}"
        return BadInput(f"{where}: unknown field '{unknown['name']}'", hint=hint)
    what = message.split(" - at ")[0]
    field = f": {numbered['field']}" if numbered and numbered["field"] else ""
    return BadInput(f"{where}{field}: {what[0].lower()}{what[1:]}", hint="see docs/howto/pools.md")
