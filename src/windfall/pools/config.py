"""A pools.toml, read and checked; errors name the file and the field. Touches that file, reading only."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windfall.bags.units import parse_duration
from windfall.core.instances import SiteRules
from windfall.core.overlay import PoolRules
from windfall.errors import BadInput
from windfall.pools.site import check_site

LOCAL, SELF, SITE = "local", "self", "site"
KINDS = (LOCAL, SELF, SITE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}\Z")
_FIELD = re.compile(r"unknown field `(?P<name>[^`]+)`")
_PATH = re.compile(r"`\$\.?(?P<path>[^`]*)`")


def is_name(text: str) -> bool:
    """May a pool be called so?"""
    return bool(_NAME.match(text))


class PoolConfig(Struct, forbid_unknown_fields=True):
    """One [[pool]] of the file."""

    name: str
    kind: str = LOCAL
    limit: int | None = None
    """Clients at most; 1 if it is not said, 1000 for a site, whose hosts limit it anyway."""
    slots: int = 1
    price: float = 0.0
    """Dollars for an hour of one client."""
    per_minute: float = 60.0
    idle_exit: str | float = "1m"
    instance: dict[str, float] = {}
    """Of a site: what one preemptible instance takes of a host."""
    grace: str | float = "10s"
    cost: str = "work"

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
        return parse_duration(self.idle_exit, "idle_exit")


class PoolsFile(Struct, forbid_unknown_fields=True):
    pool: list[PoolConfig]


def read_pools(path: Path) -> list[PoolConfig]:
    """The pools of a file, or what is wrong with it."""
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
    if pool.kind == SITE:
        check_site(pool.site, where)
    elif pool.instance:
        raise BadInput(f"{where}: only a site has instances", hint='say kind = "site", or leave `instance` out')


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
