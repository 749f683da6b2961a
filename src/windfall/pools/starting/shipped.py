"""What a worker beyond this host is given: the worker's file, its token, a script that runs it. Touches one folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from windfall.errors import BadInput
from windfall.pools.contract import Order
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.starting.workerfile import worker_pyz

WORKER, TOKEN, CERTIFICATE, SCRIPT, LOG = "worker.pyz", "token", "ca.pem", "worker.sh", "worker.log"
FORGET = "--forget-token-file"
"""Each of these workers is started once."""
_SCRIPT = """\
#!/bin/sh
# Runs one worker in the folder of this script. What it says goes to worker.log there.
cd "$(dirname "$0")" || exit 1
exec {command} "$@" >>worker.log 2>&1
"""


def server_of(place: Place, stated: str) -> str:
    """The address that workers on other hosts use: as the pool states it, or as the server listens."""
    return stated or place.outside_url or place.url


def is_loopback(url: str) -> bool:
    """Whether the address means the host itself, on whichever host it is used."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "")


def check_account(account: str, where: str) -> None:
    """BadInput if a machine could have no account of this name."""
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", account):
        raise BadInput(f"{where}: account = {account!r}", hint="a name of small letters and digits, as in windfall")


def worker_options(order: Order, pool: PoolConfig) -> list[str]:
    """Options of a worker that say nothing secret and name no place."""
    options = ["--name", order.host, "--pool", pool.name, "--slots", str(order.slots)]
    options += ["--idle-exit", f"{pool.idle_exit_s:g}", "--unreachable-exit", f"{pool.unreachable_exit_s:g}"]
    if pool.least_cpu is not None:
        options += ["--least-cpu", f"{pool.least_cpu:g}"]
    return options + (["--machine", str(order.machine)] if order.machine is not None else [])


def lay_out(
    folder: Path, place: Place, server: str, host: str, options: Sequence[str], python: str = "python3"
) -> None:
    """Make a folder that holds all that the worker of a host needs; its owner alone may read it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / WORKER).write_bytes(worker_pyz())
    write_private(folder / TOKEN, place.token_for(host))
    command = [python, WORKER, "--server", server, "--token-file", TOKEN, FORGET, "--dir", ".", *options]
    if place.cafile:
        shutil.copyfile(place.cafile, folder / CERTIFICATE)
        command += ["--cafile", CERTIFICATE]
    write_private(folder / SCRIPT, _SCRIPT.format(command=shlex.join(command)), 0o700)


def renew_token(folder: Path, place: Place, host: str) -> None:
    """Give a worker that has not begun the token of now: tokens are short-lived, and queues may be long.

    One that is to begin again, because its job was requeued, has forgotten its own.
    """
    with contextlib.suppress(OSError):
        token, path = place.token_for(host), folder / TOKEN
        if not path.exists() or path.read_text() != token:
            new = folder / f"{TOKEN}.new"
            write_private(new, token)
            new.replace(path)


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)


def last_words(path: Path, lines: int = 3, most_bytes: int = 2000) -> str:
    """The end of a log, in one line; empty if there is none."""
    try:
        text = path.read_bytes()[-most_bytes:].decode(errors="replace")
    except OSError:
        return ""
    return one_line(text, lines)


def one_line(text: str, lines: int = 3) -> str:
    found = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(found[-lines:])
