"""Logs in which much happens: clouds, hosts that fail and leave, workflows, pools, sites. For tests of replay."""

from __future__ import annotations

import zlib
from array import array
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.support.engine.every_event import every_event
from tests.support.engine.hand import Hand
from windfall.core.engine import Engine
from windfall.core.events import (
    FleetChanged,
    InstanceRequested,
    InstancesWanted,
    JobCancelled,
    JobChanged,
    JobForgotten,
    JobRetried,
    JobRules,
    OverlayDue,
    PoolAnswered,
    PoolsConfigured,
    ServerStarted,
    Settings,
    SiteCreated,
    SiteHostReported,
    TaskClass,
)
from windfall.core.formats import read_record
from windfall.core.records import Record, encode_record
from windfall.core.sites.instances import InstanceEnd, SiteRules, Wish
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.renting.fleets import DELETED, DRAINING, OPEN, PAUSED, FleetRules
from windfall.core.state.saving import Reader
from windfall.core.state.snapshot import SavedState, save
from windfall.core.state.state import State
from windfall.sim.scenario import check
from windfall.sim.world import World

LOGS = Path(__file__).parents[2] / "data" / "logs"
SPOT = {"name": "spot", "market": "spot", "price_usd": 0.03, "cycle": "15m", "cores": 2, "limit": 6, "boot": "3m"}
SURE = {"name": "sure", "price_usd": 0.10, "cycle": "15m", "cores": 2, "limit": 8, "boot": "3m"}
SLEEPS = {"interruptions_per_h": 4.0, "when_taken": "hibernate", "asleep": {"law": "exponential", "mean": "4m"}}
RUN = {"law": "uniform", "low": "2m", "high": "5m"}
GRID = {
    "name": "grid", "hosts": 8, "poll_max": "20s", "stay": {"law": "exponential", "mean": "30m"}, "leaves": "kill",
    "wait": "2m", "errors": 0.05, "faulty": 0.2, "faulty_errors": 0.9, "stragglers": 0.1,
}  # fmt: skip


def simulated(document: dict[str, object], seed: int = 1) -> list[Record]:
    records: list[Record] = []
    World(check(document, Path("test.toml")), seed, records.append).run()
    return records


def rented() -> list[Record]:
    """Machines that are refused, taken, hibernated and resumed; free hosts beside them; run times that are learned."""
    bag = {"name": "bag", "tasks": 60, "run": RUN, "deadline": "50m", "max_losses": 200}
    cloud = {"name": "cloud", "offer": [SPOT | SLEEPS | {"refusals": 0.5}, SURE]}
    few = {"name": "grid", "hosts": 2, "poll_max": "20s", "stay": {"law": "exponential", "mean": "20m"}}
    bags = [bag | {"planner": "hads", "told": "each"}, bag | {"name": "other", "planner": "windfall", "submit": "5m"}]
    return simulated({"cloud": [cloud], "pool": [few], "bag": bags})


def beside_free_hosts() -> list[Record]:
    """Free hosts that are slow: plans have machines begin what runs there, and one or the other is done first."""
    slow = {"name": "own", "hosts": 3, "slots": 4, "speed": {"law": "uniform", "low": 0.5, "high": 0.9}}
    quick = {"cycle": "1m", "boot": "1m"}
    cloud = {"name": "cloud", "offer": [SPOT | SLEEPS | quick, SURE | quick]}
    bag = {"name": "bag", "tasks": 14, "run": "3m", "deadline": "8m", "planner": "windfall", "submit": "10s"}
    return simulated({"cloud": [cloud], "pool": [slow], "bag": [bag]})


def grid() -> list[Record]:
    """Hosts that fail tasks, fall silent and come back; many results, so that timeouts are learned; workflows."""
    many = {"name": "many", "tasks": 600, "run": {"law": "uniform", "low": "10s", "high": "60s"}, "max_losses": 200}
    flow = {"name": "flow", "tasks": 12, "shape": "hybrid", "run": RUN, "copies": 2, "every": "10m", "max_losses": 200}
    return simulated({"pool": [GRID], "bag": [many, flow]})


