"""Fleets, zones and moving prices from the real traces, a planner run in them, and a lower bound. Touches: traces."""

from __future__ import annotations

import csv
import gzip
import math
from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from windfall.errors import BadInput
from windfall.lab import data
from windfall.lab.spot.trace import SpotCaseResult, read_series
from windfall.planning.spot.fleet import FleetPlanner, FleetTerms, Seat, Zone, after_loss, move
from windfall.planning.spot.market import Market

FOLDER = "spot/skypilot-spot-traces"
PRICES = "prices"
PRICE_TICK_S = 600.0


class World(msgspec.Struct, frozen=True):
    """Zones over time: `counts` and `usd` go by (tick, zone)."""

    name: str
    tick_s: float
    seats: int
    ondemand_usd: float
    counts: list[list[int]]
    usd: list[list[float]]
    folder: str = ""
    """The folder of its series, which the prior must not have seen."""

    def sight(self, tick: int) -> tuple[Zone, ...]:
        """Capacity in a tick; zero after the end."""
        if tick >= len(self.counts):
            return tuple(Zone(0, usd) for usd in self.usd[-1])
        return tuple(Zone(count, usd) for count, usd in zip(self.counts[tick], self.usd[tick], strict=True))


def fleet_terms(world: World, *, work_h: float, deadline_h: float, changeover_s: float) -> FleetTerms:
    """`work_h` hours of work for every seat, in whole ticks: work and changeover rounded up, the deadline down."""
    return FleetTerms(
        seats=world.seats,
        work_ticks=world.seats * math.ceil(work_h * 3600.0 / world.tick_s - 1e-9),
        deadline_ticks=math.floor(deadline_h * 3600.0 / world.tick_s + 1e-9),
        changeover_ticks=math.ceil(changeover_s / world.tick_s - 1e-9),
        tick_s=world.tick_s,
        ondemand_usd=world.ondemand_usd,
    )


def run(world: World, start: int, terms: FleetTerms, planner: FleetPlanner) -> SpotCaseResult:
    """Run the fleet planner tick by tick; it sees the past and the present tick, never the future."""
    seats = tuple(Seat() for _ in range(terms.seats))
    for tick in range(start):
        planner.observe(world.sight(tick), seats)
    left, cost, now = terms.work_ticks, 0.0, 0
    while left > 0:
        sight = world.sight(start + now)
        seats = after_loss(seats, sight)
        planner.observe(sight, seats)
        picks = planner.choose(now, left, seats)
        spot = [pick.zone for pick in picks if pick.market is Market.SPOT]
        if any(spot.count(zone) > offer.count for zone, offer in enumerate(sight)):
            raise AssertionError(f"more spot chosen in tick {start + now} than there is")
        cost += sum(sight[zone].usd for zone in spot)
        cost += terms.ondemand_usd * sum(pick.market is Market.ONDEMAND for pick in picks)
        moved = [move(terms.changeover_ticks, seat, pick, now) for seat, pick in zip(seats, picks, strict=True)]
        seats, left, now = tuple(seat for seat, _ in moved), left - sum(done for _, done in moved), now + 1
    return SpotCaseResult(cost * terms.tick_s / 3600.0, now * terms.tick_s / 3600.0, now <= terms.deadline_ticks)


def bound_usd(world: World, start: int, terms: FleetTerms) -> float:
    """A lower bound on the omniscient cost: the linear relaxation, in which machines may be split.

    Variables by tick and market: machines `x`, and starts `s`, at least the growth of `x`. A machine makes no progress
    in its first `changeover` ticks, so the work of a tick is the machines less the starts of that many ticks. (An
    omniscient planner never loses a machine before it is warm.)
    """
    sights = [world.sight(start + tick) for tick in range(terms.deadline_ticks)]
    markets, ticks, change = len(sights[0]) + 1, terms.deadline_ticks, terms.changeover_ticks
    price = np.array([[zone.usd for zone in sight] + [terms.ondemand_usd] for sight in sights])
    most = np.array([[min(zone.count, terms.seats) for zone in sight] + [terms.seats] for sight in sights])
    size = markets * ticks
    x = np.arange(size).reshape(ticks, markets)
    starts, works = x + size, x + 2 * size
    rows, columns, entries, limits = [], [], [], []
    row = 0

    def add(terms_of_row: list[tuple[int, float]], limit: float) -> None:
        nonlocal row
        for column, entry in terms_of_row:
            rows.append(row)
            columns.append(column)
            entries.append(entry)
        limits.append(limit)
        row += 1

    for tick in range(ticks):
        add([(int(x[tick, market]), 1.0) for market in range(markets)], terms.seats)
        for market in range(markets):
            before = [(int(x[tick - 1, market]), -1.0)] if tick else []
            add([(int(x[tick, market]), 1.0), *before, (int(starts[tick, market]), -1.0)], 0.0)
            fresh = [(int(starts[back, market]), 1.0) for back in range(max(0, tick - change + 1), tick + 1)]
            add([(int(works[tick, market]), 1.0), (int(x[tick, market]), -1.0), *(fresh if change else [])], 0.0)
    add([(int(column), -1.0) for column in works.ravel()], -float(terms.work_ticks))
    matrix = coo_array((entries, (rows, columns)), shape=(row, 3 * size)).tocsr()
    upper = np.concatenate([most.ravel(), np.full(size, np.inf), np.full(size, np.inf)])
    zeros = np.zeros(size)
    found = linprog(
        np.concatenate([price.ravel(), zeros, zeros]), matrix, limits,
        bounds=np.stack([np.zeros(3 * size), upper], axis=1), method="highs",
    )  # fmt: skip
    return float(found.fun) * terms.tick_s / 3600.0 if found.status == 0 else math.inf


