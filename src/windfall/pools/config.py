"""A pools.toml, read and checked; errors name the file and the field. Touches that file and the traces it names."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from windfall.errors import BadInput
from windfall.escaping import visible
from windfall.pools.kinds import MACHINES, PoolConfig, kinds_with_field
from windfall.units import DAY_S, parse_duration

COMMON = (
    "name", "kind", "limit", "slots", "price", "per_minute", "backlog", "least_slots", "idle_exit", "unreachable_exit",
    "token_life", "least_cpu",
)  # fmt: skip
"""Fields that a pool of every kind has."""
MOST_YEARS = 10
MOST_TEXT = 32_768
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}\Z")
_FIELD = re.compile(r"unknown field `(?P<name>[^`]+)`")
_PATH = re.compile(r"`\$\.?(?P<path>[^`]*)`")


def is_name(text: str) -> bool:
    """Whether the text is a valid name of a pool."""
    return bool(_NAME.match(text))


def rents(pool: PoolConfig) -> bool:
    """Whether it rents machines for the plans of jobs; others start workers when tasks wait."""
    return pool.of.gives == MACHINES


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
    if unknown := next((name for name in table if name != "pool"), None):
        raise BadInput(f"{path}: unknown field '{unknown}'", hint="everything stands below a [[pool]]")
    if not isinstance(table["pool"], list):
        raise BadInput(f"{path}: pool is not a list", hint="begin each pool with [[pool]], in double brackets")
    pools: list[PoolConfig] = []
    for number, entry in enumerate(table["pool"], 1):
        pool = _read(entry, f"{path}: pool {number}", path.parent, time_scale)
        if any(other.name == pool.name for other in pools):
            raise BadInput(f"{path}: two pools are called '{pool.name}'", hint="give one of them another name")
        pools.append(pool)
    return pools


def read_pool(entry: Any, where: str, base: Path) -> PoolConfig:
    """One pool, as it would stand below [[pool]]; BadInput says what is wrong with it."""
    return _read(entry, where, base, None)


def _read(entry: Any, where: str, base: Path, time_scale: float | None) -> PoolConfig:
    if not isinstance(entry, dict):
        raise BadInput(f"{where} is not a table", hint="begin each pool with [[pool]]")
    where += f" '{visible(str(entry['name'])[:80])}'" if "name" in entry else ""
    _check_texts(entry, where)
    pool: PoolConfig = _converted({key: entry[key] for key in COMMON if key in entry}, PoolConfig, where, "")
    pool.base = base
    try:
        kind = pool.of
    except BadInput as error:
        raise BadInput(f"{where}: {error.message}", hint=error.hint) from None
    own = {key: value for key, value in entry.items() if key not in COMMON}
    pool.settings = _converted(own, kind.settings, where, pool.kind)
    if time_scale is not None and "time_scale" in kind.settings.__struct_fields__:
        pool.settings.time_scale = time_scale
    _check(pool, where)
    return pool


def _check_texts(value: Any, where: str) -> None:
    """No text, at any depth, may have characters that no program, path or address can have."""
    if isinstance(value, dict):
        for name, each in value.items():
            _check_texts(str(name), where)
            _check_texts(each, f"{where}: {visible(str(name))}")
    elif isinstance(value, list):
        for each in value:
            _check_texts(each, where)
    elif isinstance(value, str) and (len(value) > MOST_TEXT or _CONTROL.search(value)):
        what = "a control character" if _CONTROL.search(value) else f"more than {MOST_TEXT} characters"
        raise BadInput(f"{where}: a text with {what}", hint="write it as plain text")


def _check_durations(values: Struct, where: str) -> None:
    """Fields that may be a text or a number are durations: none is longer than any clock or timer can hold."""
    hints = get_type_hints(type(values))
    for name in values.__struct_fields__:
        value = getattr(values, name)
        if value is not None and hints[name] in (str | float, str | float | None):
            seconds = parse_duration(value, name)
            if seconds > MOST_YEARS * 365 * DAY_S:
                raise BadInput(f"{where}: {name} = {value}", hint=f"at most {MOST_YEARS} years")


def _check_server(settings: Any, where: str) -> None:
    """The address of the server as workers see it, where a kind has such a field."""
    server = getattr(settings, "server", "")
    if server and urlsplit(server).scheme not in ("http", "https"):
        raise BadInput(f"{where}: server = '{server}'", hint='as in server = "http://head.example.org:7272"')


def _check(pool: PoolConfig, where: str) -> None:
    if not is_name(pool.name):
        raise BadInput(f"{where}: not a name", hint="letters, digits, '.', '_' and '-', at most 60")
    bounds = (("limit", 1, 100_000), ("slots", 1, 4096), ("price", 0, 1e6), ("per_minute", 0.01, 1e6))
    for name, least, most in (*bounds, ("backlog", 0, 100_000), ("least_slots", 0, 4096), ("least_cpu", 0.01, 0.99)):
        value = getattr(pool, name)
        if value is not None and not least <= value <= most:
            raise BadInput(f"{where}: {name} = {value}", hint=f"it is a number from {least:g} to {most:g}")
    try:
        _check_durations(pool, where)
        _check_durations(pool.settings, where)
        _check_server(pool.settings, where)
        if pool.idle_exit_s < 1:
            raise BadInput(f"{where}: idle_exit = {pool.idle_exit}", hint="at least one second")
        for name, seconds in (("unreachable_exit", pool.unreachable_exit_s), ("token_life", pool.token_life_s)):
            if seconds < 5:
                raise BadInput(f"{where}: {name} = {getattr(pool, name)}", hint="at least five seconds")
        pool.of.check(pool, where)
    except BadInput as error:
        message = error.message if error.message.startswith(where) else f"{where}: {error.message}"
        raise BadInput(message, hint=error.hint) from None


def _converted(table: dict[str, Any], into: type[Any], where: str, kind: str) -> Any:
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        raise _worded(error, into, where, kind) from None


def _worded(error: msgspec.ValidationError, into: type[Any], where: str, kind: str) -> BadInput:
    message = str(error)
    if unknown := _FIELD.search(message):
        return _unknown(unknown["name"], into, where, kind)
    place = _PATH.search(message)
    what = message.split(" - at ")[0]
    field = f": {place['path']}" if place and place["path"] else ""
    hint = "see docs/howto/pools.md"
    if place and "`array`, got `str`" in message:
        hint = f'it is a list, in brackets: {place["path"]} = ["..."]'
    return BadInput(f"{where}{field}: {what[0].lower()}{what[1:]}", hint=hint)


def _unknown(field: str, into: type[Any], where: str, kind: str) -> BadInput:
    fields = [*COMMON, *into.__struct_fields__]
    if elsewhere := kinds_with_field(field):
        hint = f'only a pool of kind = "{elsewhere[0]}" has it'
    elif near := get_close_matches(field, fields, n=1):
        hint = f"did you mean '{near[0]}'?"
    else:
        hint = f"what a pool of kind '{kind}' may say: {', '.join(fields)}"
    return BadInput(f"{where}: unknown field '{field}'", hint=hint)