def by_hand() -> list[Record]:
    """Pools that refuse, workers that leave without a task, jobs that are stopped, changed, retried; a site."""
    hand, chance = Hand(lease_s=30.0), Random(1)
    pools = [PoolRules("cheap", "simulated", 5, 2, per_minute=600.0), PoolRules("dear", "simulated", 5, 1, 1.0)]
    hand.step(PoolsConfigured(hand.t, pools))
    hand.step(SiteCreated(hand.t, SiteRules("lab", {"vcpu": 1.0})))
    hand.step(SiteHostReported(hand.t, "lab", "x", "b", 1, {"vcpu": 2.0}, []))
    rules = JobRules("stops", max_failed_tasks=2)
    stops = hand.submit(40, [TaskClass(max_failures=1)], name="stops", max_failed_tasks=2)
    hand.submit(60, name="bag")
    n, started = 1, [0]
    for turn in range(150):
        host = f"h{turn % 5}"
        asks = hand.step(OverlayDue(hand.t)).decided.asks
        for ask in asks:
            error = "no" if turn % 3 else ""
            hand.step(PoolAnswered(hand.t, ask.pool, ask.count, error, ask.number))
        if turn % 17 == 3:
            hand.ask(f"idle{turn}", want=0, pool="cheap")
            hand.ask(f"idle{turn}", want=0, leaving="idle")
        keys = hand.tasks(host, want=2, slots=2, pool="cheap" if turn % 2 else "dear")
        hand.wait(chance.expovariate(1 / 9.0))
        if keys and turn % 7:
            bad = host == "h0" or chance.random() < 0.2
            hand.report(host, *keys, cause="exit" if bad else "done", run_s=0.5)
        if turn == 60:
            hand.step(JobRetried(hand.t, stops.number, [0, 1]))
            hand.step(JobChanged(hand.t, stops.number, rules))
        if turn == 90:
            hand.step(JobCancelled(hand.t, stops.number))
            hand.submit(20, name="bag")
        if turn % 10 == 5:
            hand.step(InstancesWanted(hand.t, "lab", 2))
            hand.step(InstanceRequested(hand.t, "lab", Wish({"vcpu": 1.0}, ["true"])))
            n += 1
            ended = [InstanceEnd(one.number, "done", 0, hand.t - 1, hand.t) for one in _running(hand, started)]
            hand.step(SiteHostReported(hand.t, "lab", "x", "b", n, None, None, [], ended))
    return hand.log


def _running(hand: Hand, started: list[int]) -> list:
    """Instances of the site that are at work, each once."""
    found = [one for one in hand.state.sites["lab"].on("x") if one.number > started[0]]
    started[0] = max([started[0], *(one.number for one in found)])
    return found


def fleets() -> list[Record]:
    """Bags and workflows of two owners in a fleet with a budget, which is paused, opened, drained and deleted."""
    records: list[Record] = []
    bag = {"name": "bag", "tasks": 8, "run": RUN, "deadline": "60m", "copies": 4, "every": "9m", "fleet": "shared"}
    flow = {**bag, "name": "flow", "shape": "hybrid", "tasks": 10, "told": "each", "deadline": "90m"}
    cloud = {"name": "cloud", "offer": [SURE, SURE | {"name": "one", "cores": 1, "price_usd": 0.06}]}
    shared = {"name": "shared", "planner": "scs", "budget_usd": 3.0}
    world = World(
        check({"cloud": [cloud], "bag": [bag, flow], "fleet": [shared]}, Path("test.toml")), 1, records.append
    )
    number = world.driver.state.fleet.book.by_name["shared"]

    def change(mode: str | None, rules: FleetRules | None = None) -> None:
        world.driver.submit(FleetChanged(world.driver.now, number, mode, rules))

    world.driver.at(600.0, change, PAUSED)
    world.driver.at(900.0, change, DELETED)
    world.driver.at(1200.0, change, OPEN, FleetRules("shared", ["cloud"], "gain", 4_000_000))
    world.driver.at(2400.0, change, None, FleetRules("shared", ["cloud"], "greedy"))
    world.run()
    change(DRAINING)
    change(DELETED)
    return records


def forgotten() -> list[Record]:
    """Jobs that are forgotten when they have ended, and refused before; hosts that report of them later."""
    hand = Hand(lease_s=30.0)
    first = hand.submit(3, name="first", key="k")
    keys = hand.tasks("h1", want=4, slots=4)
    hand.step(JobForgotten(hand.t, first.number))
    hand.report("h1", *keys)
    hand.step(JobForgotten(hand.t, first.number))
    hand.step(JobForgotten(hand.t, first.number))
    second = hand.submit(4, name="second")
    late = hand.tasks("h2", want=2, slots=2)
    hand.step(JobCancelled(hand.t, second.number))
    hand.step(JobForgotten(hand.t, second.number))
    hand.report("h2", *late)
    hand.submit(2, name="first", key="k")
    hand.wait(100.0)
    hand.report("h3", *hand.tasks("h3"))
    return hand.log


