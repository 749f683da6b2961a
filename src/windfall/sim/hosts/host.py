"""A simulated pool and its hosts: prepared laws, properties of each host, and statistics of its work. Pure.

Properties of a host (speed, whether it is faulty) are drawn once per host; arrival and end of a stay once per stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from msgspec import Struct

from windfall.core.events import Key, Result
from windfall.core.renting import money
from windfall.planning.offers import Offer
from windfall.sim.chance import stream
from windfall.sim.hosts.checkpoints import Saves
from windfall.sim.scenario import Pool
from windfall.worker import pace
from windfall.worker.pace import Durations

LEAST_PRESENCE = 0.01
LEAST_SPEED = 0.01


@dataclass(slots=True)
class Books:
    """Statistics of a pool: seconds of work by use, attempts by cause of end, money.

    A data class: several of its fields change with every attempt, and a `Struct` takes eight times as long for that.
    """

    hosts: int = 0
    stays: int = 0
    exchanges: int = 0
    done: int = 0
    discarded: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    present_s: float = 0.0
    useful_s: float = 0.0
    discarded_s: float = 0.0
    failed_s: float = 0.0
    lost_s: float = 0.0
    cost_microusd: int = 0
    refused: int = 0
    interrupted: int = 0


class Running(Struct, gc=False):
    """One attempt on a slot: when it began, when it will end, its work, and how it ends."""

    start_s: float
    end_s: float
    cpu_s: float
    cause: int
    slept_s: float = 0.0
    """Seconds of that time for which its host was suspended."""
    saves: Saves | None = None

    @property
    def awake_since_s(self) -> float:
        """Its start, later by the time of suspension: what workers report."""
        return self.start_s + self.slept_s

    def worked_s(self, now: float) -> float:
        """The work done until now."""
        wall_s = self.end_s - self.start_s - self.slept_s
        share = (now - self.start_s - self.slept_s) / wall_s if wall_s > 0 else 0.0
        return self.cpu_s * min(1.0, max(0.0, share))

    def sleep(self, seconds: float) -> None:
        """Its host was suspended: the end is later by this time."""
        self.end_s += seconds
        self.slept_s += seconds


class Host:
    """One simulated host with its worker."""

    __slots__ = (
        "ad", "ask_again", "asked", "asking", "away_s", "black_hole", "boot", "boots", "durations", "epoch",
        "errors", "every_s", "here", "idle_since", "index", "last_s", "n", "name", "offer", "part", "polling", "polls",
        "pool", "presence", "queue", "rented_s", "results", "retries", "retrying", "running", "since_s", "speed",
        "tells_ad", "warm_t",
    )  # fmt: skip
    ad: dict[str, Any]
    black_hole: bool
    errors: float
    presence: float
    speed: float

    def __init__(self, pool: Ground, index: int) -> None:
        self.pool, self.index = pool, index
        self.name = f"{pool.pool.name}-{index}"
        self.boot = ""
        self.offer: Offer | None = None
        """The offer of a rented machine; it may have a speed per class of tasks."""
        self.asked = self.boots = self.epoch = self.n = self.polls = self.retries = 0
        self.here = self.polling = self.retrying = False
        self.asking = self.ask_again = False
        """An exchange is on its way, and another one is due when its answer is there."""
        self.tells_ad = False
        """It was forgotten while it was away, and says at the next exchange what it is."""
        self.last_s = self.since_s = self.rented_s = 0.0
        self.warm_t = 0.0
        """From when on it can begin tasks."""
        self.away_s = inf
        """Seconds after which it is started again when it has been drained."""
        self.idle_since = inf
        self.running: dict[Key, Running] = {}
        self.queue: list[Key] = []
        self.part: Key | None = None
        """An attempt of several hosts that it holds until all of them do."""
        self.every_s: dict[Key, float] = {}
        """How often attempts save, where the engine says so."""
        self.results: list[Result] = []
        self.durations = Durations()
        pool.describe(self)

    def want(self, now: float) -> int:
        """How many tasks it would take: free slots, and what its worker holds ready of tasks shorter than a second."""
        held, pool = len(self.running) + len(self.queue), self.pool
        if not pool.bundles:
            return pool.hold - held
        longest_s = max(0.0, now - min((running.start_s for running in self.running.values()), default=now))
        return pace.want(pool.pool.slots, held, self.durations.mean_s(longest_s))

    def room(self, want: int) -> int:
        """How many more it could hold if the server hands out ahead; a host with a fixed prefetch holds just that."""
        if not self.pool.bundles:
            return 0
        return pace.room(self.pool.pool.slots, len(self.running) + len(self.queue) + max(0, want))


class Ground:
    """A pool with its laws prepared for drawing."""

    def __init__(self, pool: Pool, seed: int) -> None:
        self.pool = pool
        self.books = Books()
        self.arrived: dict[float, int] = {}
        """Accepted results by the hour in which they reached the server."""
        self.hold = pool.slots + (pool.prefetch or 0)
        self.slots, self.round_trip_s, self.reports_each = pool.slots, pool.round_trip_s, pool.report == "each"
        self.long_poll = pool.long_poll
        self.warm_up_s = 0.0
        self.bundles = pool.prefetch is None
        """Hosts hold tasks ready by the rule of the live worker (worker.pace)."""
        self.arrive, self.wait, self.stay = pool.arrive.quantile(), pool.wait.quantile(), pool.stay.quantile()
        self.presence, self.drag = pool.presence.quantile(), pool.straggler_factor.quantile()
        self._speed = pool.speed.quantile()
        self._streams = {
            what: stream(seed, f"pool/{pool.name}/{what}")
            for what in ("speed", "kind", "arrive", "wait", "stay", "presence", "notice", "series", "pause", "refusal")
        }
        self.offer = Offer(name=pool.name, price_usd=pool.price_usd, cycle_s=pool.cycle_s)
        self._stretches: dict[float, list[tuple[float, float]]] = {}
        self._period = len(pool.ticks.counts) * pool.ticks.tick_s if pool.ticks else 0.0
        # Every seed sees another part of the series.
        self._offset = self._streams["series"](0) * self._period
        self.notes_presence = pool.presence.kind != "fixed" or pool.presence.parameters["value"] != 1.0

    def describe(self, host: Host) -> None:
        """Draw the properties of a host: once, or per stay where each stay is a new host."""
        pool, index, life = self.pool, host.index, 0
        if pool.identity == "new":
            life = host.boots
            host.name = f"{pool.name}-{index}.{life}"
        host.speed = max(LEAST_SPEED, self._speed(self._streams["speed"](index, life)))
        kind = self._streams["kind"](index, life)
        host.black_hole = kind < pool.black_holes
        host.errors = pool.faulty_errors if kind > 1.0 - pool.faulty else pool.errors
        host.presence = max(LEAST_PRESENCE, min(1.0, self.presence(self._streams["presence"](index, life))))
        host.ad = self._ad(host)

    def _ad(self, host: Host) -> dict[str, Any]:
        pool = self.pool
        ad: dict[str, Any] = {"name": host.name, "pool": pool.name, "cpus": pool.slots, "speed": round(host.speed, 3)}
        if pool.memory_mb:
            ad["memory_mb"] = pool.memory_mb
        if pool.resources:
            ad["resources"] = {name: int(count) for name, count in pool.resources.items()}
        if pool.tags:
            ad["tags"] = pool.tags
        if pool.round_trip_s:
            ad["round_trip_s"] = pool.round_trip_s
        return ad

    def first(self, host: Host) -> float:
        """When a host is first requested."""
        return self.arrive(self._streams["arrive"](host.index))

    def next_stay(self, host: Host, now: float) -> tuple[float, float, float]:
        """(start of rent, arrival, end) of a host's next stay, requested now."""
        wait_s = self.wait(self._streams["wait"](host.index, host.boots))
        if self.pool.ticks is not None:
            return self._next_stretch(host, now, wait_s)
        return now, now + wait_s, now + wait_s + self.stay(self._streams["stay"](host.index, host.boots))

    def _next_stretch(self, host: Host, now: float, wait_s: float) -> tuple[float, float, float]:
        """The next interval of the series that is longer than the boot; the series repeats."""
        ticks = self.pool.ticks
        assert ticks is not None
        level = ticks.level(host.index, self.pool.hosts)
        stretches = self._stretches.get(level)
        if stretches is None:
            stretches = self._stretches[level] = ticks.stretches(level)
        turn, place = divmod(now + self._offset, self._period)
        for lap in range(3):
            base = (turn + lap) * self._period - self._offset
            for start, end in stretches:
                begin = max(now, base + start)
                if base + end > begin + wait_s and (lap or end > place):
                    return begin, begin + wait_s, base + end
        return inf, inf, inf

    def refuses(self, host: Host) -> bool:
        """Whether the provider refuses this request for lack of capacity; drawn per request."""
        host.asked += 1
        return self._streams["refusal"](host.index, host.asked) < self.pool.refusals

    def tells(self, host: Host) -> bool:
        """Whether a host that is killed reports so before."""
        return self._streams["notice"](host.index, host.boots) < self.pool.notice

    def pause_s(self, host: Host, doublings: int, base_s: float, most_s: float) -> float:
        """Exponential back-off with jitter."""
        pause = min(most_s, base_s * 2.0 ** min(doublings, 30))
        return round(pause * (0.5 + 0.5 * self._streams["pause"](host.index, host.n)), 3)

    def bill(self, lease_s: float) -> int:
        """Cost of a stay in micro-dollars: every begun cycle in full."""
        return round(money.price_microusd(self.pool.price_usd) * self.offer.cycles(lease_s))
