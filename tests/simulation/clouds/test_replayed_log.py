"""A log with rented machines, replayed: the same machines, interruptions and prices give the same finish and bill."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from windfall.cli.simulate.command import simulate
from windfall.core.events import MachineEnded, PlanProposed
from windfall.core.records import decode_record, encode_record
from windfall.drivers.simulated import PlanTook
from windfall.errors import BadInput
from windfall.planning.registry import PLANNERS
from windfall.sim.run import run
from windfall.sim.scenario import check
from windfall.sim.studies import replay
from windfall.sim.studies.replay import Fitted, answer, fit_records
from windfall.sim.world import World

SPOT = {
    "name": "spot", "market": "spot", "cores": 2, "boot": {"law": "uniform", "low": "40s", "high": "3m"},
    "interruptions_per_h": 2.0, "told": True, "limit": 20,
}  # fmt: skip
WORLDS = {
    "hibernates": {"when_taken": "hibernate", "price_usd": 0.031, "hibernated": {"law": "exponential", "mean": "10m"}},
    "is reclaimed": {"when_taken": "terminate", "price_usd": 0.031, "notice": "2m", "refusals": 0.3},
    "changes its price": {"when_taken": "terminate", "price_steps": [["0s", 0.031], ["30m", 0.05], ["50m", 0.02]]},
}


def world(how: str) -> dict:
    on_demand = {"name": "on-demand", "price_usd": 0.104, "cores": 2, "boot": "60s", "limit": 20, "cycle": "10m"}
    return {
        "name": "seen",
        "cloud": [{"name": "cloud", "offer": [SPOT | {"cycle": "10m"} | WORLDS[how], on_demand]}],
        "bag": [
            {
                "name": "fit", "tasks": 60, "run": {"law": "lognormal", "median": "6m", "sigma": 0.4},
                "deadline": "2h", "planner": "windfall",
            }
        ],
    }  # fmt: skip


def logged(document: dict, seed: int):
    records = []
    live = World(check(document, Path("seen.toml")), seed, records.append, None)
    live.run(None)
    return live, [decode_record(encode_record(record)) for record in records]


@pytest.mark.parametrize("how", WORLDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_replayed_cost_and_finish_lie_within_five_percent_of_what_happened(how, seed):
    live, records = logged(world(how), seed)
    fitted = fit_records("a log", iter(records))
    document = answer(fitted, [run(fitted.scenario([]), seed)[0] for seed in (1, 2)], changed=False)
    row = document["jobs"][0]
    spent = sum(cost for *_, cost in live.bills) / 1e6
    assert row["actual_usd"] == pytest.approx(spent)
    assert abs(row["off_by"]) < 0.05 and abs(row["cost_off_by"]) < 0.05
    assert "machines: predicted $" in document["lines"][0]


SLOW = {"orders": ["5s", "90s", "4m"], "ends": ["3m", "20s", "8m", "1m"]}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_provider_that_is_slow_to_take_orders_and_to_end_machines_bills_as_much_in_the_replay(seed):
    document = world("is reclaimed")
    for offer in document["cloud"][0]["offer"]:
        offer |= SLOW
    live, records = logged(document, seed)
    fitted = fit_records("a log", iter(records))
    again = World(fitted.scenario([]), 1, None, None)
    again.run(None)
    paid, replayed = (sum(cost for *_, cost in one.bills) for one in (live, again))
    _, quick = logged(world("is reclaimed"), seed)
    at_once = sum(one.cost_usd or 0.0 for one in fit_records("a log", iter(quick)).jobs.values())
    assert replayed == paid and paid / 1e6 != pytest.approx(at_once)


def test_the_replay_hears_of_interruptions_as_late_as_the_server_did():
    """Until then the tasks of a reclaimed machine wait there, though nobody runs them."""
    document = world("is reclaimed")
    document["cloud"][0]["offer"][0] |= {"news": [["4m"] * 9]}
    _, records = logged(document, 1)
    fitted = fit_records("a log", iter(records))
    again = []
    World(fitted.scenario([]), 1, again.append, None).run(None)
    late, replayed = (
        [(event.machine, event.t - event.at) for event in events if isinstance(event, MachineEnded) and event.cause]
        for events in ([record.event for record in log] for log in (records, again))
    )
    taken = [late_s for _, late_s in late if late_s]
    assert taken and replayed == [(machine, pytest.approx(late_s, abs=1e-3)) for machine, late_s in late]


PLANNING = {"server": {"planning": "3s"}}
"""Planners take time, as live ones do: a replay that planned anew would not meet the same moments."""


@pytest.mark.parametrize("how", WORLDS)
@pytest.mark.parametrize("kind", ["bag", "workflow"])
def test_where_plans_took_time_they_are_taken_as_they_were(how, kind):
    document = world(how) | PLANNING
    document["cloud"][0]["warm_up"] = "7s"
    if kind == "workflow":
        document["bag"] = [FLOW | {"shape": "hybrid", "tasks": 30, "deadline": "4h", "planner": "windfall"}]
    _, records = logged(document, 1)
    fitted = fit_records("a log", iter(records))
    scenario = fitted.scenario([])
    row = answer(fitted, [run(scenario, 1)[0]], changed=False)["jobs"][0]
    assert scenario.told_plans and abs(row["off_by"]) < 0.01 and abs(row["cost_off_by"]) < 0.01


def test_an_attempt_that_was_cut_short_does_not_end_in_the_replay_although_its_task_was_quicker_later():
    seen = check(world("is reclaimed") | PLANNING, Path("seen.toml"))
    slow_at_first = tuple((task, 1, 900.0) for task in range(seen.bags[0].tasks))
    slow = replace(seen, bags=(replace(seen.bags[0], unfinished=slow_at_first),))
    forgotten_off_by = []
    for seed in (1, 2, 3, 4):
        records = []
        World(slow, seed, records.append, None).run(None)
        fitted = fit_records("a log", (decode_record(encode_record(record)) for record in records))
        scenario = fitted.scenario([])
        assert scenario.bags[0].unfinished, "no attempt was cut short: the test shows nothing"
        row = answer(fitted, [run(scenario, 1)[0]], changed=False)["jobs"][0]
        assert abs(row["off_by"]) < 0.01 and abs(row["cost_off_by"]) < 0.01
        forgotten = replace(scenario, bags=(replace(scenario.bags[0], unfinished=()),))
        off = answer(fitted, [run(forgotten, 1)[0]], changed=False)["jobs"][0]
        forgotten_off_by.append(abs(off["off_by"]))
    assert max(forgotten_off_by) > 0.1, "as long as the later attempts: another finish"


def replayed_with_and_without_results_at_waking(kind: str, seed: int) -> tuple[float, float, float]:
    """By how much a replay is off: in cost, in its finish, and in its finish if results come a little later."""
    document = world("hibernates") | PLANNING
    if kind == "workflow":
        document["bag"] = [FLOW | {"shape": "hybrid", "tasks": 30, "deadline": "4h", "planner": "windfall"}]
    seen = check(document, Path("seen.toml"))
    first = tuple((task, 1, 0.0) for task in range(seen.bags[0].tasks))
    records = []
    World(replace(seen, bags=(replace(seen.bags[0], at_waking=first),)), seed, records.append, None).run(None)
    fitted = fit_records("a log", (decode_record(encode_record(record)) for record in records))
    scenario = fitted.scenario([])
    row = answer(fitted, [run(scenario, 1)[0]], changed=False)["jobs"][0]
    later = replace(scenario, bags=(replace(scenario.bags[0], at_waking=()),))
    off = answer(fitted, [run(later, 1)[0]], changed=False)["jobs"][0]
    return row["cost_off_by"], row["off_by"], off["off_by"]


@pytest.mark.parametrize("kind", ["bag", "workflow"])
def test_a_result_that_was_there_when_its_machine_woke_is_there_in_the_replay(kind):
    found = [replayed_with_and_without_results_at_waking(kind, seed) for seed in range(1, 7)]
    assert all(abs(cost) < 0.01 and abs(finish) < 0.01 for cost, finish, _ in found)
    # Later, the plans of the log would leave a task out, because there it was done.
    assert max(later for *_, later in found) > 0.1


def test_a_replay_without_changes_takes_the_plans_of_the_log_and_one_with_changes_asks_the_planner():
    _, records = logged(world("hibernates") | PLANNING, 1)
    fitted = fit_records("a log", iter(records))
    asked = []

    def planner(name):
        asked.append(name)
        return PLANNERS[name]

    then = [record.event for record in records if isinstance(record.event, PlanProposed)]
    again = []
    World(fitted.scenario([]), 1, again.append, None, planner).run(None)
    now = [record.event for record in again if isinstance(record.event, PlanProposed)]
    assert len(now) > 3 and not asked
    assert [event.plan.start for event in now] == [event.plan.start for event in then[: len(now)]]
    assert [event.t for event in now] == pytest.approx([event.t for event in then[: len(now)]])
    changed = fitted.scenario(["cloud.cloud.offer.spot.price_usd=0.05"])
    assert not changed.told_plans
    World(changed, 1, None, None, planner).run(None)
    assert asked


def test_a_replay_whose_machines_are_others_than_those_of_the_log_asks_the_planner():
    _, records = logged(world("hibernates") | PLANNING, 1)
    scenario = fit_records("a log", iter(records)).scenario([])
    first, *rest = scenario.told_plans
    other = replace(scenario, told_plans=(first, *(replace(told, machines=told.machines + 1) for told in rest)))
    outcome, _ = run(other, 1)
    assert outcome.bags[0].done == outcome.bags[0].tasks and outcome.bags[0].met


def test_machines_live_in_the_replay_as_they_did_in_the_log():
    live, records = logged(world("hibernates"), 1)
    offer = fit_records("a log", iter(records)).document()["cloud"][0]["offer"][0]
    slept = [m for m in live.driver.state.fleet.machines.values() if m.sleeps and m.offer.name == "spot"]
    assert slept and len(offer["lives"]) == sum(
        m.offer.name == "spot" for m in live.driver.state.fleet.machines.values()
    )
    assert any(len(life) > 2 for life in offer["lives"])


def test_a_change_of_the_world_is_answered_beside_the_log():
    _, records = logged(world("is reclaimed"), 1)
    fitted = fit_records("a log", iter(records))
    outcome = run(fitted.scenario(["bag.1-fit.deadline=3h"]), 1)[0]
    document = answer(fitted, [outcome], changed=True)
    assert "would cost $" in document["lines"][0] and "against the log" in document["lines"][0]


@pytest.mark.parametrize(
    "offer",
    [
        {"lives": "40s"},
        {"lives": [[]]},
        {"lives": [["40s", 10]]},
        {"lives": [["40s"]], "life": "2h"},
        {"ends": "40s"},
        {"orders": [40]},
        {"ends": ["never"]},
        {"price_steps": [["1m", 0.1]]},
        {"price_steps": [["0s", 0.1], ["0s", 0.2]]},
        {"price_steps": [["0s", "cheap"]]},
    ],
)
def test_wrong_lives_and_prices_are_refused_with_their_place(offer):
    document = world("is reclaimed")
    document["cloud"][0]["offer"][0] |= offer
    with pytest.raises(BadInput, match="offer spot"):
        check(document, Path("seen.toml"))


FLOW = {"name": "flow", "tasks": 12, "shape": "pipeline", "run": {"law": "lognormal", "median": "6m", "sigma": 0.4}}


def test_a_workflow_on_free_hosts_is_replayed_with_its_order():
    live, records = logged({"name": "seen", "pool": [{"name": "grid", "hosts": 4}], "bag": [FLOW]}, 1)
    fitted = fit_records("a log", iter(records))
    scenario = fitted.scenario([])
    assert scenario.bags[0].edges == tuple((task, task + 1) for task in range(11))
    row = answer(fitted, [run(scenario, 1)[0]], changed=False)["jobs"][0]
    assert abs(row["off_by"]) < 0.05
    more = fitted.scenario(["pool.hosts=40"])
    assert run(more, 1)[0].turnaround_s > 0.95 * live.driver.state.bags[1].finished_t, "more hosts cannot help a chain"
    assert fitted.scenario(["bag.priority=3"]).bags[0].edges and not fitted.scenario(["bag.tasks=5"]).bags[0].edges


@pytest.mark.parametrize(("how", "seed"), [("hibernates", 1), ("hibernates", 2), ("is reclaimed", 1)])
def test_a_workflow_on_rented_machines_is_replayed_within_five_percent(how, seed):
    document = world(how)
    document["bag"] = [FLOW | {"shape": "hybrid", "tasks": 30, "deadline": "4h", "planner": "windfall"}]
    _, records = logged(document, seed)
    fitted = fit_records("a log", iter(records))
    scenario = fitted.scenario([])
    assert scenario.bags[0].edges and scenario.bags[0].planner == "windfall"
    row = answer(fitted, [run(scenario, 1)[0]], changed=False)["jobs"][0]
    assert abs(row["off_by"]) < 0.05 and abs(row["cost_off_by"]) < 0.05


def test_a_machine_that_was_given_back_asleep_does_not_wake_in_the_replay():
    document = world("hibernates")
    document["bag"] = [FLOW | {"shape": "hybrid", "tasks": 30, "deadline": "4h", "planner": "windfall"}]
    live, records = logged(document, 1)
    asleep = [m for m in live.driver.state.fleet.machines.values() if m.sleeps and m.sleeps[-1][1] == m.ended_t]
    assert asleep, "no machine was given back asleep: the test shows nothing"
    lives = fit_records("a log", iter(records)).document()["cloud"][0]["offer"][0]["lives"]
    for machine in asleep:
        # boot, run and sleep by turns: the last sleep is open, so the life ends with the run before it.
        assert len(lives[machine.number - 1]) == 2 * len(machine.sleeps)


def test_a_cloud_has_no_more_machines_at_once_than_its_limit():
    document = world("is reclaimed")
    document["cloud"][0]["limit"] = 3
    live, records = logged(document, 1)
    there, most = set(), 0
    for _, machine, what in live.provider.log:
        if what == "started":
            there.add(machine)
        elif what in ("taken", "released"):
            there.discard(machine)
        most = max(most, len(there))
    assert most == 3
    assert fit_records("a log", iter(records)).document()["cloud"][0]["limit"] == 3


def test_the_first_task_of_a_rented_machine_begins_after_its_warm_up():
    document = world("is reclaimed")
    document["cloud"][0]["warm_up"] = "20s"
    _, records = logged(document, 1)
    fitted = fit_records("a log", iter(records))
    assert fitted.warm_up_s() == pytest.approx(20.0)
    row = answer(fitted, [run(fitted.scenario([]), 1)[0]], changed=False)["jobs"][0]
    assert abs(row["off_by"]) < 0.05 and abs(row["cost_off_by"]) < 0.05


def test_where_the_fallback_stepped_in_live_it_steps_in_again():
    document = world("is reclaimed")
    document["bag"] = [FLOW | {"shape": "hybrid", "tasks": 30, "deadline": "4h", "planner": "windfall"}]
    scenario = replace(check(document, Path("seen.toml")), plans_took=(PlanTook(10.0, answered=False),))
    records = []
    World(scenario, 1, records.append, None).run(None)
    fitted = fit_records("a log", (decode_record(encode_record(record)) for record in records))
    assert fitted.plans_took[0] == (10.0, False) and all(took.answered for took in fitted.plans_took[1:])
    again = []
    World(fitted.scenario([]), 1, again.append, None).run(None)
    first = next(record.event for record in again if isinstance(record.event, PlanProposed))
    assert "greedy stepped in" in first.error and first.t == pytest.approx(10.0)


LIVE = Path(__file__).parents[2] / "data" / "replays"


def live(name: str) -> Fitted:
    """The log of a live run that was kept."""
    stored = msgspec.msgpack.decode(zlib.decompress((LIVE / f"{name}.log").read_bytes()))
    return fit_records("a log", (decode_record(record) for record in stored))


@pytest.mark.parametrize(
    "name",
    [
        # A result of a hibernated machine came 5 ms before the provider said that it had woken.
        "woke-before-it-was-told",
        # A task was done at the waking of its first machine, and again by its second attempt; the host that was told to
        # end another attempt asked for the next task at once.
        "second-attempt-done-later",
        # The server knew 0.2 s later that a machine had been reclaimed.
        "reclaimed-and-told-late",
        # A busy server handed tasks out 0.15 s after the plan that gave them to an idle machine.
        "handed-out-late",
        # The last machine was given back by a plan that came 0.05 s after the job's end, in its next billing cycle.
        "given-back-in-the-next-cycle",
        # A server that stood still for 2 s took results of a machine 9 ms after the machine had been reclaimed.
        "results-under-way-when-reclaimed",
        # Machines were awake although their provider showed them as hibernated: hibernations overlap in the log.
        "hibernated-twice-over-the-same-time",
        # A result came 19 ms after its machine had woken, and a plan before it gave the machine other tasks.
        "planned-between-waking-and-result",
    ],
)
def test_a_live_run_in_the_emulated_cloud_is_replayed_within_a_thousandth(name):
    fitted = live(name)
    (row,) = answer(fitted, [run(fitted.scenario([]), 1)[0]], changed=False)["jobs"]
    assert abs(row["off_by"]) < 0.001
    assert row["cost_off_by"] == 0.0


def test_machines_of_a_job_that_has_ended_are_given_back_while_another_job_runs_on():
    """A live run of two jobs: the machines of the first end with it, 18 s before the second one is done."""
    fitted = live("first-of-two-jobs-ended")
    replayed = World(fitted.scenario([]), 1, None, None)
    replayed.run(None)
    ended = [m.ended_t for m in replayed.driver.state.fleet.machines.values() if m.fleet == 1]
    assert len(ended) == 2 and max(ended) < fitted.jobs[1].finished_s - fitted.began_s + 0.2


def test_a_job_that_was_cancelled_is_cancelled_in_the_replay_and_the_other_one_is_replayed_as_it_was():
    """A live run: a bag on spot machines is cancelled after 14 s, and a workflow takes their place."""
    fitted = live("first-of-two-jobs-cancelled")
    rows = answer(fitted, [run(fitted.scenario([]), 1)[0]], changed=False)
    cancelled, other = rows["jobs"]
    assert abs(cancelled["off_by"]) < 0.001 and abs(other["off_by"]) < 0.001
    assert (cancelled["cost_off_by"], other["cost_off_by"]) == (0.0, 0.0)
    assert "(cancelled)" in rows["lines"][0] and "(cancelled)" not in rows["lines"][1]


def test_the_log_of_a_replay_is_written_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "fit", lambda _: live("woke-before-it-was-told"))
    result = CliRunner().invoke(simulate, ["--replay", str(tmp_path), "--log", str(tmp_path / "log")])
    assert result.exit_code == 0, result.output
    assert '"type":"MachineHibernated"' in (tmp_path / "log").read_text()
