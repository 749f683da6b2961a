"""The contract of pools over the compute API: start, list and stop servers. Touches one cloud and one folder.

Metadata say whose a server is. Nova knows no client tokens and forgets deleted servers: the pool looks before it
starts, deletes the younger of two servers with one name, and keeps how servers ended in a file of its folder.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windfall.planning.offers import Offer
from windfall.pools.contract import (
    CAPACITY,
    ENDED,
    INVALID,
    PENDING,
    QUOTA,
    RELEASED,
    RUNNING,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    Seen,
)
from windfall.pools.ec2.sight import worker_words
from windfall.pools.ec2.userdata import user_data
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.openstack.api import Compute, Json, Refusal
from windfall.pools.openstack.flavors import Rentable, offers_of, read_flavors, refused
from windfall.pools.openstack.settings import OpenStackSettings
from windfall.pools.openstack.sight import HOST, POOL, STATE, Ending, Sighted, ending_of, failure_of, sighted
from windfall.pools.starting.shipped import is_loopback, one_line, server_of, worker_options
from windfall.units import parse_duration

APPEARS_S = 60.0
"""Seconds within which a started server must be listed."""
KEPT_S = 3600.0
"""Seconds for which the end of a server is remembered."""
FLAVORS_EVERY_S = 600.0
POLL_S = 0.2
NO_ROOM = "no valid host"
Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]


class _Kept(Struct):
    """What the file of the pool holds."""

    ended: dict[str, Ending] = {}
    known: dict[str, Sighted] = {}
    released: list[str] = []


class OpenStackPool:
    """See windfall.pools.contract.Pool."""

    def __init__(
        self,
        pool: PoolConfig,
        place: Place,
        clock: Callable[[], float] = time.time,
        compute: Compute | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pool, self._place, self._clock, self._sleep = pool, place, clock, sleep
        self._settings: OpenStackSettings = pool.settings
        self.interval_s = parse_duration(self._settings.interval, "interval")
        self._accepted_within_s = parse_duration(self._settings.accepted_within, "accepted_within")
        self._compute = compute or Compute(self._settings)
        self._kept = self._read()
        self._rows: dict[str, Sighted] = {}
        """Ours that exist, by id."""
        self._started: dict[str, float] = {}
        self._since: dict[str, tuple[str, float]] = {}
        self._looked = False
        self._lock = threading.Lock()
        self._rentables = self._opened()
        self._flavors_t = clock()
        self.offers: tuple[Offer, ...] = offers_of(pool, self._rentables)

    # --- the contract ---

    def start(self, order: Order) -> str | PoolError:
        with self._lock:
            return self._start(order)

    def _start(self, order: Order) -> str | PoolError:
        if order.offer is None or order.machine is None:
            return PoolError("this pool rents machines for the plans of jobs only", INVALID)
        if isinstance(found := self._list(), PoolError):  # Nova has no client tokens: look before each start
            return found
        known = next((row.id for row in self._rows.values() if row.host == order.host), None)
        ended = next((end.id for end in self._kept.ended.values() if end.host == order.host), None)
        if known or ended:
            return known or ended or ""
        rentable = self._rentables.get(order.offer.name)
        if rentable is None:
            return PoolError(f"there is no offer '{order.offer.name}' any more", INVALID)
        held = sum(row.phase in (PENDING, RUNNING) for row in self._rows.values())
        if held >= self._pool.most:
            return PoolError(f"{held} machines are rented, the pool's limit", QUOTA)
        server = server_of(self._place, self._settings.server)
        if is_loopback(server) and not self._settings.server:
            hint = 'listen where machines reach it (--listen 0.0.0.0:7272), or say server = "https://..."'
            return PoolError(f"no machine could reach the server at {server}: {hint}", INVALID)
        try:
            body = self._request(order, rentable, server)
        except OSError as error:
            return PoolError(f"{error.filename}: {error.strerror}", TRANSIENT)
        return self._launch(body, order.host)

    def _launch(self, body: Json, host: str) -> str | PoolError:
        answer = self._compute.call("POST", "/servers", body)
        if isinstance(answer, PoolError):
            return answer
        id = str(answer["server"]["id"])
        now = self._clock()
        self._started[id] = now
        self._rows[id] = Sighted(id, PENDING, self._place.owner, self._pool.name, host, created_t=now)
        return self._accepted(id)

    def _accepted(self, id: str) -> str | PoolError:
        """Wait until Nova has chosen a host: an order for which there is no room is an error, and leaves nothing."""
        until_t = self._clock() + self._accepted_within_s
        while self._clock() < until_t:
            answer = self._compute.call("GET", f"/servers/{id}")
            if isinstance(answer, PoolError):
                return id  # the next `list` says more
            row = sighted(answer["server"])
            if row.status == "ERROR" and NO_ROOM in row.fault.lower():
                self._compute.call("DELETE", f"/servers/{id}")
                self._rows.pop(id, None)
                self._started.pop(id, None)
                return PoolError(row.fault, CAPACITY)
            if not row.scheduling:
                return id
            self._sleep(POLL_S)
        return id

    def list(self) -> Rows | PoolError:
        with self._lock:
            return self._list()

    def _list(self) -> Rows | PoolError:
        found = self._compute.pages("/servers/detail?sort_key=created_at&sort_dir=asc", "servers")
        if isinstance(found, PoolError):
            return found
        now = self._clock()
        marked = [row for row in map(sighted, found) if row.owner]
        ours = {row.id: row for row in marked if row.owner == self._place.owner and row.pool == self._pool.name}
        self._drop_twins(ours)
        self._settle(ours, now)
        self._look_at_flavors(now)
        strangers = [
            Seen(row.id, row.phase, row.created_t, about=f"{row.flavor}, ordered by {row.owner}")
            for row in marked
            if row.owner != self._place.owner and row.phase != ENDED
        ]
        ended = [
            Seen(end.id, ENDED, end.since_t, end.host, end.cause, None, end.about) for end in self._kept.ended.values()
        ]
        return [self._seen(row, now) for row in self._rows.values()] + ended + strangers

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        with self._lock:
            if not self._looked and isinstance(error := self._list(), PoolError):
                return error
            if id not in self._rows or id in self._kept.ended:
                return None
            if id not in self._kept.released:
                self._kept.released.append(id)
                self._write()
            return self._delete(id)

    def billed_from_t(self, id: str) -> float | None:
        """When Nova created a server."""
        row = self._rows.get(id)
        return None if row is None else row.created_t or None

    def doctor(self) -> Checks:
        from windfall.pools.openstack.doctor import examine

        return examine(self._pool, self._place, self._compute)

    def close(self) -> None:
        pass

    # --- servers ---

    def _settle(self, ours: dict[str, Sighted], now: float) -> None:
        """Compare with what was known: servers that are gone, in error or off have ended."""
        before = {**self._kept.known, **self._rows}
        for id, started_t in [*self._started.items()]:
            if id in ours or now > started_t + APPEARS_S:
                del self._started[id]
            else:
                ours[id] = self._rows[id]
        for id, row in before.items():
            if id not in ours and id not in self._kept.ended:
                self._kept.ended[id] = self._ending(row, now)
        for row in [*ours.values()]:
            if row.phase == ENDED or (row.deleting and row.id in self._kept.released):
                self._end_of_one_that_is_there(row, now)
                del ours[row.id]
        self._rows, self._looked = ours, True
        self._kept.ended = {id: end for id, end in self._kept.ended.items() if now < end.seen_t + KEPT_S}
        self._kept.released = [id for id in self._kept.released if id in ours or id in self._kept.ended]
        if self._kept.known != ours or before.keys() != ours.keys():
            self._kept.known = dict(ours)
            self._write()

    def _end_of_one_that_is_there(self, row: Sighted, now: float) -> None:
        """One that is in error, off or being deleted holds its place until it is gone: it is deleted again."""
        if row.id in self._kept.released:
            self._kept.ended.setdefault(row.id, Ending(row.id, row.host, row.changed_t or now, RELEASED, "", now))
        elif row.id not in self._kept.ended:
            words = "" if row.status == "ERROR" else self._last_words(row.id)
            self._kept.ended[row.id] = failure_of(row, words, now)
        self._delete(row.id)

    def _ending(self, row: Sighted, now: float) -> Ending:
        answer = self._compute.call("GET", f"/servers/{row.id}/os-instance-actions")
        actions = None if isinstance(answer, PoolError) else answer.get("instanceActions", [])
        user = next((one.get("user_id") for one in actions or () if one.get("action") == "create"), "")
        return ending_of(row, actions, str(user), row.id in self._kept.released, now)

    def _last_words(self, id: str) -> str:
        answer = self._compute.call("POST", f"/servers/{id}/action", {"os-getConsoleOutput": {"length": 50}})
        return "" if isinstance(answer, PoolError) else one_line(worker_words(str(answer.get("output") or "")))

    def _drop_twins(self, ours: dict[str, Sighted]) -> None:
        """A start whose answer was lost may have come twice: the older server stays."""
        first: dict[str, str] = {}
        for row in sorted(ours.values(), key=lambda row: (row.created_t, row.id)):
            if first.setdefault(row.host, row.id) != row.id:
                self._delete(row.id)
                del ours[row.id]

    def _delete(self, id: str) -> PoolError | None:
        answer = self._compute.call("DELETE", f"/servers/{id}")
        if isinstance(answer, Refusal) and answer.status == 404:
            return None
        return answer if isinstance(answer, PoolError) else None

    def _seen(self, row: Sighted, now: float) -> Seen:
        phase, since_t = self._since.get(row.id, ("", 0.0))
        if phase != row.phase:
            told_t = {PENDING: row.created_t, RUNNING: row.launched_t}.get(row.phase, row.changed_t)
            since_t = now if told_t is None or told_t < since_t - 1.0 else max(told_t, since_t)
            self._since[row.id] = (row.phase, since_t)
        return Seen(row.id, row.phase, since_t, row.host, "", row.taken_at_t, "")

    def _request(self, order: Order, rentable: Rentable, server: str) -> Json:
        """The body of POST /servers. OSError: the token cannot be read."""
        settings = self._settings
        options = worker_options(order, self._pool)
        for key, value in {"type": rentable.flavor, "market": rentable.market}.items():
            options += ["--tag", f"{key}={value}"]
        script = user_data(
            server=server,
            ticket=self._place.ticket_for(order.host),
            certificate=Path(self._place.cafile).read_text() if self._place.cafile else "",
            folder=f"{settings.folder}/{order.host}",
            python=settings.python,
            account=settings.account,
            patience_s=self._pool.unreachable_exit_s,
            options=options,
        )
        networks: Any = [{"uuid": id} for id in settings.networks] or "auto"
        made: Json = {
            "name": f"windfall-{order.host}",
            "flavorRef": rentable.id,
            "imageRef": settings.image,
            "networks": "none" if settings.networks == ["none"] else networks,
            "user_data": base64.b64encode(script.encode()).decode(),
            "metadata": {
                **settings.metadata, STATE: self._place.owner, POOL: self._pool.name, HOST: order.host,
            },
        }  # fmt: skip
        if settings.key_name:
            made["key_name"] = settings.key_name
        if settings.zone:
            made["availability_zone"] = settings.zone
        if settings.security_groups:
            made["security_groups"] = [{"name": name} for name in settings.security_groups]
        body: Json = {"server": made}
        if rentable.by_hint:
            body["os:scheduler_hints"] = {"windfall:preemptible": "true"}
        return body

    # --- flavors, and the file ---

    def _opened(self) -> dict[str, Rentable]:
        found = read_flavors(self._compute, self._settings)
        if isinstance(found, PoolError):
            raise refused(self._pool.name, found)
        return found

    def _look_at_flavors(self, now: float) -> None:
        if now < self._flavors_t + FLAVORS_EVERY_S:
            return
        self._flavors_t = now
        found = read_flavors(self._compute, self._settings)
        if not isinstance(found, PoolError):
            self._rentables = found
            self.offers = offers_of(self._pool, found)

    @property
    def _file(self) -> Path:
        return self._place.directory / "servers.json"

    def _read(self) -> _Kept:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return _Kept()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # what Nova lists is the truth; the file remembers what it forgets
            self._place.directory.mkdir(parents=True, exist_ok=True)
            self._file.with_suffix(".new").write_bytes(msgspec.json.encode(self._kept))
            self._file.with_suffix(".new").replace(self._file)
