"""Pools of a scenario that are asked, and hosts that are drained: the engine's wishes carried out in virtual time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from windfall.core.events import HostAsked, OverlayDue, PoolAnswered, PoolCounted, PoolsConfigured
from windfall.core.state.invariants import problems
from windfall.errors import BadInput
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.world import World
from windfall.wire.messages import NO_WORK

HOUR = 3600.0
GRID = {
    "name": "grid", "hosts": 40, "on_demand": True, "per_minute": 30, "heartbeat": "40s",
    "wait": {"law": "exponential", "mean": "5m"},
}  # fmt: skip


def scenario(*pools, bag=None, **more):
    document = {
        "server": {"lease": "2m"},
        "pool": list(pools) or [GRID],
        "bag": [{"name": "bag", "tasks": 200, "run": {"law": "uniform", "low": "5m", "high": "15m"}} | (bag or {})],
    }
    return check(document | more, Path("test.toml"))


class Run:
    """One run with its records, and how many workers of each pool were there or asked for at most."""

    def __init__(self, made, seed=1, look=True):
        self.records, self.most, self.broken = [], Counter(), []
        self.series: list[tuple[float, int, int]] = []
        """(time, workers that are there, tasks that wait)."""
        self.world: World | None = None
        self.look = look
        self.world = World(made, seed, self.keep)
        self.world.run()
        self.state = self.world.driver.state
        self.bag = self.state.bags[1]

    def keep(self, record):
        self.records.append(record)
        if self.world is None or not self.look:
            return
        state = self.world.driver.state
        if len(self.records) % 20 == 0:
            self.broken += problems(state)
        for name, pool in state.supply.pools.items():
            self.most[name] = max(self.most[name], pool.queued + state.hosts.by_pool.get(name, 0))
        waiting = sum(bag.waiting for bag in state.bags.values())
        self.series.append((record.event.t, sum(state.hosts.by_pool.values()), waiting))

    def events(self, kind):
        return [record.event for record in self.records if isinstance(record.event, kind)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_workers_come_when_they_are_asked_for_within_the_limit_and_every_task_is_done(seed):
    run = Run(scenario(), seed)
    assert run.bag.counts == [0, 0, 200, 0, 0] and run.broken == []
    assert 0 < run.most["grid"] <= 40
    asked = sum(
        ask.count for record in run.records if isinstance(record.event, OverlayDue) for ask in record.decided.asks
    )
    assert len(run.events(PoolsConfigured)) == 1
    assert sum(event.count for event in run.events(PoolAnswered)) == asked > 0, "every request was answered"
    came = {event.host for event in run.events(HostAsked)}
    assert len(came) <= asked, "nobody came unasked"


def test_without_tasks_nobody_is_asked_for():
    run = Run(scenario(bag={"submit": "6h", "tasks": 1}))
    assert min(event.t for event in run.events(HostAsked)) > 6 * HOUR


def test_workers_leave_for_want_of_work_once_the_tail_has_begun_and_are_not_asked_for_again():
    """GridBot, section 5: the number of workers follows the demand."""
    run = Run(scenario(bag={"tasks": 300, "run": {"law": "lognormal", "median": "10m", "sigma": 1.0}}))
    tail_t = next(t for t, _, waiting in run.series if t > HOUR / 2 and waiting == 0)
    end_t = run.bag.finished_t
    at_tail = max(there for t, there, _ in run.series if t <= tail_t)
    late = [there for t, there, _ in run.series if t > tail_t + 0.5 * (end_t - tail_t)]
    assert at_tail == 40 and min(late) < 10, "those without work have left"
    assert all(event.leaving in (None, NO_WORK) for event in run.events(HostAsked))
    static = Run(scenario({k: v for k, v in GRID.items() if k not in ("on_demand", "per_minute")},
                          bag={"tasks": 300, "run": {"law": "lognormal", "median": "10m", "sigma": 1.0}}))  # fmt: skip
    books = {name: made.world.grounds[0].books for name, made in (("asked", run), ("static", static))}
    assert books["asked"].present_s < 0.9 * books["static"].present_s


def test_a_pool_that_refuses_is_paused_and_the_others_do_the_work():
    broken = GRID | {"name": "broken", "refusals": 1.0, "price_usd": 0.0}
    run = Run(scenario(broken, GRID | {"price_usd": 0.1, "cycle": "1h"}))
    assert run.bag.state == "done" and run.broken == []
    refusals = [event for event in run.events(PoolAnswered) if event.pool == "broken"]
    assert all(event.error == "no capacity" for event in refusals) and 3 <= len(refusals) <= 12
    assert run.world.grounds[0].books.hosts == 0 < run.world.grounds[1].books.hosts


def test_hosts_that_come_by_themselves_are_used_before_any_is_asked_for():
    free = {"name": "free", "hosts": 60}
    run = Run(scenario(free, GRID, bag={"tasks": 60}))
    assert run.bag.state == "done" and run.events(PoolAnswered) == []


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "what",
    [
        {"stay": {"law": "exponential", "mean": "20m"}},
        {"stay": {"law": "exponential", "mean": "20m"}, "notice": 1.0},
        {"stay": {"law": "exponential", "mean": "30m"}, "leaves": "suspend"},
        {"refusals": 0.3},
        {"slots": 4, "hosts": 10},
    ],
    ids=["taken silently", "taken with notice", "suspended", "refused now and then", "many slots"],
)
def test_promises_hold_whatever_becomes_of_the_workers_through_an_outage_and_a_restart(what, seed):
    gaps = {"outage": [{"at": "20m", "lasts": "10m"}], "restart": [{"at": "40m", "lasts": "2m"}]}
    run = Run(scenario(GRID | what, bag={"tasks": 100, "max_losses": 90}, **gaps), seed)
    assert run.broken == [] and run.bag.counts == [0, 0, 100, 0, 0]
    assert len(run.events(PoolsConfigured)) == 2, "a server that starts says which pools there are"


def test_a_worker_that_is_reclaimed_while_the_server_cannot_be_reached_never_came():
    taken = GRID | {"wait": "10m", "stay": "5m", "hosts": 3}
    run = Run(scenario(taken, bag={"tasks": 3, "run": "1m", "max_losses": 90}, outage=[{"at": "5m", "lasts": "20m"}]))
    never = [event for event in run.events(PoolAnswered) if not event.ask]
    assert [event.count for event in never] == [3] and "without having reached the server" in never[0].error
    assert run.bag.state == "done"


def test_the_same_seed_gives_the_same_records():
    first, second = (Run(scenario(), look=False).records for _ in range(2))
    assert first == second


def test_a_pool_that_could_never_be_asked_is_refused():
    with pytest.raises(BadInput, match="per_minute"):
        scenario(GRID | {"per_minute": 0})


# --- drain ----------------------------------------------------------------------------------------------------------

HOSTS = {"name": "grid", "hosts": 8, "heartbeat": "40s"}


def exchanges(run, host):
    return [
        (record.event, record.decided)
        for record in run.records
        if isinstance(record.event, HostAsked) and record.event.host == host
    ]


def test_drained_hosts_finish_what_they_have_end_by_the_engines_answer_and_work_again_when_restarted():
    run = Run(scenario(HOSTS, drain=[{"pool": "grid", "hosts": 3, "at": "1h", "lasts": "2h"}]))
    assert run.bag.counts == [0, 0, 200, 0, 0] and run.world.grounds[0].books.lost == 0
    for number in range(3):
        asked = exchanges(run, f"grid-{number}")
        (stopped,) = [event for event, decided in asked if decided.stop and not event.leaving]
        assert HOUR < stopped.t < 1.5 * HOUR
        (left,) = [event for event, _ in asked if event.leaving]
        assert left.t == stopped.t and left.leaving == "drained"
        after = [(event, decided) for event, decided in asked if event.n == 1 and event.t > HOUR]
        assert [event.t for event, _ in after] == [stopped.t + 2 * HOUR] and after[0][1].assigned
        assert not any(decided.assigned for event, decided in asked if HOUR < event.t < stopped.t)
    assert not any(decided.stop for _, decided in exchanges(run, "grid-3"))


def test_workers_that_were_asked_for_and_are_drained_make_room_for_others():
    run = Run(scenario(GRID | {"hosts": 5, "wait": "1m"}, drain=[{"pool": "grid", "at": "1h"}]))
    assert run.bag.state == "done" and run.broken == []
    assert run.world.grounds[0].books.hosts == 10


def test_a_drain_of_an_unknown_pool_is_refused():
    with pytest.raises(BadInput, match="there is no pool 'gird'"):
        scenario(HOSTS, drain=[{"pool": "gird", "at": "1h"}])


def test_pools_are_counted_only_where_the_engine_believes_otherwise():
    outcome = Run(scenario())
    assert outcome.events(PoolCounted) == []
    assert run(scenario(), 1)[0].finished
