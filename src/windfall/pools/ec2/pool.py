"""The contract of pools over EC2: start, list and stop instances, with their prices. Touches the EC2 API.

Tags say whose an instance is. The client token of a start follows from state, pool and name, so that a repeated order
starts one machine. `list` reads instances and spot requests of all regions; where one region fails, all of it fails.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import (
    CREDENTIALS,
    ENDED,
    FAILED,
    INVALID,
    PENDING,
    QUOTA,
    RELEASED,
    RUNNING,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    PriceMove,
    Seen,
)
from windfall.pools.ec2.api import Account, ApiError
from windfall.pools.ec2.catalogue import Rentable
from windfall.pools.ec2.launch import launch_arguments, our_tags, tag_list, unreachable
from windfall.pools.ec2.market import Market, offers_of, price_moves, priced, read_market
from windfall.pools.ec2.settings import HOWTO, SPOT, TERMINATE, Ec2Settings
from windfall.pools.ec2.sight import PERSISTENT, STATE, Sighted, failed, sighted, worker_words
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.starting.shipped import one_line
from windfall.units import parse_duration

log = logging.getLogger(__name__)

APPEARS_S = 60.0
"""Seconds within which a started instance must be listed: the API is eventually consistent."""
CATALOGUE_EVERY_S = 86400.0
MOST_CONSOLES = 20
"""Most looks at the console of one machine."""

Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Moves = list[PriceMove]
Sightings = list[Sighted]


class Ec2Pool:
    """See windfall.pools.contract.Pool and MovingPrices."""

    def __init__(
        self, pool: PoolConfig, place: Place, clock: Callable[[], float] = time.time, account: Account | None = None
    ) -> None:
        self._pool, self._place, self._clock = pool, place, clock
        self._settings: Ec2Settings = pool.settings
        self.interval_s = parse_duration(self._settings.interval, "interval")
        self._prices_every_s = parse_duration(self._settings.prices_every, "prices_every")
        self._account = account or Account(self._settings)
        self._rows: dict[str, Sighted] = {}
        """Ours, by id, as they were last listed or started."""
        self._since: dict[str, tuple[str, float]] = {}
        """Phase and its first sight, by id."""
        self._started: dict[str, float] = {}
        """Unix times of starts that were not listed yet, by id."""
        self._released: set[str] = set()
        self._words: dict[str, str] = {}
        """Last words of machines that shut themselves down, by id."""
        self._asked: dict[str, int] = {}
        """How often their consoles were read."""
        self._looked = False
        self._lock = threading.Lock()  # the doctor's trial comes beside the keeper
        self._market = self._opened()
        self.offers: tuple[Offer, ...] = offers_of(pool, self._market)

    # --- the contract ---

    def start(self, order: Order) -> str | PoolError:
        with self._lock:
            return self._start(order)

    def _start(self, order: Order) -> str | PoolError:
        rentable = None if order.offer is None else self._market.rentables.get(order.offer.name)
        if order.offer is None or order.machine is None:
            return PoolError("this pool rents machines for the plans of jobs only", INVALID)
        if not self._looked and isinstance(error := self._list(), PoolError):
            return error
        known = next((row for row in self._rows.values() if row.host == order.host), None)
        if known is not None:
            return known.id
        if rentable is None:
            return PoolError(f"there is no offer '{order.offer.name}' any more", INVALID)
        held = sum(row.phase in (PENDING, RUNNING) for row in self._rows.values())
        if held >= self._pool.most:
            return PoolError(f"{held} machines are rented, the pool's limit", QUOTA)
        return self._launch(order, rentable)

    def _launch(self, order: Order, rentable: Rentable) -> str | PoolError:
        if (problem := unreachable(self._settings, self._place)) is not None:
            return problem
        try:
            arguments = launch_arguments(self._pool, self._place, order, rentable)
        except OSError as error:
            return PoolError(f"{error.filename}: {error.strerror}", TRANSIENT)
        if isinstance(arguments, PoolError):
            return arguments
        answer = self._account.regions[rentable.region].call("run_instances", **arguments)
        if isinstance(answer, ApiError) and answer.code == "IdempotentParameterMismatch":
            # It was started before, with an earlier token in its user data.
            return self._found(order.host, rentable.region, answer)
        if isinstance(answer, PoolError):
            return self._noted(answer)
        [row] = answer["Instances"]
        request = {"Type": PERSISTENT} if self._is_persistent(rentable) else None
        tags = tag_list(our_tags(self._place.owner, self._pool.name, order.host))
        one = sighted({**row, "Tags": tags}, request, rentable.region)
        self._rows[one.id] = one
        self._started[one.id] = self._clock()
        return one.id

    def _found(self, host: str, region: str, error: PoolError) -> str | PoolError:
        rows = self._list()
        known = next((row for row in self._rows.values() if row.host == host), None)
        if isinstance(rows, PoolError):
            return rows
        return PoolError(f"{error.error} (region {region})", TRANSIENT) if known is None else known.id

    def list(self) -> Rows | PoolError:
        with self._lock:
            return self._list()

    def _list(self) -> Rows | PoolError:
        found = self._sightings()
        if isinstance(found, PoolError) and self._noted(found).kind == CREDENTIALS:
            found = self._sightings()
        if isinstance(found, PoolError):
            return found
        ours = {row.id: row for row in found if row.owner == self._place.owner and row.pool == self._pool.name}
        now = self._clock()
        for id, started_t in [*self._started.items()]:
            if id in ours or now > started_t + APPEARS_S:
                del self._started[id]
            else:
                ours[id] = self._rows[id]
        self._rows, self._looked = ours, True
        self._released &= ours.keys()
        self._clear_up()
        self._look_at_prices(now)
        strangers = [
            Seen(row.id, row.phase, row.launched_t, about=f"{row.type}, ordered by {row.owner}")
            for row in found
            if row.owner != self._place.owner and row.phase != ENDED
        ]
        return [self._seen(row, now) for row in ours.values()] + strangers

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        with self._lock:
            if not self._looked and isinstance(error := self._list(), PoolError):
                return error
            row = self._rows.get(id)
            if row is None or row.phase == ENDED:
                return None
            self._released.add(id)
            return self._end(row)

    def billed_from_t(self, id: str) -> float | None:
        """When EC2 launched a machine; it bills from then on."""
        row = self._rows.get(id)
        return None if row is None else row.launched_t or None

    def price_moves(self) -> Moves:
        """Moves of spot prices in the last day or so, the oldest first."""
        return price_moves(self._market)

    def doctor(self) -> Checks:
        from windfall.pools.ec2.doctor import examine

        return examine(self._pool, self._place, self._account, self._clock())

    def close(self) -> None:
        pass

    # --- machines ---

    def _sightings(self) -> Sightings | PoolError:
        found: Sightings = []
        mine = [{"Name": "tag-key", "Values": [STATE]}]
        for region in self._account.regions.values():
            reservations = region.pages("describe_instances", "Reservations", Filters=mine)
            if isinstance(reservations, PoolError):
                return reservations
            rows = [row for reservation in reservations for row in reservation["Instances"]]
            requests: dict[str, Any] = {}
            if any(row.get("SpotInstanceRequestId") for row in rows):
                listed = region.pages("describe_spot_instance_requests", "SpotInstanceRequests", Filters=mine)
                if isinstance(listed, PoolError):
                    return listed
                requests = {row["SpotInstanceRequestId"]: row for row in listed}
            found += [sighted(row, requests.get(row.get("SpotInstanceRequestId", "")), region.name) for row in rows]
        return found

    def _seen(self, row: Sighted, now: float) -> Seen:
        since_t = self._since_t(row, now)
        cause, about = row.cause, row.about
        if row.phase == ENDED and not cause and row.id in self._released:
            cause = RELEASED
        elif row.by_itself:
            words = self._last_words(row)
            cause, about = (FAILED if failed(words) else RELEASED) if words else cause, one_line(words) or about
        return Seen(row.id, row.phase, since_t, row.host, cause, row.taken_at_t, about)

    def _since_t(self, row: Sighted, now: float) -> float:
        """When its phase began: as EC2 says, else when it was launched, else when it was first seen so."""
        phase, since_t = self._since.get(row.id, ("", 0.0))
        if phase != row.phase:
            told_t = row.launched_t if row.phase in (PENDING, RUNNING) else row.changed_t
            # EC2 tells some times in whole seconds: no phase begins before the one that it follows.
            since_t = now if told_t is None or told_t < since_t - 1.0 else max(told_t, since_t)
            self._since[row.id] = (row.phase, since_t)
        return since_t

    def _last_words(self, row: Sighted) -> str:
        """The end of what a machine wrote to its console. EC2 shows it a while after the end, so ask again."""
        if not self._words.get(row.id) and self._asked.get(row.id, 0) < MOST_CONSOLES:
            self._asked[row.id] = self._asked.get(row.id, 0) + 1
            answer = self._account.regions[row.region].call("get_console_output", InstanceId=row.id)
            if not isinstance(answer, PoolError):
                self._words[row.id] = worker_words(str(answer.get("Output") or ""))
        return self._words.get(row.id, "")

    def _end(self, row: Sighted) -> PoolError | None:
        region = self._account.regions[row.region]
        if row.request and row.persistent:  # else it would start another instance
            answer = region.call("cancel_spot_instance_requests", SpotInstanceRequestIds=[row.request])
            if isinstance(answer, PoolError):
                return self._noted(answer)
        answer = region.call("terminate_instances", InstanceIds=[row.id])
        if isinstance(answer, ApiError) and answer.code == "InvalidInstanceID.NotFound":
            return None
        if isinstance(answer, PoolError):
            return self._noted(answer)
        self._rows[row.id] = replace(row, phase=ENDED, request_open=False, left_a_disk=False)
        return None

    def _clear_up(self) -> None:
        """Remains of machines that have ended: their persistent requests, the disks of those that shut down."""
        for row in [*self._rows.values()]:
            if row.phase == ENDED and (row.left_a_disk or (row.persistent and row.request_open)):
                self._end(row)

    def _is_persistent(self, rentable: Rentable) -> bool:
        return rentable.market == SPOT and self._settings.interruption != TERMINATE

    def _noted(self, error: PoolError) -> PoolError:
        """Before the next call, read the credentials again: expired ones may have been replaced."""
        if error.kind == CREDENTIALS:
            with contextlib.suppress(BadInput):
                self._account = self._account.renewed()
        return error

    # --- catalogue and prices ---

    def _opened(self) -> Market:
        """The catalogue and prices of now, or those of an earlier server if AWS does not let us in just now."""
        kept = self._kept()
        market = read_market(self._account, self._settings, self._clock(), kept)
        if isinstance(market, Market):
            self._keep(market)
            return market
        if kept is not None and market.kind != INVALID:
            log.warning("pool %s: the catalogue of an earlier day is used: %s", self._pool.name, market.error)
            return kept
        raise refused(self._pool.name, market)

    def _look_at_prices(self, now: float) -> None:
        market = self._market
        if now < market.priced_t + self._prices_every_s:
            return
        if now > market.read_t + CATALOGUE_EVERY_S:
            fresh = read_market(self._account, self._settings, now, market)
        else:
            fresh = priced(self._account, market, now)
        market.priced_t = now  # an error waits as long as an answer
        if isinstance(fresh, PoolError):
            log.warning("pool %s: prices cannot be read: %s", self._pool.name, fresh.error)
            return
        self._market = fresh
        self._keep(fresh)
        self.offers = offers_of(self._pool, fresh)

    @property
    def _file(self) -> Path:
        return self._place.directory / "market.json"

    def _kept(self) -> Market | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Market)
        except (OSError, msgspec.DecodeError):
            return None

    def _keep(self, market: Market) -> None:
        with contextlib.suppress(OSError):  # it is only used while AWS does not answer
            self._place.directory.mkdir(parents=True, exist_ok=True)
            self._file.with_suffix(".new").write_bytes(msgspec.json.encode(market))
            self._file.with_suffix(".new").replace(self._file)


def refused(pool: str, error: PoolError) -> BadInput:
    """Why a pool cannot be opened, and what to do."""
    hint = f"correct the settings; {HOWTO}"
    if error.kind == CREDENTIALS:
        hint = f"`aws sts get-caller-identity` must work for the user who runs the server; permissions: {HOWTO}"
    elif error.kind == TRANSIENT:
        hint = "try again; the network and the endpoint of the region must be reachable"
    return BadInput(f"pool '{pool}': {error.error}", hint=hint)
