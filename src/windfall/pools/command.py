"""Kind `command`: workers started, listed and stopped by commands of the user's own. Touches those and one folder.

The commands answer with JSON on standard output (docs/howto/command.md). What was asked of them stands in environment
variables and as JSON on standard input; the token stands only in a file of the worker's folder.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import (
    ENDED,
    FAILED,
    INVALID,
    PENDING,
    RELEASED,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    Seen,
)
from windfall.pools.kinds import WORKERS, Kind, Place, PoolConfig
from windfall.pools.starting.calls import Called, call
from windfall.pools.starting.shipped import (
    LOG,
    last_words,
    lay_out,
    one_line,
    renew_token,
    server_of,
    worker_options,
    write_private,
)
from windfall.units import parse_duration

SHOWN_S = 600.0
"""Seconds for which a worker is listed after its end."""
_START, _LIST, _STOP = "start", "list", "stop"
Words = list[str]
Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Id = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=4000)]


class CommandSettings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `command`."""

    start: Words = []
    list: Words = []
    stop: Words = []
    server: str = ""
    """Address of the server as workers see it; default: the one on which it listens."""
    python: str = "python3"
    """The Python (3.8 or newer) that runs the worker."""
    interval: str | float = "10s"
    """Time between two calls of `list`."""
    time_limit: str | float = "60s"
    """A command that takes longer is ended and has failed."""
    appears: str | float = "30s"
    """Time after which a started worker must be listed; until then it counts as on its way."""


class StartAnswer(Struct):
    """What `start` prints: an id, or an error and its kind."""

    id: Id | None = None
    error: Text = ""
    kind: Literal["capacity", "quota", "credentials", "invalid", "transient"] = "transient"


class ListRow(Struct):
    """One entry of the array that `list` prints."""

    id: Id
    state: Literal["pending", "running", "ended"] = "running"
    host: Annotated[str, Meta(max_length=200)] | None = None
    """WINDFALL_HOST of its start, if the system keeps it."""
    owner: Annotated[str, Meta(max_length=200)] | None = None
    """WINDFALL_OWNER of its start, if the system keeps it."""
    failed: bool = False
    about: Text = ""


class Kept(Struct):
    """What is written down about one worker."""

    host: str
    id: str = ""
    started_t: float = 0.0
    ended_t: float = 0.0
    cause: str = ""
    about: str = ""
    told: bool = False
    listed: bool = False
    """`list` has shown it: from then on, one that is not listed has ended."""


