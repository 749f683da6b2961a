"""Whatever a planner proposes and a cloud does, the invariants of the engine hold."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis.strategies import booleans, floats, integers, sampled_from
from msgspec.structs import replace

from tests.support.clouds.ledger import recounted
from windfall.core.engine import Engine
from windfall.core.records import decode_record, encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.renting import fleet
from windfall.core.state.snapshot import save
from windfall.core.state.state import State
from windfall.planning.contract import Plan, Start, Task
from windfall.planning.offers import Offer
from windfall.policy import compile_policies
from windfall.sim.clouds.market import Supply
from windfall.sim.inputs.laws import RandomLaw, fixed
from windfall.sim.scenario import Gap
from windfall.sim.studies.one_bag import scenario_of
from windfall.sim.world import World


class Chaos:
    """Starts, stops and assigns at random: machines that are not there, tasks twice, done, or never there."""

    def __init__(self, seed: int, names_tasks: bool) -> None:
        self.chance, self.names_up_to = random.Random(seed), 1e9 if names_tasks else 0.0

    def __call__(self, snapshot):
        chance = self.chance
        labels = [f"new-{number}" for number in range(chance.choice((0, 0, 1, 2, 5)))]
        there = [machine.id for machine in snapshot.machines]
        names = [*labels, *there, "17", "nobody"]
        tasks = [*snapshot.tasks, -1, 0, 3, 10_000]
        return Plan(
            start=[Start(label, chance.choice(snapshot.offers)) for label in labels],
            stop=[name for name in names if chance.random() < 0.2],
            assign={
                name: chance.choices(tasks, k=chance.randint(0, 6)) for name in names if chance.random() < 0.4
            },
            replan_t=snapshot.t + chance.choice((20.0, 200.0, 2000.0)),
        )  # fmt: skip


def supplies(when_taken, per_h, cycle_s, free, refusals, notice):
    spot = Offer(
        name="spot", price_usd=0.03, cycle_s=cycle_s, cores=2, market="spot", when_taken=when_taken, limit=4,
        memory_gb=4.0, minimum_s=60.0, bills_boot=free, free_if_taken=free,
    )  # fmt: skip
    sure = Offer(name="sure", price_usd=0.1, cycle_s=cycle_s, cores=3, limit=4, speed=1.5)
    hibernated = RandomLaw("exponential", {"mean": 200.0})
    return [
        Supply(
            offer=spot, boot=fixed(60.0), interruptions_per_h=per_h, hibernated=hibernated,
            refusals=refusals, notice_s=notice,
        ),
        Supply(offer=sure, boot=fixed(90.0)),
    ]  # fmt: skip


@given(
    seed=integers(0, 10**6), names_tasks=booleans(), when_taken=sampled_from(["terminate", "stop", "hibernate"]),
    per_h=floats(0.5, 30.0), cycle_s=sampled_from([1.0, 60.0, 900.0]), free=booleans(),
    refusals=sampled_from([0.0, 0.5]), notice=sampled_from([0.0, 120.0]), mb=sampled_from([None, 10.0]),
    gap=sampled_from([None, "outages", "restarts"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_chaos_breaks_no_promise_and_every_bill_can_be_recounted(
    seed, names_tasks, when_taken, per_h, cycle_s, free, refusals, notice, mb, gap
):
    tasks = [Task(number, 100.0 + 37.0 * (number % 5), 1.5, checkpoint_mb=mb) for number in range(15)]
    made = scenario_of(
        tasks, supplies(when_taken, per_h, cycle_s, free, refusals, notice), 3000.0, "chaos", None, 5.0, 6000.0
    )
    if gap:
        made = replace(made, **{gap: (Gap(400.0, 150.0),)})
    broken, worlds, records = [], [], []

    def keep(record):
        records.append(encode_record(record))
        broken.extend(problem for world in worlds for problem in problems(world.driver.state))

    world = World(made, seed, keep, planner=lambda name: Chaos(seed, names_tasks))
    worlds.append(world)
    world.run()
    assert broken == []
    state, now = world.driver.state, world.driver.now
    owed = {number: fleet.owed_microusd(machine, now) for number, machine in state.fleet.machines.items()}
    if free:
        # Where the boot is not billed the meter begins with the first question, which no machine event tells.
        assert owed == recounted([decode_record(data) for data in records], now)
    again = State()
    engine = Engine(compile_policies)
    for data in records:
        engine.apply(again, decode_record(data))
    assert save(again) == save(state), "the log alone brings the same state back"
