"""`windfall server --check`: whether a server could start with these options. Touches what it would touch, briefly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import click
from msgspec import Struct

from windfall.cli.show.output import print_json
from windfall.errors import BadInput, WindfallError
from windfall.server.embedded import Options, check_tls, is_loopback, listening, split_listen
from windfall.store import holds_state, open_following
from windfall.store.location import StateLocation

LEAST_FREE_BYTES = 1 << 30


class Finding(Struct):
    """One thing that was looked at. `says`: what was found, or what is wrong and what to do."""

    name: str
    ok: bool
    says: str


def look(options: Options, location: StateLocation) -> list[Finding]:
    """Everything that would keep a server from starting, and what it would serve."""
    return [
        _tried("address", lambda: _address(options)),
        _tried("certificate", lambda: _certificate(options)),
        _tried("state", lambda: _state(options, location)),
        _tried("disk", lambda: _disk(location)),
        Finding("pools", True, ", ".join(pool.name for pool in options.pools) or "none"),
        Finding("hooks", True, ", ".join(hook.name for hook in options.hooks) or "none"),
    ]


def show(found: list[Finding], as_json: bool) -> None:
    """Print what was found; BadInput (exit code 2) unless a server could start."""
    wrong = [finding for finding in found if not finding.ok]
    if as_json:
        checks = [{"name": each.name, "ok": each.ok, "says": each.says} for each in found]
        print_json({"ok": not wrong, "checks": checks})
    else:
        for finding in found:
            click.echo(f"{'ok   ' if finding.ok else 'wrong'}  {finding.name}: {finding.says}")
    if wrong:
        raise BadInput(f"a server cannot start like this: {wrong[0].says}", hint="put it right and check again")


def _tried(name: str, work: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, work())
    except WindfallError as error:
        return Finding(name, False, f"{error.message}; {error.hint}" if error.hint else error.message)


def _address(options: Options) -> str:
    host, port = split_listen(options.listen)
    with listening(host, port) as sock:
        return f"{host}:{sock.getsockname()[1]} is free"


def _certificate(options: Options) -> str:
    if bool(options.tls_cert) != bool(options.tls_key):
        raise BadInput("--tls-cert and --tls-key go together")
    if not options.tls_cert:
        return "none: http"
    check_tls(options.tls_cert, options.tls_key)
    return f"{options.tls_cert} and its key belong together"


def _state(options: Options, location: StateLocation) -> str:
    host, _ = split_listen(options.listen)
    tokens = f"make a token first: windfall token create --role worker --state {location}"
    needs_token = not is_loopback(host) and not options.pools
    if not holds_state(location):
        if needs_token:
            raise BadInput(f"{location} holds no token, and {host} is reachable from elsewhere", hint=tokens)
        return f"{location} is new"
    store = open_following(location)
    try:
        holder, rows, last = store.holder(), store.tokens(), store.last_seq()
        store.check_blobs()
    finally:
        store.close()
    if holder.process and options.standby_s is None:
        raise BadInput(f"{location} is in use by {holder.process}", hint="stop that server, or add --standby")
    if needs_token and len(rows) < 2:
        raise BadInput(
            f"{location} holds no token but its owner's, and {host} is reachable from elsewhere", hint=tokens
        )
    return f"{location} holds {last:,} records and {len(rows)} tokens"


def _disk(location: StateLocation) -> str:
    there = location.directory
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK):
        raise BadInput(f"{there} may not be written")
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE_BYTES:
        raise BadInput(f"{there} has {free >> 20:,} MiB free", hint="a server needs 1 GiB at least")
    return f"{free >> 30:,} GiB free"
