"""Second attempts on machines beside free hosts, in virtual time: nothing that a live free host runs is thrown away,
the deadline holds where machines can still keep it, and a job that its free hosts finish costs nothing."""

from __future__ import annotations

import pytest

from windfall.core.decisions import PlanTaken
from windfall.core.engine import Engine
from windfall.core.records import Record, decode_record, encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.renting.fleet import ENDED, machine_of
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.policy import compile_policies
from windfall.sim.run import Notes, outcome_of
from windfall.sim.scenario import read
from windfall.sim.world import World

WORLD = """
[[pool]]
name = "own"
hosts = 6
slots = 4

[[cloud]]
name = "cloud"

[[cloud.offer]]
name = "spot"
market = "spot"
price_usd = 0.07
cores = 2
limit = 80
boot = "1m"
interruptions_per_h = 3
when_taken = "hibernate"
hibernated = { law = "exponential", mean = "2m" }

[[cloud.offer]]
name = "on-demand"
price_usd = 0.24
cores = 2
limit = 80
boot = "1m"

[[bag]]
name = "rush"
submit = "10s"
tasks = 24
run = "3m"
deadline = "8m"
planner = "windfall"
"""
SPREAD = 'bag.rush.run={law="lognormal", median="170s", sigma=0.3}'
VANISH = 'pool.own.stay={law="uniform", low="1m", high="4m"}'
SLOWER, MUCH_SLOWER, HANGING = "pool.own.speed=0.5", "pool.own.speed=0.1", "pool.own.speed=0.001"
FEWER = "pool.own.hosts=3"
ROOMY = "bag.rush.deadline=30m"
FLOW = "bag.rush.shape=parallel"


@pytest.fixture
def world(tmp_path):
    def made(*changes: str):
        path = tmp_path / "world.toml"
        path.write_text(WORLD)
        return read(str(path), list(changes))

    return made


class Watched:
    """A run that looks at every plan that is taken."""

    def __init__(self, scenario, seed: int) -> None:
        self.notes, self.plans, self.seconds = Notes(), 0, 0
        self.log: list[bytes] = []
        self.world = World(scenario, seed, self._keep)
        self.world.run()
        self.outcome = outcome_of(self.world, self.notes, seed)
        state = self.world.driver.state
        assert problems(state) == []
        assert all(machine.phase == ENDED for machine in state.fleet.machines.values())
        assert state.fleet.beside == {}
        again, engine = State(), Engine(compile_policies)
        for data in self.log:
            engine.apply(again, decode_record(data))
        assert save(again) == save(state), "the log alone brings the same state back"

    def _keep(self, record: Record) -> None:
        self.notes.keep(record)
        self.log.append(encode_record(record))
        taken = record.decided
        if not isinstance(taken, PlanTaken):
            return
        state = self.world.driver.state
        self.plans += 1
        assert problems(state) == []
        assert load(save(state)).fleet.beside == state.fleet.beside
        for job, task, number, _ in taken.moved:
            host = state.hosts[state.bags[job].attempts.given_up[task][-1].host]
            assert machine_of(state, host) is not None, f"attempt {number} of {job}.{task} on a free host is given up"
        queues = dict(taken.queues)
        for machine, names in taken.beside:
            self.seconds += len(names)
            assert set(names) <= set(queues[machine])


def test_a_job_that_its_free_hosts_finish_as_was_told_costs_nothing(world):
    for seed in range(1, 4):
        watched = Watched(world(), seed)
        assert watched.outcome.cost_usd == 0.0 and watched.outcome.met
        assert watched.seconds == 0 and watched.plans > 0


def test_the_first_to_end_do_not_make_the_others_look_late(world):
    for seed in range(1, 4):
        watched = Watched(world(SPREAD), seed)
        # Twelve machines would do all tasks; the few that take longest get some.
        assert watched.outcome.met and watched.outcome.cost_usd < 6 * 0.24


def test_machines_for_tasks_that_free_hosts_took_while_the_plan_was_made_are_not_rented(tmp_path):
    path = tmp_path / "world.toml"
    path.write_text(WORLD.replace('planner = "windfall"', 'fleet = "shared"') + '[[fleet]]\nname = "shared"\n')
    watched = Watched(read(str(path), ["server.planning=2s"]), 1)
    assert watched.outcome.cost_usd == 0.0 and watched.outcome.met


@pytest.mark.parametrize("changes", [(SLOWER,), (MUCH_SLOWER,), (HANGING,), (VANISH,), (FEWER, HANGING)])
def test_the_deadline_holds_whatever_free_hosts_do_if_tasks_take_what_was_told(world, changes):
    for seed in range(1, 4):
        watched = Watched(world(*changes), seed)
        assert watched.outcome.met, (seed, watched.outcome)
        assert watched.seconds > 0


@pytest.mark.parametrize("changes", [(HANGING,), (VANISH,), (SPREAD,)])
def test_a_workflow_is_in_time_though_its_first_tasks_run_on_free_hosts(world, changes):
    # While its first plan is made, free hosts take its first tasks.
    flow = ("bag.rush.shape=hybrid", "server.planning=15s", ROOMY)
    for seed in range(1, 3):
        watched = Watched(world(*flow, *changes), seed)
        assert watched.outcome.met and watched.seconds > 0, (seed, watched.outcome)


@pytest.mark.parametrize("planner", ["windfall", "hads", "greedy", "on-demand", "uniform-progress"])
def test_every_planner_has_second_attempts_begun_in_time(world, planner):
    watched = Watched(world(HANGING, f"bag.rush.planner={planner}"), 1)
    assert watched.outcome.met and watched.seconds >= 24


@pytest.mark.parametrize(
    "changes",
    [
        (SPREAD,), (SPREAD, SLOWER), (SPREAD, VANISH), (SPREAD, FEWER), ("bag.rush.told=nothing", SPREAD),
        (ROOMY, HANGING), (ROOMY, VANISH, SPREAD), ("bag.rush.checkpoint_mb=10", SPREAD, SLOWER),
        ("bag.rush.deadline=5m", SPREAD), (FLOW, SPREAD), (FLOW, SPREAD, SLOWER), (FLOW, VANISH),
    ],
)  # fmt: skip
def test_no_plan_throws_away_what_a_free_host_runs(world, changes):
    for seed in range(1, 3):
        watched = Watched(world(*changes), seed)
        assert watched.outcome.finished and watched.outcome.bags[0].done == 24, watched.outcome
