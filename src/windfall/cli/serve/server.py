"""`windfall server`: a thin layer over `windfall.server`. Touches signals and the terminal."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import re
import shlex
import signal
import sys
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from windfall.cli.exits import end_at_once
from windfall.cli.serve.logs import set_up
from windfall.cli.show.output import note, print_json
from windfall.client.local.server import state_location
from windfall.errors import BadInput
from windfall.store.location import StateLocation
from windfall.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from windfall.core.events import Settings
    from windfall.server.embedded import Options, Server
    from windfall.server.systemd import ServiceManager

MOST_SIGNALS = 2
"""The first stops the server in good order, the second does not wait for workers of pools, one more ends it at once."""


@click.command()
@click.option(
    "--listen", default="127.0.0.1:7272", show_default=True, metavar="HOST:PORT", help="Port 0 takes a free one."
)
@click.option(
    "--state",
    "--state-dir",
    "state",
    metavar="STATE",
    help="A directory, or postgresql://USER@HOST/DATABASE.  [env: WINDFALL_STATE; default: .windfall]",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate (PEM): serve https.")
@click.option("--tls-key", metavar="FILE", help="Its key (PEM).")
@click.option("--lease", default="60s", show_default=True, metavar="TIME", help="Silence that makes a host unknown.")
@click.option("--pools", metavar="FILE", help="A pools.toml: where to start workers when tasks wait.")
@click.option(
    "--time-scale", type=click.FloatRange(0.001), metavar="X", help="Speed of emulated clouds.  [default: as in FILE]"
)
@click.option(
    "--tail-enter",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="X",
    help="A bag is in its tail when at most X tasks wait for each slot.",
)
@click.option(
    "--tail-leave",
    type=click.FloatRange(0),
    metavar="X",
    help="It leaves its tail when more than X wait for each slot.  [default: never]",
)
@click.option(
    "--replication",
    type=click.Choice(["idle-slots", "queued"]),
    default="idle-slots",
    show_default=True,
    help="Replicas of jobs that do not say it: made for idle slots, or queued by rank.",
)
@click.option(
    "--max-replicas",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="Replicas of a task at a time, of jobs that do not say it.",
)
@click.option(
    "--replication-cycle", default="60s", show_default=True, metavar="TIME", help="Time between two looks for replicas."
)
@click.option("--failover-pool", default="", metavar="NAME", help="Where tasks go that fail or are lost repeatedly.")
@click.option(
    "--resource",
    multiple=True,
    metavar="NAME=N",
    help="A resource that is counted for the whole server: licence=3. Repeatable.",
)
@click.option("--max-blob", default="64G", show_default=True, metavar="SIZE", help="The largest file that is taken.")
@click.option(
    "--blobs", default="", metavar="URL", help="Keep files of jobs in s3://BUCKET/PREFIX, gs:// or az://; kept in mind."
)
@click.option(
    "--limit",
    multiple=True,
    metavar="NAME=VALUE",
    help="What peers may ask of the server: body=128M, requests=2000, head-time=5s. Repeatable.",
)
@click.option(
    "--retain",
    multiple=True,
    metavar="NAME=VALUE",
    help="Forget ended jobs beyond age=30d, jobs=1000 or size=50G, the log beyond log-age=90d or log-size=5G, and "
    "hosts that left beyond host-age=90d or hosts=10000 (both by default; hosts=all: none).",
)
@click.option("--hooks", metavar="FILE", help="A hooks.toml: whom to tell when jobs change their state.")
@click.option("--standby", is_flag=True, help="Follow the server of this state, and take over when it is silent.")
@click.option(
    "--takeover-after",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="Silence after which a standby takes over.",
)
@click.option(
    "--advertise",
    default="",
    metavar="URL,URL",
    help="Addresses for workers of pools: all servers of this state. Workers then outlive a take-over.",
)
@click.option("--open-metrics", is_flag=True, help="Show /metrics without a token.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of the log lines."
)
@click.option("--log-file", metavar="FILE", help="Log there; begins a new file at 16 MB and keeps five.")
@click.option("--check", is_flag=True, help="Say whether a server could start like this, and end.")
@click.option("--json", "as_json", is_flag=True, help="Say where it serves as JSON.")
def server(
    state: str | None, log_format: str, log_file: str | None, check: bool, as_json: bool, **given: Any
) -> None:  # fmt: skip
    """Serve workers and clients until told to stop (Ctrl-C, SIGTERM). Nothing is lost by stopping.

    Listens on this machine only, unless told otherwise; beyond it, a token has to be made first.

    With --standby it answers questions about the state of another server, and becomes the server when that one ends or
    is silent. Give workers and clients both addresses: --server URL1,URL2.

    \b
    Example:
      windfall token create --role worker > worker.token
      windfall server --listen 0.0.0.0:7272
      windfall worker --server http://head-node:7272 --token-file worker.token      (on other machines)
    """
    location, wanted = state_location(state), Given(**given)
    options = _options(location, wanted, _settings(wanted))
    if check:
        from windfall.cli.serve.check import look, show

        show(look(options, location), as_json)
        return
    set_up(log_format, log_file)
    _run(options, location, as_json)


class Given(Struct):
    """What the command line says of the server, by the names of its options."""

    listen: str
    tls_cert: str | None
    tls_key: str | None
    lease: str
    pools: str | None
    time_scale: float | None
    tail_enter: float
    tail_leave: float | None
    replication: str
    max_replicas: int
    replication_cycle: str
    failover_pool: str
    resource: tuple[str, ...]
    max_blob: str
    blobs: str
    limit: tuple[str, ...]
    retain: tuple[str, ...]
    hooks: str | None
    standby: bool
    takeover_after: str
    advertise: str
    open_metrics: bool


def _settings(given: Given) -> Settings:
    """What the engine goes by. BadInput if options contradict each other."""
    from windfall.core.events import Settings
    from windfall.resources import check as check_resources
    from windfall.resources import needs_of, read_pairs
    from windfall.server.retention import read_retention

    enter, leave = given.tail_enter, given.tail_leave
    if leave is not None and leave < enter:
        raise BadInput(f"--tail-leave {leave:g} is less than --tail-enter {enter:g}", hint="it would flap")
    counted = read_pairs(given.resource)
    check_resources(counted, "--resource")
    retention = read_retention(given.retain)
    return Settings(
        host_forget_s=inf if retention.host_age_s is None else retention.host_age_s, hosts_kept=retention.hosts,
        tail_enter=enter, tail_leave=leave, failover_pool=given.failover_pool, max_replicas=given.max_replicas,
        replication=given.replication, resources=dict(needs_of(counted)),
        replication_cycle_s=_at_least(1, given.replication_cycle, "--replication-cycle", "a minute does for most"),
    )  # fmt: skip


def _options(location: StateLocation, given: Given, settings: Settings) -> Options:
    """How the server is to be started. BadInput if an option names what is not there."""
    from windfall.pools.config import read_pools
    from windfall.server.embedded import Options
    from windfall.server.hooks.config import read_hooks
    from windfall.server.limits import Limits, read_limits
    from windfall.server.retention import read_retention
    from windfall.store.blobs.objects import plain_address

    for option, file in (("--tls-cert", given.tls_cert), ("--tls-key", given.tls_key)):
        if file and not os.access(file, os.R_OK):
            raise BadInput(f"{option} {file}: no such file, or it may not be read")
    silence_s = _at_least(2, given.takeover_after, "--takeover-after", "servers give a sign each second")
    return Options(
        location.directory, given.listen, location.url,
        _at_least(1, given.lease, "--lease", "a minute does for most networks"),
        given.tls_cert or "", given.tls_key or "", settings,
        read_pools(Path(given.pools), given.time_scale) if given.pools else [],
        limits=read_limits(given.limit, Limits(blob_bytes=parse_bytes(given.max_blob, "--max-blob"))),
        open_metrics=given.open_metrics,
        hooks=read_hooks(Path(given.hooks)) if given.hooks else [],
        standby_s=silence_s if given.standby else None,
        blobs=plain_address(given.blobs) if given.blobs else "",
        retention=read_retention(given.retain),
        advertise=_addresses(given.advertise),
    )  # fmt: skip


def _run(options: Options, location: StateLocation, as_json: bool) -> None:
    """Serve until told to stop, and say how it ended."""
    from windfall.server.embedded import Server, run
    from windfall.server.open_files import allow_many
    from windfall.server.systemd import ServiceManager

    allow_many()
    made = Server(options)
    made.on_hang = _abort
    made.on_takeover = lambda: _say_taken_over(made.url, location, as_json)
    # The engine makes no reference cycles. At 25,000 hosts the collector took 12 % of the time, 0.14 s in one go.
    gc.set_threshold(100_000, 20, 100)
    run(_serve(made, location, as_json, ServiceManager()))
    _say_stopped(made, location)


def _at_least(seconds: int, text: str, option: str, hint: str) -> float:
    """The duration that an option gives; BadInput if it is below `seconds`."""
    given_s = parse_duration(text, option)
    if given_s < seconds:
        raise BadInput(f"{option} {text}: at least {'one second' if seconds == 1 else f'{seconds} seconds'}", hint=hint)
    return given_s


def _addresses(text: str) -> str:
    """URLs with commas between them, as workers take them; BadInput if one is none."""
    found = [one.strip().rstrip("/") for one in text.split(",")] if text else []
    for one in found:
        if not re.fullmatch(r"https?://[^/\s?#@]+(/[^\s?#@]*)?", one):
            raise BadInput(f"--advertise {one}: not an address", hint="as in: http://one:7272,http://two:7272")
    return ",".join(found)


def _say_stopped(made: Server, location: StateLocation) -> None:
    if made.unwritten:
        what = "1 record was" if made.unwritten == 1 else f"{made.unwritten} records were"
        note(f"windfall: the server has stopped; {what} not written and not acknowledged")
    else:
        note("windfall: the server has stopped; everything is kept")
    if made.machines_left:
        what = "machine goes" if made.machines_left == 1 else "machines go"
        note(f"  {made.machines_left} rented {what} on, and will be found by the next server on {location}")


def _abort() -> None:
    """The event loop stands still: show where, and end. What was acknowledged is on the disk."""
    note("windfall: the server hangs and is ended; what was acknowledged is kept; start it again to go on")
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback(sys.__stderr__)
    os._exit(1)


async def _serve(made: Server, location: StateLocation, as_json: bool, manager: ServiceManager) -> None:
    loop = asyncio.get_running_loop()
    told = 0

    def stop(number: int) -> None:
        nonlocal told
        told += 1
        if told > MOST_SIGNALS:
            end_at_once(number)
        manager.tell("STOPPING=1")
        made.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, number)
    serving = asyncio.create_task(made.serve())
    while not made.ready.is_set() and not serving.done():
        await asyncio.sleep(0.01)
    watching: asyncio.Task[None] | None = None
    if made.ready.is_set():
        manager.tell("READY=1")
        watching = asyncio.create_task(manager.watch(made.illness)) if manager.watchdog_s else None
    if made.ready.is_set() and made.options.standby_s is not None:
        _say_standing_by(made.url, location, as_json)
    elif made.ready.is_set():
        _announce(made.url, location, made.warnings, as_json)
    try:
        await serving
    finally:
        if watching is not None:
            watching.cancel()


def _say_standing_by(url: str, location: StateLocation, as_json: bool) -> None:
    if as_json:
        print_json({"url": url, "state": str(location), "pid": os.getpid(), "standby": True})
    else:
        click.echo(f"windfall server on {url} stands by for the server of {location}")


def _say_taken_over(url: str, location: StateLocation, as_json: bool) -> None:
    if as_json:
        print_json({"url": url, "state": str(location), "pid": os.getpid(), "standby": False})
    else:
        click.echo(f"windfall server on {url} has taken over, state in {location}")
    sys.stdout.flush()


def _announce(url: str, location: StateLocation, warnings: list[str], as_json: bool) -> None:
    if as_json:
        files = str(location.directory)
        print_json({"url": url, "state": str(location), "files": files, "pid": os.getpid(), "warnings": warnings})
        return
    click.echo(f"windfall server on {url}, state in {location}")
    for warning in warnings:
        note(f"  {warning}")
    token = shlex.quote(f"{location.directory}/token")
    click.echo(f"  add a worker here: windfall worker --server {url} --token-file {token}")
    click.echo("  let others in:     windfall token create --role worker|submit|read")