def units() -> list[Record]:
    """Tasks with GPUs and licences: given out, reported, cancelled, lost with a host, counted after a restart."""
    hand = Hand(lease_s=30.0, resources={"licence": 2000})
    both = TaskClass(needs=(("gpus", 500), ("licence", 1000)))
    first = hand.submit(6, [both], name="first")
    keys = hand.tasks("h1", want=4, slots=4, resources={"gpus": 2})
    hand.report("h1", keys[0])
    hand.tasks("h2", want=2, slots=2, resources={"gpus": 1})
    hand.step(JobCancelled(hand.t, first.number, [keys[1][1]]))
    hand.ask("h1", want=2, slots=4)
    hand.report("h1", keys[1], cause="cancelled")
    hand.step(ServerStarted(hand.t, Settings(lease_s=30.0, resources={"licence": 3000})))
    hand.submit(2, [TaskClass(needs=(("gpus", 1500),))], name="second")
    hand.ask("h1", want=4, slots=4)
    hand.wait(100.0)
    hand.tasks("h3", want=2, slots=2, resources={"gpus": 2})
    return hand.log


def volunteers() -> list[Record]:
    """Hosts of volunteers that agree, lie, fall silent past their deadlines and report late; a worker beside them."""
    hand = Hand(lease_s=30.0)
    rules = PoolRules("boinc", "boinc", 10, joins_itself=True, deadline_s=300.0, least_deadline_s=100.0)
    hand.step(PoolsConfigured(hand.t, [rules]))
    hand.submit(6, name="checked", quorum=2)
    hand.submit(2, [TaskClass(max_failures=1)], name="disputed", quorum=2)
    for turn in range(8):
        for owner in "1234":
            host = f"boinc-{owner}"
            for key in hand.tasks(host, 2, slots=2, pool="boinc", owner=owner):
                late = owner == "3" and turn == 1
                if late:
                    hand.wait(400.0)
                digest = owner if key[0] == 2 or (owner == "4" and turn == 0) else "same"
                hand.report(host, key, digest=digest)
        hand.wait(50.0)
    hand.report("worker", *hand.tasks("worker", 4, slots=4), digest="same")
    return hand.log


WORLDS = {"rented": rented, "grid": grid, "by hand": by_hand, "every event": every_event, "fleets": fleets,
          "forgotten": forgotten, "units": units, "volunteers": volunteers,
          "beside free hosts": beside_free_hosts}  # fmt: skip


def store(format_: int, name: str, log: list[Record]) -> None:
    """Keep a log and the state that it gives. Call it by hand, once: when a format or a kind of event is new."""
    folder = LOGS / f"format-{format_}"
    folder.mkdir(exist_ok=True)
    data = [encode_record(record) for record in log]
    _write(folder / f"{name}.log", data)
    engine, state = Engine(), State()
    for record in data:
        engine.apply(state, read_record(state, record, format_))
    _write(folder / f"{name}.state", described(state))


def stored(format_: int) -> dict[str, list[bytes]]:
    """The stored logs of a format by name."""
    return {path.stem: _read(path) for path in sorted((LOGS / f"format-{format_}").glob("*.log"))}


def state_then(format_: int, name: str) -> Any:
    """What `described` told of the state when the log was stored."""
    return _read(LOGS / f"format-{format_}" / f"{name}.state")


def described(state: State) -> Any:
    """The saved state as plain values in which structs are told from lists."""
    return _plain(Reader(save(state)).read(SavedState))


def holds_all_of(now: Any, then: Any) -> bool:
    """Whether a state is the same as the one described then, apart from fields that structs have got at their end."""
    if isinstance(then, dict):
        (kind, parts), (kind_now, parts_now) = *then.items(), *now.items()
        if kind == "struct":
            parts_now = parts_now[: len(parts)]
        return kind == kind_now and holds_all_of(parts_now, parts)
    if isinstance(then, list):
        return len(now) == len(then) and all(map(holds_all_of, now, then))
    return bool(now == then)


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {"struct": [_plain(getattr(value, name)) for name in value.__struct_fields__]}
    if isinstance(value, dict):
        return {"map": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple | array):
        return [_plain(item) for item in value]
    return _plain(value.saved()) if hasattr(value, "saved") else value


def _write(path: Path, value: Any) -> None:
    path.write_bytes(zlib.compress(msgspec.msgpack.encode(value), 9))


def _read(path: Path) -> Any:
    return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()))
