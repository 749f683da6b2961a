"""The simulated world around the real engine: promises at every step, the same log for a seed, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windfall.core.records import encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.snapshot import save
from windfall.sim.inputs.traces import Series
from windfall.sim.run import Notes, outcome_of, run
from windfall.sim.scenario import check
from windfall.sim.world import World

HOUR = 3600.0


def scenario(pool=None, bag=None, **more):
    """A few hosts and a small bag; `pool` and `bag` change single keys."""
    document = {
        "server": {"lease": "2m"},
        "pool": [{"name": "grid", "hosts": 8, "heartbeat": "40s"} | (pool or {})],
        "bag": [{"name": "bag", "tasks": 60, "run": {"law": "uniform", "low": "5m", "high": "15m"}} | (bag or {})],
    }
    return check(document | more, Path("test.toml"))


GONE_WRONG = {
    "preempted silently": {"stay": {"law": "exponential", "mean": "30m"}, "wait": "5m"},
    "preempted with notice": {"stay": {"law": "exponential", "mean": "30m"}, "wait": "5m", "notice": 1.0},
    "another host each time": {"stay": {"law": "exponential", "mean": "30m"}, "identity": "new"},
    "suspended": {"stay": {"law": "exponential", "mean": "30m"}, "wait": "20m", "leaves": "suspend"},
    "failing": {"errors": 0.2},
    "straggling": {"stragglers": 0.2, "straggler_factor": {"law": "pareto", "least": 2.0, "shape": 1.5}},
    "mostly absent": {"presence": {"law": "power", "low": 0.01, "high": 1.0, "shape": 2.4}, "presence_of": "attempt"},
    "bundled": {"prefetch": 3, "report": "batch", "stay": {"law": "exponential", "mean": "1h"}},
    "many slots": {"slots": 4, "hosts": 3, "stay": {"law": "exponential", "mean": "1h"}},
    "idle and back": {"idle": "1m", "wait": "10m"},
}


@pytest.mark.parametrize("what", GONE_WRONG)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_engine_keeps_its_promises_at_every_step_whatever_happens_to_the_hosts(what, seed):
    broken, worlds = [], []
    pool = GONE_WRONG[what]
    made = scenario(pool, {"max_failures": 30, "max_losses": 90, "policy": {"Deadline": "7200"}})
    world = World(made, seed, lambda record: broken.extend(p for w in worlds for p in problems(w.driver.state)))
    worlds.append(world)
    world.run()
    assert broken == []
    bag = world.driver.state.bags[1]
    assert bag.state == "done" and bag.counts == [0, 0, 60, 0, 0]


@pytest.mark.parametrize("what", ["preempted silently", "preempted with notice", "failing", "idle and back"])
def test_tasks_of_three_whole_hosts_are_done_beside_others_whatever_happens_to_the_hosts(what):
    broken, worlds, begun = [], [], {}
    pool = GONE_WRONG[what] | ({"stay": {"law": "exponential", "mean": "3h"}} if "stay" in GONE_WRONG[what] else {})
    wide = {"name": "wide", "tasks": 6, "nodes": 3, "run": "10m", "max_failures": 30, "max_losses": 90}
    small = {"name": "small", "tasks": 40, "run": "5m", "max_failures": 30, "max_losses": 90}
    document = {"server": {"lease": "2m"}, "pool": [{"name": "grid", "hosts": 8, "heartbeat": "40s"} | pool],
                "bag": [wide, small]}  # fmt: skip
    world = World(check(document, Path("test.toml")), 3,
                  lambda record: broken.extend(p for w in worlds for p in problems(w.driver.state)),
                  lambda host, key, start, end, cause: begun.setdefault(key, start))  # fmt: skip
    worlds.append(world)
    world.run()
    assert broken == [] and [bag.state for bag in world.driver.state.bags.values()] == ["done", "done"]
    tasks = [sorted(start for key, start in begun.items() if key[:2] == (1, task)) for task in range(6)]
    assert all(len(starts) >= 3 for starts in tasks), "three hosts each"
    if what == "failing":
        assert all(len(set(starts[at : at + 3])) == 1 for starts in tasks for at in range(0, len(starts) - 2, 3))


def log_of(made, seed) -> bytes:
    records = []
    World(made, seed, lambda record: records.append(encode_record(record))).run()
    return b"".join(records)


def test_the_same_seed_gives_the_same_log_byte_for_byte_and_another_seed_another():
    made = scenario({"stay": {"law": "exponential", "mean": "1h"}, "errors": 0.05})
    assert log_of(made, 3) == log_of(made, 3)
    assert log_of(made, 3) != log_of(made, 4)


def test_the_log_file_is_the_same_too_and_reads_like_a_live_one(tmp_path):
    made = scenario()
    for name in ("a", "b"):
        run(made, 1, tmp_path / name)
    text = (tmp_path / "a").read_bytes()
    assert text == (tmp_path / "b").read_bytes()
    documents = [json.loads(line) for line in text.splitlines()]
    assert [document["seq"] for document in documents] == list(range(1, len(documents) + 1))
    assert documents[0]["type"] == "ServerStarted" and documents[1]["job"] == 1
    assert {"ResultsReported", "HostAsked", "JobSealed"} <= {document["type"] for document in documents}


def attempts_of(made, seed):
    """(host, start, end) of every attempt by its key, and when each host was there."""
    found = {}
    world = World(made, seed, watch=lambda host, key, start, end, cause: found.update({key: (host, start, end, cause)}))
    world.run()
    return found, world


def test_another_policy_meets_the_same_hosts_run_times_and_failures():
    """Common random numbers: chance belongs to tasks, attempts and hosts, not to the order of questions."""
    pool = {"errors": 0.1, "speed": {"law": "lognormal", "median": 1.0, "sigma": 0.3}}
    plain, first = attempts_of(scenario(pool), 5)
    other, second = attempts_of(scenario(pool, {"policy": {"Rank": "1", "ReplicationRequirements": "false"}}), 5)
    assert [(host.name, host.speed) for host in first.hosts] == [(host.name, host.speed) for host in second.hosts]
    speeds = {host.name: host.speed for host in first.hosts}
    both = plain.keys() & other.keys()
    assert len(both) > 50
    for key in both:
        (host, start, end, cause), (host_, start_, end_, cause_) = plain[key], other[key]
        assert cause == cause_, "the same attempt fails under both or under none"
        assert (end - start) * speeds[host] == pytest.approx((end_ - start_) * speeds[host_], rel=1e-6)


def test_a_change_of_one_pool_leaves_the_chance_of_the_others_alone():
    two = [{"name": "a", "hosts": 3, "speed": {"law": "lognormal", "median": 1.0, "sigma": 0.5}}]
    alone = World(check_pools(two), 1)
    joined = World(check_pools([*two, {"name": "b", "hosts": 2}]), 1)
    speeds = [host.speed for host in alone.hosts]
    assert speeds == [host.speed for host in joined.hosts if host.name.startswith("a-")]


def check_pools(pools):
    bag = {"name": "bag", "tasks": 5, "run": "5m"}
    return check({"pool": pools, "bag": [bag]}, Path("test.toml"))


def test_results_of_an_outage_arrive_after_it_and_none_is_lost():
    made = scenario({"prefetch": 3}, outage=[{"at": "30m", "lasts": "1h"}])
    outcome, world = run(made, 1)
    times = [t for t in reports(made) if 1800 < t < 1800 + HOUR]
    assert times == []
    after = [t for t in reports(made) if 1800 + HOUR <= t < 1800 + HOUR + 400]
    assert len(after) >= 8, "what was run meanwhile is handed in at once"
    assert outcome.finished and world.driver.state.bags[1].counts[2] == 60


def reports(made) -> list[float]:
    times = []

    def keep(record):
        if type(record.event).__name__ == "ResultsReported":
            times.append(record.event.t)

    World(made, 1, keep).run()
    return times


def test_a_server_that_restarts_loses_nothing_and_counts_no_silence_against_the_hosts():
    calm, _ = run(scenario(), 1)
    outcome, world = run(scenario(restart=[{"at": "20m", "lasts": "10m"}]), 1)
    assert outcome.finished and outcome.bags[0].done == 60
    assert world.driver.state.bags[1].columns.losses.count(0) == 60
    assert outcome.turnaround_s <= calm.turnaround_s + 20 * 60


def test_no_host_speaks_to_a_server_that_is_down():
    times = []
    made = scenario(restart=[{"at": "20m", "lasts": "10m"}])
    World(made, 1, lambda record: times.append(record.event.t)).run()
    assert not [t for t in times if 1200 < t < 1800]
    assert 1800.0 in times


def test_a_black_hole_is_starved_and_the_bag_still_ends():
    pool = {"black_holes": 0.25, "hosts": 16}
    outcome, world = run(scenario(pool, {"max_failures": 30, "tasks": 200}), 2)
    holes = [host.name for host in world.hosts if host.black_hole]
    assert 0 < len(holes) < 8
    assert outcome.bags[0].done == 200
    # Five failures and a few tests: it does not go on eating tasks while the others still run their first.
    assert outcome.pools["grid"].failed < 40 * len(holes)
    suspected = [world.driver.state.host(name).record.probations for name in holes]
    assert sum(suspected) > 0


def test_what_is_rented_is_billed_by_the_begun_cycle():
    pool = {"hosts": 1, "price_usd": 0.5, "cycle": "1h", "wait": "10m"}
    outcome, _ = run(scenario(pool, {"tasks": 7, "run": "10m"}), 1)
    # Booted at 0, here after 10 minutes, 70 minutes of work: two begun hours.
    assert outcome.turnaround_s == pytest.approx(80 * 60, abs=1)
    assert outcome.cost_usd == 1.0


def test_suspended_work_goes_on_where_it_stopped():
    pool = {"hosts": 1, "stay": "7m", "wait": "3m", "leaves": "suspend", "heartbeat": "never"}
    made = scenario(pool, {"tasks": 1, "run": "10m"}, server={"lease": "never"})
    outcome, _ = run(made, 1)
    # Here from 3 to 10 and from 13 to 20 minutes: 7 + 3 minutes of work.
    assert outcome.turnaround_s == pytest.approx(16 * 60, abs=1)
    assert outcome.bags[0].attempts == 1


def test_killed_work_begins_again():
    pool = {"hosts": 1, "stay": "7m", "wait": "3m"}
    made = scenario(pool, {"tasks": 3, "run": "4m", "max_losses": 50}, until="3h")
    outcome, _ = run(made, 1)
    assert outcome.finished and outcome.pools["grid"].lost >= 2
    assert outcome.pools["grid"].lost_s > 0


def test_an_availability_series_takes_machines_away_and_brings_them_back(tmp_path):
    (tmp_path / "series.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [1, 1, 1, 0, 0, 1, 1, 1]}')
    document = {
        "pool": [{"name": "spot", "hosts": 3, "series": "series.json", "wait": "1m"}],
        "bag": [{"name": "bag", "tasks": 30, "run": "9m", "max_losses": 90}],
    }
    outcome, _ = run(check(document, tmp_path / "x.toml"), 1)
    books = outcome.pools["spot"]
    assert outcome.finished and books.stays > 3
    assert books.present_s < 3 * outcome.turnaround_s


def test_a_run_that_does_not_end_stops_at_its_time_and_says_so():
    made = scenario(bag={"run": "3h"}, until="2h")
    outcome, world = run(made, 1)
    assert not outcome.finished and world.driver.now == 2 * HOUR
    assert outcome.bags[0].unfinished == 60 and outcome.turnaround_s == 2 * HOUR


def test_the_outcome_adds_up():
    world = World(scenario({"errors": 0.1, "stay": {"law": "exponential", "mean": "1h"}}), 4, (notes := Notes()).keep)
    world.run()
    outcome = outcome_of(world, notes, 4)
    bag = outcome.bags[0]
    assert bag.done + bag.failed + bag.unfinished == bag.tasks == 60
    assert sum(books.done for books in outcome.pools.values()) == bag.done
    useful = sum(books.useful_s for books in outcome.pools.values())
    assert useful == pytest.approx(bag.run_s) and 0 < outcome.utilisation <= 1


def test_the_state_at_the_end_of_a_run_can_be_saved_and_is_the_same_for_a_seed():
    ends = []
    for _ in range(2):
        world = World(scenario({"stay": {"law": "exponential", "mean": "1h"}}), 9)
        world.run()
        ends.append(save(world.driver.state))
    assert ends[0] == ends[1]


def test_a_series_of_counts_shares_them_among_the_hosts():
    series = Series(600.0, (4, 4, 2, 2))
    assert [series.level(index, hosts=4) for index in range(4)] == [0, 1, 2, 3]
    assert [series.level(index, hosts=8) for index in (0, 3, 4, 7)] == [0, 1, 2, 3]
    assert series.stretches(1) == [(0.0, 2400.0)] and series.stretches(2) == [(0.0, 1200.0)]


def test_a_provider_without_capacity_is_asked_again_until_it_has_some():
    free, _ = run(scenario(), 1)
    outcome, _ = run(scenario({"refusals": 0.7, "refusal_pause": "10m"}), 1)
    assert outcome.finished and outcome.turnaround_s > free.turnaround_s


@pytest.mark.parametrize(("run", "ahead"), [("0.25s", True), ("60s", False)])
def test_hosts_hold_short_tasks_ready_by_the_rule_of_the_live_worker(run, ahead):
    world = World(scenario({"hosts": 1, "slots": 2}, bag={"tasks": 40, "run": run}), 1)
    held = []
    world.run(lambda world: held.append(len(world.hosts[0].running) + len(world.hosts[0].queue)), every=1)
    assert (max(held) > 2) == ahead
