"""A private PostgreSQL server for tests, on a socket in a temporary directory. Starts and ends its own processes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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


class Database:
    """A PostgreSQL server in a folder of its own, to be crashed and started again."""

    def __init__(self, port: int = 0, mount: Callable[[Path], None] | None = None) -> None:
        """`port`: it listens there, too, on this host. `mount`: puts a file system at the folder of its data."""
        self._programs = require()
        # A socket's path may have 107 characters: pytest's own directories are too deep for that.
        self.home = Path(tempfile.mkdtemp(prefix="wf-pg-", dir="/tmp"))
        self.data = self.home / "data"
        self._user = _unprivileged()
        self.port = port
        self.url = f"postgresql://windfall@/{{name}}?host={self.home}" + (f"&port={port}" if port else "")
        try:
            self.data.mkdir(mode=0o700)
            if mount is not None:
                mount(self.data)
            for folder in (self.home, self.data):
                if self._user:
                    os.chown(folder, self._user.pw_uid, self._user.pw_gid)
            self._run("initdb", "-U", "windfall", "-A", "trust", "-N", "--no-instructions")
            self.start()
        except BaseException:
            self.close()
            raise

    def _run(self, program: str, *words: object) -> None:
        _run(self._user, self.home, self._programs / program, "-D", self.data, *words)

    def start(self) -> None:
        listen = f" -c listen_addresses=127.0.0.1 -c port={self.port}" if self.port else ""
        options = f"{_SETTINGS} -k {self.home}{listen}"
        self._run("pg_ctl", "-l", self.home / "log", "-o", options, "-t", "180", "-w", "start")

    def is_up(self) -> bool:
        done = subprocess.run([self._programs / "pg_ctl", "-D", self.data, "status"], capture_output=True, check=False,
                              **_as(self._user))  # fmt: skip
        return done.returncode == 0

    def crash(self) -> None:
        """All of its processes end at once and without a checkpoint: it recovers when it starts."""
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    def close(self) -> None:
        if (self.data / "postmaster.pid").exists():
            with suppress(RuntimeError):
                self.crash()
        subprocess.run(["umount", "-q", "-l", str(self.data)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.home, ignore_errors=True)


@contextmanager
def server(port: int = 0) -> Iterator[str]:
    """A running server; gives the URL of a database without its name, to be completed by `new_database`.

    `port`: it listens there, too, on this host.
    """
    made = Database(port)
    try:
        yield made.url
    finally:
        made.close()


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


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def _run(user: pwd.struct_passwd | None, home: Path, *command: object) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **_as(user),
    )
    if done.returncode:
        log = (home / "log").read_text() if (home / "log").exists() else ""
        raise RuntimeError(f"{command[0]}: {done.stderr}\n{log[-2000:]}")
