"""Where a state is: a directory, or a PostgreSQL database with a directory on this host. Reads the environment only.

Of a state in PostgreSQL all that must not be lost is in the database: log, snapshots, blobs, tokens. The directory
holds what belongs to this host: where its server listens (`server.json`), the owner's token, logs of workers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, urlencode

from msgspec import Struct

from windfall.errors import BadInput

SCHEMES = ("postgresql", "postgres")
DATABASES = tuple(f"{scheme}://" for scheme in SCHEMES)
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_ALMOST = re.compile(r"\s*postgres(ql)?:", re.IGNORECASE)
_SECRETS = ("password", "sslpassword")


class StateLocation(Struct, frozen=True):
    """A state: the files of this host and, if the log is kept in PostgreSQL, the URL of the database."""

    directory: Path
    url: str = ""

    @property
    def store(self) -> str:
        """What `open_store` takes."""
        return self.url or str(self.directory)

    def __str__(self) -> str:
        """For people: without a password."""
        return without_password(self.url) if self.url else str(self.directory)

    def __repr__(self) -> str:
        return f"StateLocation({str(self)!r})"


def database_url(state: str) -> str:
    """The URL of a PostgreSQL database, if that is what was named; "" for a directory. BadInput for another scheme."""
    scheme = _SCHEME.match(state)
    if scheme is None:
        if _ALMOST.match(state):
            raise BadInput("--state postgresql:...: a URL has two slashes behind the colon", hint=_AS_IN)
        return ""
    name = scheme[1].lower()
    if name not in SCHEMES:
        raise BadInput(
            f"--state {name}://...: a state is kept in a directory or in PostgreSQL",
            hint="name a directory (--state DIR), or --state postgresql://USER@HOST/DATABASE",
        )
    return f"{name}://{state.strip().partition('://')[2]}"


_AS_IN = "as in: --state postgresql://USER@HOST/DATABASE"


def locate(state: str | os.PathLike[str]) -> StateLocation:
    """The state that is named. Two URLs of one database have one directory, whatever their users and passwords."""
    named = os.fspath(state)
    if url := database_url(named):
        return StateLocation(state_home() / _folder(_parts(url)), url)
    return StateLocation(Path(named))


def shown(state: str) -> str:
    """What was named, as it may be shown and logged."""
    url = database_url(state)
    return without_password(url) if url else state


def without_password(url: str) -> str:
    """The URL as it may be shown and logged."""
    parts = {name: value for name, value in _parts(url).items() if name not in _SECRETS}
    user, host, port = (parts.pop(name, "") for name in ("user", "host", "port"))
    database = quote(parts.pop("dbname", ""), safe="")
    if host.startswith("/"):  # the directory of a socket
        parts["host"], host = host, ""
    host = ",".join(f"[{one}]" if ":" in one else one for one in host.split(","))
    at = f"{quote(user, safe='')}@" if user else ""
    rest = f"?{urlencode(parts, quote_via=quote, safe='/')}" if parts else ""
    return f"postgresql://{at}{host}{f':{port}' if port else ''}/{database}{rest}"


def state_home() -> Path:
    """Where programs keep their state on this host: XDG_STATE_HOME, else `.local/state` of the user."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        home = named if named.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise BadInput("this user has no home directory", hint="set XDG_STATE_HOME to a directory") from None
    return home / "windfall"


def _parts(url: str) -> dict[str, str]:
    """What the URL says, as PostgreSQL's own library reads it. No text of the URL gets into the error."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise needs_psycopg() from error
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        parts = {"host": "@"}
    # An @ or a / in a password makes a part of it look like the host, the port or the database.
    ports = parts.get("port", "").replace(",", "")
    if "@" in parts.get("host", "") + parts.get("dbname", "") or (ports and not ports.isdecimal()):
        raise BadInput(
            "--state: this URL of a PostgreSQL database cannot be read",
            hint=f"{_AS_IN}; in a password write %25 for %, %40 for @, %2F for /, %3A for :",
        ) from None
    return parts


def needs_psycopg() -> BadInput:
    return BadInput("a state in PostgreSQL needs psycopg", hint="try: pip install 'windfall[postgres]'")


def _folder(parts: dict[str, str]) -> str:
    """A name for the database: readable, and of its own."""
    import hashlib
    import json

    env = os.environ.get
    host = parts.get("host") or parts.get("hostaddr") or env("PGHOST") or "local"
    port = parts.get("port") or env("PGPORT") or "5432"
    user = parts.get("user") or env("PGUSER") or _login()
    database = parts.get("dbname") or env("PGDATABASE") or user
    service = parts.get("service") or env("PGSERVICE") or ""
    same = hashlib.sha256(json.dumps([host, port, database, service]).encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{host}-{database}").strip("-.")
    return f"{readable[:60]}-{same}"


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
