"""`hooks.toml`: who is told of which states of which jobs. Reads the files that it names."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from windfall.bounds import Name, Seconds, Text, convert
from windfall.errors import BadInput

FINAL = ("done", "failed", "cancelled")
STATES = ("open", "running", "paused", *FINAL)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


class Entry(Struct, forbid_unknown_fields=True):
    """One `[[hook]]` as it stands in the file."""

    name: Name
    url: Text = ""
    command: Annotated[list[Text], Meta(max_length=100)] = []
    states: Annotated[tuple[str, ...], Meta(min_length=1)] = FINAL
    jobs: Name = "*"
    secret_file: Text = ""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    tries: Annotated[int, Meta(ge=1, le=100)] = 20
    pause_s: Seconds = 1.0


class Hook(Struct, frozen=True):
    """Whom to tell, of what, and how often to try."""

    name: str
    url: str
    command: tuple[str, ...]
    states: frozenset[str]
    jobs: str
    secret: bytes
    timeout_s: float
    tries: int
    pause_s: float

    def wants(self, job_name: str, state: str) -> bool:
        return state in self.states and fnmatchcase(job_name, self.jobs)


def read_hooks(path: Path) -> list[Hook]:
    """The hooks of a file; BadInput says what is wrong with it."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", hint="a file with [[hook]] is needed") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from None
    entries = table.get("hook")
    if not isinstance(entries, list) or not entries or len(table) > 1:
        raise BadInput(f"{path} has no list of hooks", hint="begin each with [[hook]]; nothing else stands in the file")
    hooks: list[Hook] = []
    for number, entry in enumerate(entries, 1):
        hook = _hook(entry, f"{path}: hook {number}", path.parent)
        if any(other.name == hook.name for other in hooks):
            raise BadInput(f"{path}: two hooks are called '{hook.name}'", hint="give one of them another name")
        hooks.append(hook)
    return hooks


def _hook(given: Any, where: str, base: Path) -> Hook:
    entry = convert(given, Entry, where)
    if not _NAME.fullmatch(entry.name):
        raise BadInput(f"{where}: name is 1 to 64 letters, digits, '.', '_' and '-'")
    if bool(entry.url) == bool(entry.command):
        raise BadInput(f"{where}: either url or command", hint='as in: url = "https://chat.example.org/in"')
    parts = urlsplit(entry.url)
    if entry.url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise BadInput(f"{where}: url is no address of http or https")
    if unknown := [state for state in entry.states if state not in STATES]:
        raise BadInput(f"{where}: no state '{unknown[0]}'", hint=f"states are: {', '.join(STATES)}")
    return Hook(
        entry.name, entry.url, tuple(entry.command), frozenset(entry.states), entry.jobs,
        _secret(entry.secret_file, where, base), entry.timeout_s, entry.tries, entry.pause_s,
    )  # fmt: skip


def _secret(file: str, where: str, base: Path) -> bytes:
    if not file:
        return b""
    try:
        secret = (base / file).read_bytes().strip()
    except OSError as error:
        raise BadInput(f"{where}: secret_file {file}: {error.strerror}") from None
    if len(secret) < 16:
        raise BadInput(f"{where}: secret_file {file} has fewer than 16 bytes", hint="openssl rand -hex 32 > FILE")
    return secret