@cache
def fleets(spot_usd: float, ondemand_usd: float) -> list[World]:
    """The 16- and 4-node series: as many seats as the series counts to."""
    found = []
    for part in ("availability/16-node", "preemption/4-node"):
        folder = data.find(f"{FOLDER}/{part}")
        for path in sorted(folder.rglob("*.json")):
            series = read_series(path)
            counts = [[int(count)] for count in series.counts]
            usd = [[spot_usd]] * len(counts)
            name = f"{part.split('/')[1]} {path.stem}"
            found.append(
                World(name, series.tick_s, max(row[0] for row in counts), ondemand_usd, counts, usd, str(path.parent))
            )
    return found


ZONES = {
    "five zones": ("us-east-1a", "us-east-1c", "us-east-2a", "us-west-2a", "us-west-2b"),
    "three zones, east": ("us-east-1a", "us-east-1c", "us-east-2a"),
    "two scarce zones": ("us-east-1a", "us-east-1c"),
}


@cache
def zones(spot_usd: float, ondemand_usd: float) -> list[World]:
    """One machine over zones that were watched at the same time."""
    found = []
    for name, places in ZONES.items():
        folder = data.find(f"{FOLDER}/availability/1-node/aws-02-15-2023")
        all_series = [read_series(folder / f"{place}_v100_1.json") for place in places]
        counts = [list(row) for row in zip(*([int(c) for c in series.counts] for series in all_series), strict=True)]
        usd = [[spot_usd] * len(places)] * len(counts)
        found.append(World(name, all_series[0].tick_s, 1, ondemand_usd, counts, usd, str(folder)))
    return found


# On-demand list prices of the same months in USD per hour: the highest sensible bids.
ONDEMAND_2024 = {"p3.2xlarge": 3.06, "g4dn.xlarge": 0.526, "m5.xlarge": 0.192, "c5.xlarge": 0.17}
ONDEMAND_2015 = {"m3.medium": 0.067, "r3.large": 0.175}
PRICE_SEATS = 4


@cache
def prices(_spot_usd: float, _ondemand_usd: float) -> list[World]:
    """Prices that move: zones of one region in 2024, and the spikes of the auctions of 2015."""
    region = _price_rows(data.find(f"{PRICES}/aws-us-east-1-2024-03_2024-05.csv.gz"))
    found = []
    for kind, ondemand in ONDEMAND_2024.items():
        by_zone: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in region:
            if row["instance_type"] == kind:
                by_zone[row["availability_zone"]].append((_seconds(row["timestamp"]), float(row["usd_per_hour"])))
        found.append(_priced(f"2024 {kind}", list(by_zone.values()), ondemand))
    for kind, ondemand in ONDEMAND_2015.items():
        rows = _price_rows(data.find(f"{PRICES}/aws-2015-auction/us-east-1a-Linux-{kind}.csv.gz"))
        found.append(
            _priced(f"2015 {kind}", [[(_seconds(r["timestamp"]), float(r["usd_per_hour"])) for r in rows]], ondemand)
        )
    return found


def _price_rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as lines:
        return list(csv.DictReader(lines))


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()


def _priced(name: str, by_zone: list[list[tuple[float, float]]], ondemand_usd: float) -> World:
    """Prices per tick, from when every zone has one; there is capacity while the price is below on-demand."""
    if not by_zone:
        raise BadInput(f"no prices for {name}", hint="set WINDFALL_DATA to the folder that holds the traces")
    changes = [sorted(events) for events in by_zone]
    first, last = max(events[0][0] for events in changes), max(events[-1][0] for events in changes)
    times = [[at for at, _ in events] for events in changes]
    usd = [
        [events[bisect_right(at, moment) - 1][1] for events, at in zip(changes, times, strict=True)]
        for moment in np.arange(first, last, PRICE_TICK_S)
    ]
    counts = [[PRICE_SEATS if price < ondemand_usd else 0 for price in row] for row in usd]
    return World(name, PRICE_TICK_S, PRICE_SEATS, ondemand_usd, counts, usd)


EXPERIMENTS = {"fleet": fleets, "bags": fleets, "zones": zones, "prices": prices}
