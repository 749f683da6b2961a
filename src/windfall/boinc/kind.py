"""Kind `boinc`: hosts are the machines of volunteers, whose BOINC clients ask the server's front. Starts nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from windfall.boinc.validators import argv_of
from windfall.errors import BadInput
from windfall.pools.kinds import NOTHING, Kind, Place, PoolConfig
from windfall.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from windfall.boinc.front import Front

_VALIDATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
_PATH = re.compile(r"/[A-Za-z0-9][A-Za-z0-9_-]{0,39}/\Z")
TAKEN = ("/v1/", "/console/", "/healthz/", "/readyz/", "/metrics/")
"""Paths of the server itself."""


class BoincSettings(Struct, forbid_unknown_fields=True):
    """What stands below [[pool]] with kind = "boinc"."""

    url: str = ""
    """Where volunteers attach: http://HOST:PORT/NAME/. The host has a dot in it."""
    project: str = "Windfall"
    """What clients call the project; must differ from other projects of the same volunteers."""
    ask_again: str | float = "10m"
    """Seconds after which an idle client asks again."""
    deadline: str | float = "7d"
    """Report deadline while nothing is known of how long volunteers take."""
    least_deadline: str | float = "1d"
    """No report deadline is shorter, whatever was learned."""
    most_upload: str | int = "256M"
    """Bytes of the outputs of one workunit."""
    most_results: int = 100
    """Workunits that one answer brings."""
    most_hosts: int = 200
    """Hosts of one account."""
    validators: dict[str, str] = {}
    """Commands on the server's host that judge results, by the names under which jobs ask for them."""

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def ask_again_s(self) -> float:
        return parse_duration(self.ask_again, "ask_again")

    @property
    def deadline_s(self) -> float:
        return max(self.least_deadline_s, parse_duration(self.deadline, "deadline"))

    @property
    def least_deadline_s(self) -> float:
        return parse_duration(self.least_deadline, "least_deadline")

    @property
    def most_upload_bytes(self) -> int:
        return parse_bytes(self.most_upload, "most_upload")


def check(pool: PoolConfig, where: str) -> None:
    settings: BoincSettings = pool.settings
    example = "as in: http://volunteers.example.org:7272/grid/"
    try:
        parts = urlsplit(settings.url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise BadInput(f"{where}: url = {settings.url!r} is not a URL", hint=example) from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise BadInput(f"{where}: url = {settings.url!r} is not a project's URL", hint=example)
    if "." not in host:
        raise BadInput(f"{where}: BOINC clients refuse the host '{host}', which has no dot", hint=example)
    if not _PATH.match(parts.path) or parts.path in TAKEN:
        raise BadInput(f"{where}: the path '{parts.path}' of the url is not /NAME/", hint=example)
    if not settings.project.isprintable() or not 1 <= len(settings.project) <= 60 or set(settings.project) & set("<>&"):
        raise BadInput(f"{where}: project has 1 to 60 printable characters, without <, > and &")
    for name, seconds in (
        ("ask_again", settings.ask_again_s), ("deadline", settings.deadline_s),
        ("least_deadline", settings.least_deadline_s),
    ):  # fmt: skip
        if seconds < 1:
            raise BadInput(f"{where}: {name} is less than a second")
    if not 1 << 10 <= settings.most_upload_bytes <= 2_000_000_000:
        raise BadInput(f"{where}: most_upload is 1 KiB to 2 GB", hint="clients count the bytes of a request in 32 bits")
    if not 1 <= settings.most_results <= 1000:
        raise BadInput(f"{where}: most_results is 1 to 1000")
    if not 1 <= settings.most_hosts <= 100_000:
        raise BadInput(f"{where}: most_hosts is 1 to 100000")
    for name, command in settings.validators.items():
        if not _VALIDATOR.match(name):
            raise BadInput(f"{where}: a validator is called {name!r}", hint="1 to 40 letters, digits, _ and -")
        argv_of(command, f"{where}: validator {name}")


def _front(pool: PoolConfig, place: Place, service: object) -> Front:
    from windfall.boinc.front import Front

    return Front(pool, place.directory, service)


def _deadlines_s(pool: PoolConfig) -> tuple[float, float]:
    settings: BoincSettings = pool.settings
    return settings.deadline_s, settings.least_deadline_s


KIND = Kind(gives=NOTHING, settings=BoincSettings, check=check, front=_front, deadlines_s=_deadlines_s)
