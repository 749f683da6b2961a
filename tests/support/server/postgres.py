"""A private PostgreSQL server for tests, on a socket in a temporary directory. Starts and ends its own processes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Nothing here has to survive a crash of the machine.
_SETTINGS = "-c listen_addresses= -c fsync=off -c max_connections=60 -c shared_buffers=32MB"


def binaries() -> Path | None:
    """Where the server's programs are, of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def require() -> Path:
    """The programs, or a skipped test; in continuous integration they must be there."""
    found = binaries()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("PostgreSQL is not installed; tools/system.sh installs it")
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    return found


@contextmanager
def server(port: int = 0) -> Iterator[str]:
    """A running server; gives the URL of a database without its name, to be completed by `new_database`.

    `port`: it listens there, too, on this host.
    """
    programs = require()
    # A socket's path may have 107 characters: pytest's own directories are too deep for that.
    home = Path(tempfile.mkdtemp(prefix="wf-pg-", dir="/tmp"))
    user = _unprivileged()
    try:
        if user:
            os.chown(home, user.pw_uid, user.pw_gid)
        data = home / "data"
        _run(user, home, programs / "initdb", "-D", data, "-U", "windfall", "-A", "trust", "-N", "--no-instructions")
        options = f"{_SETTINGS} -k {home}" + (f" -c listen_addresses=127.0.0.1 -c port={port}" if port else "")
        _run(user, home, programs / "pg_ctl", "-D", data, "-l", home / "log", "-o", options, "-w", "start")
        try:
            yield f"postgresql://windfall@/{{name}}?host={home}" + (f"&port={port}" if port else "")
        finally:
            _run(user, home, programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def new_database(url: str, name: str) -> str:
    """A fresh database on the server; its URL."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url.format(name="postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return url.format(name=name)


def _unprivileged() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("root may not run PostgreSQL, and there is neither a user 'postgres' nor 'nobody'")


def _run(user: pwd.struct_passwd | None, home: Path, *command: object) -> None:
    identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **identity,  # type: ignore[arg-type]
    )
    if done.returncode:
        log = (home / "log").read_text() if (home / "log").exists() else ""
        raise RuntimeError(f"{command[0]}: {done.stderr}\n{log[-2000:]}")