class CommandPool:
    """See windfall.pools.contract.Pool."""

    offers: tuple[Offer, ...] = ()

    def __init__(self, pool: PoolConfig, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._pool, self._place, self._clock = pool, place, clock
        self._settings: CommandSettings = pool.settings
        self.interval_s = parse_duration(self._settings.interval, "interval")
        self._limit_s = parse_duration(self._settings.time_limit, "time_limit")
        self._appears_s = parse_duration(self._settings.appears, "appears")
        self._kept: dict[str, Kept] = {}
        self._unasked: dict[str, str] = {}
        """Hosts by id of workers that are ours by their tags and not written down, as last listed."""
        for path in sorted(place.directory.glob("*/order.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                kept = msgspec.json.decode(path.read_bytes(), type=Kept)
                self._kept[kept.host] = kept

    # --- the contract ---

    def start(self, order: Order) -> str | PoolError:
        known = self._kept.get(order.host)
        if known is not None and not known.id:
            self.list()  # an earlier server asked and did not hear the answer
        if known is not None and (known.id or known.ended_t):
            return known.id or order.host
        server = server_of(self._place, self._settings.server)
        try:
            options = worker_options(order, self._pool)
            folder = self._folder(order.host)
            lay_out(folder, self._place, server, order.host, options, self._settings.python)
            kept = self._kept[order.host] = Kept(order.host, started_t=self._clock())
            self._write(kept)
        except OSError as error:
            return PoolError(f"{self._folder(order.host)}: {error.strerror or error}", TRANSIENT)
        called = self._run(_START, host=order.host, slots=order.slots, server=server)
        answer = _decoded(_START, called, StartAnswer)
        if isinstance(answer, StartAnswer) and answer.id:
            kept.id, kept.started_t = answer.id, self._clock()
            self._write(kept)
            return kept.id
        if not called.timed_out:  # else it may be there, and `list` will show it by its tags
            self._forget(kept)
        if isinstance(answer, PoolError):
            return answer
        return PoolError(one_line(answer.error) or "`start` printed neither an id nor an error", answer.kind)

    def list(self) -> Rows | PoolError:
        answer = _decoded(_LIST, self._run(_LIST), Rowlist)
        if isinstance(answer, PoolError):
            return answer
        now = self._clock()
        by_id = {kept.id: kept for kept in self._kept.values() if kept.id}
        others, listed = Rows(), dict[str, ListRow]()
        self._unasked = {}
        for row in answer:
            kept = by_id.get(row.id) or self._by_tag(row)
            if kept is not None:
                listed[kept.host] = row
            elif row.state != ENDED and row.owner == self._place.owner and row.host:
                # Ours, but not written down: started twice, or its folder is lost. It is shown, so that it is ended.
                self._unasked[row.id] = row.host
                others.append(Seen(row.id, row.state, now, row.host))
            elif row.state != ENDED and row.owner != self._place.owner:
                others.append(Seen(row.id, row.state, about=row.about or f"of {row.owner or 'somebody else'}"))
        return [self._seen(kept, listed.get(kept.host), now) for kept in [*self._kept.values()]] + others

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        kept = next((kept for kept in self._kept.values() if kept.id == id), None)
        if kept is None and id in self._unasked:
            return _failure(_STOP, self._run(_STOP, id=id, host=self._unasked[id], gently="1" if gently else "0"))
        if kept is None or kept.ended_t:
            return None
        if not kept.told:
            kept.told = True
            self._write(kept)
        return _failure(_STOP, self._run(_STOP, id=id, host=kept.host, gently="1" if gently else "0"))

    def doctor(self) -> Checks:
        checks = []
        for name in (_START, _LIST, _STOP):
            program = self._command(name)[0]
            found = shutil.which(program) or (self._pool.base / program).is_file()
            hint = f"install it, or write its whole path in `{name}`"
            checks.append(Check(f"{name}: {program} can be run", "" if found else "there is no such program", hint))
        rows = _decoded(_LIST, self._run(_LIST), Rowlist)
        error = rows.error if isinstance(rows, PoolError) else ""
        hint = "run the command by hand; docs/howto/command.md says what it has to print"
        return [*checks, Check("list: prints a JSON array of workers", error, hint)]

    def close(self) -> None:
        pass

    # --- one worker ---

    def _by_tag(self, row: ListRow) -> Kept | None:
        """A worker whose id we did not hear, found by the names that its system has kept."""
        kept = self._kept.get(row.host or "")
        if kept is None or row.owner != self._place.owner or kept.id:
            return None
        kept.id = row.id
        self._write(kept)
        return kept

    def _seen(self, kept: Kept, row: ListRow | None, now: float) -> Seen:
        if not kept.ended_t:
            if row is not None and not kept.listed:
                kept.listed = True
                self._write(kept)
            if row is not None and row.state != ENDED:
                if row.state == PENDING:
                    renew_token(self._folder(kept.host), self._place, kept.host)
                return Seen(kept.id, row.state, kept.started_t, kept.host)
            if not kept.listed and now < kept.started_t + self._appears_s:
                return Seen(kept.id or kept.host, PENDING, kept.started_t, kept.host)
            self._end(kept, row, now)
        elif now > kept.ended_t + SHOWN_S:
            self._forget(kept)
        return Seen(kept.id or kept.host, ENDED, kept.ended_t, kept.host, kept.cause, None, kept.about)

    def _end(self, kept: Kept, row: ListRow | None, now: float) -> None:
        kept.ended_t = now
        said = last_words(self._folder(kept.host) / LOG)
        kept.about = one_line(" ".join(part for part in (row.about if row else "", said) if part))
        kept.cause = RELEASED if kept.told else FAILED if row is not None and row.failed else ""
        self._write(kept)

    def _forget(self, kept: Kept) -> None:
        shutil.rmtree(self._folder(kept.host), ignore_errors=True)
        self._kept.pop(kept.host, None)

    def _write(self, kept: Kept) -> None:
        path = self._folder(kept.host) / "order.json"
        with contextlib.suppress(OSError):  # on a full disk the worker is found by its tags, if its system keeps them
            write_private(path.with_suffix(".new"), msgspec.json.encode(kept).decode())
            path.with_suffix(".new").replace(path)

    def _folder(self, host: str) -> Path:
        return self._place.directory / host

    # --- the commands ---

    def _command(self, name: str) -> Words:
        words: Words = getattr(self._settings, name)
        return words

    def _run(self, name: str, **about: Any) -> Called:
        about |= {"pool": self._pool.name, "owner": self._place.owner}
        if "host" in about:
            about["folder"] = str(self._folder(about["host"]))
        env = {f"WINDFALL_{key.upper()}": str(value) for key, value in about.items()}
        base = self._pool.base.resolve()
        return call(self._command(name), msgspec.json.encode(about), self._limit_s, base, env)


Rowlist = Annotated[list[ListRow], Meta(max_length=100_000)]


def _failure(name: str, called: Called) -> PoolError | None:
    if called.trouble:
        return PoolError(f"{name}: {called.trouble}{_said(called)}", TRANSIENT)
    if called.code != 0:
        return PoolError(f"{name}: exit code {called.code}{_said(called)}", TRANSIENT)
    return None


def _decoded(name: str, called: Called, type: Any) -> Any:
    """The checked answer of a command, or a PoolError."""
    if (failure := _failure(name, called)) is not None:
        return failure
    try:
        return msgspec.json.decode(called.stdout, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        printed = one_line(called.stdout[:80].decode(errors="replace"))
        return PoolError(f"{name}: what it printed is no valid answer: {error}; it begins: {printed!r}", INVALID)


def _said(called: Called) -> str:
    return f": {said}" if (said := one_line(called.stderr)) else ""


def _check(pool: PoolConfig, where: str) -> None:
    settings: CommandSettings = pool.settings
    for name in (_START, _LIST, _STOP):
        if not getattr(settings, name):
            hint = f'as in {name} = ["./{name}.sh"]; see docs/howto/command.md'
            raise BadInput(f"{where}: it has no `{name}` command", hint=hint)
    for name, least in (("interval", 0.1), ("time_limit", 0.1), ("appears", 0.0)):
        if parse_duration(getattr(settings, name), name) < least:
            raise BadInput(f"{where}: {name} = {getattr(settings, name)}", hint=f"at least {least:g} seconds")


KIND = Kind(gives=WORKERS, settings=CommandSettings, open=CommandPool, check=_check)
