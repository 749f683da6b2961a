"""`windfall plan JOB.TOML`: what is printed, what is refused, and that a forecast counts what its runs did."""

from __future__ import annotations

import contextlib
import json
import math
import re

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.clouds.rented_cloud import Cloud
from tests.support.commands.command import windfall
from windfall.cli.plan import refine, simulating
from windfall.cli.plan.bag import Asked, prepare
from windfall.cli.plan.screen import sparks
from windfall.core.events import TaskClass
from windfall.core.renting import views
from windfall.errors import BadInput
from windfall.planning.contract import Plan
from windfall.planning.offers import Offer
from windfall.sim.studies import forecast
from windfall.sim.studies.forecast import Question, Run
from windfall.sim.studies.fronts import Variant
from windfall.sim.studies.one_bag import RentedMachine
from windfall.sim.studies.smaller import bundled
from windfall.sim.world import World

JOB = """
[job]
name = "fit"
command = "./fit {}"
range = "1-8"
estimate = "10m"
"""
SPOT = """
[[offer]]
name = "spot"
market = "spot"
price_usd = 0.03
cores = 2
lag_s = 60
limit = 4
interruptions_per_h = 0.1
"""
STEADY = """
[[offer]]
name = "steady"
price_usd = 0.1
cores = 2
lag_s = 60
limit = 4
"""


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    """`windfall plan` in a directory with a job and two files of offers; one run each, so that tests are quick."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "offers.toml").write_text(SPOT + STEADY)
    (tmp_path / "spot.toml").write_text(SPOT)

    def call(*words, job="job.toml", offers="offers.toml"):
        return windfall(monkeypatch, capsys, "plan", job, "--offers", offers, "--seeds", "1", *words)

    return call


def test_the_document_has_exactly_the_published_fields(plan):
    ended = plan("--deadline", "2h", "--what-if", "deadline=5m,2h", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert list(told) == [
        "name", "tasks", "planner", "confidence", "budget_usd", "earliest_s", "estimate_s", "deadline_s", "possible",
        "runs", "interval", "cost_usd", "finish_s", "met", "machines", "first_plan", "assumed", "warnings", "what_if",
        "nearest", "surer",
    ]  # fmt: skip
    assert list(told["cost_usd"]) == list(told["finish_s"]) == ["mean", "low", "high"]
    assert list(told["met"]) == ["runs", "share", "low", "high"]
    assert list(told["machines"]) == ["rented", "at_once", "interrupted", "tasks_lost", "t_s", "by_market"]
    assert list(told["first_plan"]) == [
        "start", "because", "predicted_cost_usd", "predicted_finish_s", "rejected", "stepped_in",
    ]  # fmt: skip
    assert [row["possible"] for row in told["what_if"]] == [False, True]
    assert told["what_if"][1]["cost_usd"] == told["cost_usd"]
    assert told["tasks"] == 8 and told["met"]["runs"] == 1


def test_the_screen_answers_cost_time_chance_machines_and_assumptions(plan):
    shown = plan("--deadline", "2h", "--what-if", "deadline=5m,2h").out
    for word in (
        "cost  ",
        "done after",
        "to spare",
        "in time     1 of 1 simulated runs",
        "machines",
        "assumed",
        "<- yours",
    ):
        assert word in shown
    assert "5m00s       impossible before 11m05s" in shown


def test_an_impossible_deadline_names_the_earliest_one_and_exits_with_4(plan):
    ended = plan("--deadline", "5m")
    assert ended.is_short_error(4)
    # A minute to boot, ten to run, five seconds in hand: eight cores are enough for eight tasks at once.
    assert "the earliest possible one is 11m05s from now" in ended.err
    assert "--deadline 665s" in ended.err


def test_an_impossible_deadline_is_a_document_as_well(plan):
    told = json.loads(plan("--deadline", "5m", "--json").out)
    assert (told["possible"], told["earliest_s"], told["cost_usd"]) == (False, 665.0, None)


def test_a_deadline_that_is_kept_too_seldom_exits_with_4(plan):
    ended = plan("--deadline", "12m", "--spread", "1.5", "--market", "on-demand")
    assert ended.code == 4
    assert "is in time in 0 of 1 runs (0%), and 95% are asked for" in ended.err


def test_a_budget_that_does_not_suffice_is_said_and_never_exceeded(plan):
    ended = plan("--deadline", "8h", "--budget", "0.1", "--market", "on-demand", "--estimate", "30m")
    assert ended.code == 4, "one machine at $0.10 an hour may be rented, and works for longer than that"
    assert "cost        $0.10" in ended.out and "in time     0 of 1" in ended.out
    assert "a budget of $0.10 is not enough in 1 of 1 runs" in ended.err and "--budget" in ended.err


def test_a_budget_that_is_not_enough_is_said(plan):
    ended = plan("--deadline", "2h", "--budget", "0.01", "--market", "on-demand")
    assert ended.code == 4
    assert "a budget of $0.01 is not enough in 1 of 1 runs" in ended.err
    assert "machines    none: the budget does not pay for the first cycle of one" in ended.out
    assert "rent " not in ended.out, "nothing can be rented, so nothing is advised"


def test_a_budget_of_nothing_rents_nothing(plan):
    ended = plan("--deadline", "2h", "--budget", "0")
    assert ended.code == 4 and "a budget of $0.00 is not enough in 1 of 1 runs" in ended.err
    assert "machines    none: the budget does not pay for the first cycle of one" in ended.out


def test_a_budget_that_is_too_small_names_one_that_is_enough(plan):
    ended = plan("--deadline", "2h", "--budget", "0.01", "--market", "on-demand")
    named = re.search(r"without one 1 of 1 runs are in time, .* try: --budget (\S+)", ended.err)
    assert named is not None, ended.err
    assert plan("--deadline", "2h", "--budget", named[1], "--market", "on-demand").code == 0


def test_what_cannot_be_compared_is_said(plan):
    ended = plan("--deadline", "2h", "--what-if", "budget=1,2")
    assert ended.code == 2 and "--what-if budget=1,2: deadlines or confidences can be compared" in ended.err


def test_without_on_demand_machines_it_is_said_that_nothing_can_be_promised(plan):
    ended = plan("--deadline", "4h", offers="spot.toml")
    assert "nothing on demand is offered, so no deadline can be promised" in ended.err


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["--deadline", "2h", "--planner", "hdas"], "no planner 'hdas'", "did you mean 'hads'"),
        (["--deadline", "soon"], "soon", "35m"),
        ([], "a plan needs a deadline", "--deadline 2h"),
        (["--deadline", "0s"], "not in the future", "2h30m"),
        (["--deadline", "2h", "--what-if", "price=3"], "--what-if price=3", "deadline=1h,2h,4h"),
        (["--deadline", "2h", "--confidence", "2"], "--confidence 2", "0.99"),
        (["--deadline", "2h", "--what-if", "confidence=0.9,2"], "confidence=2", "confidence=0.8"),
        (["--deadline", "2h", "--what-if", "confidence="], "--what-if confidence=", "confidence=0.8"),
        (["--deadline", "2h", "--trace", "spto=x.json"], "no spot offer 'spto'", "did you mean 'spot'"),
        (["--deadline", "2h", "--trace", "x.json"], "there is no file", "trace"),
        (["--deadline", "2h", "--spread", "-1"], "--spread -1", "--spread 0.3"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(plan, words, says, hint):
    ended = plan(*words)
    assert ended.is_short_error(2)
    assert says in ended.err and hint in ended.err


def test_files_that_are_missing_or_wrong_are_refused(plan, tmp_path):
    assert "there is no file nowhere.toml" in plan("--deadline", "1h", job="nowhere.toml").err
    assert "nowhere.toml" in plan("--deadline", "1h", offers="nowhere.toml").err
    (tmp_path / "bad.toml").write_text("[[offer]]\nname = 'x'\nprise_usd = 1\n")
    ended = plan("--deadline", "1h", offers="bad.toml")
    assert ended.is_short_error(2) and "did you mean 'price_usd'" in ended.err


def test_a_job_that_does_not_say_how_long_a_task_takes_is_not_guessed_at(plan, tmp_path):
    (tmp_path / "job.toml").write_text(JOB.replace('estimate = "10m"', ""))
    ended = plan("--deadline", "1h")
    assert ended.is_short_error(2) and "--estimate 5m" in ended.err
    assert plan("--deadline", "2h", "--estimate", "10m").code == 0


def test_what_is_not_known_of_interruptions_is_said_to_be_assumed(plan, tmp_path):
    (tmp_path / "offers.toml").write_text(SPOT.replace("interruptions_per_h = 0.1", "") + STEADY)
    told = json.loads(plan("--deadline", "2h", "--json").out)
    assert any("spot: a machine is interrupted every" in text for text in told["assumed"])
    assert not any(
        "spot" in text for text in json.loads(plan("--deadline", "2h", "--json", offers="spot.toml").out)["assumed"]
    )


def test_a_trace_says_when_spot_machines_are_there(plan, tmp_path):
    (tmp_path / "never.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [0] * 10 + [1]}))
    told = json.loads(plan("--deadline", "2h", "--trace", "never.json", "--json").out)
    assert told["met"]["share"] == 1
    assert told["assumed"] == [
        "run times vary by an unknown spread, from 0 to 1: log-normal   (known: --spread, --like JOB)"
    ]


def test_clouds_of_a_pools_file_can_be_planned_with(plan, tmp_path, monkeypatch, capsys):
    offers = (SPOT + STEADY).replace("[[offer]]", "[[pool.offer]]")
    (tmp_path / "pools.toml").write_text(f'[[pool]]\nname = "cloud"\nkind = "emulated"\ntime_scale = 60\n{offers}')
    words = ["plan", "job.toml", "--pools", "pools.toml", "--pool", "cloud", "--estimate", "10s", "--seeds", "1"]
    assert windfall(monkeypatch, capsys, *words, "--deadline", "2m").code == 0
    ended = windfall(monkeypatch, capsys, *words[:-4], "--pool", "clod", "--deadline", "2m")
    assert ended.is_short_error(2) and "those that do: cloud" in ended.err


def test_two_comparisons_at_once_are_refused(plan):
    refused = plan("--deadline", "2h", "--what-if", "deadline=3h", "--what-if", "confidence=0.9")
    assert refused.is_short_error(2) and "--what-if is there 2 times" in refused.err


def test_what_may_be_rented_is_said_once(plan):
    for also in (("--pool", "cloud"), ("--pools", "pools.toml")):
        refused = plan("--deadline", "2h", *also)
        assert refused.is_short_error(2) and f"--offers and {also[0]} both" in refused.err


def test_the_front_can_be_drawn(plan, tmp_path):
    assert plan("--deadline", "2h", "--plot", "front.png").code == 0
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


# --- forecasts --------------------------------------------------------------------------------------------------------


def question(count=4, **changes):
    steady = Offer(name="steady", price_usd=0.1, cores=2, lag_s=60.0, limit=1, memory_gb=4.0)
    said = {"estimates_s": (600.0,) * count, "memory_bytes": (0,) * count, "spread": 0.0, "planner": "windfall"}
    return forecast.Question(**(said | {"supplies": (forecast.supply_of(steady),)} | changes))


def test_certain_run_times_on_machines_that_stay_cost_exactly_their_cycles():
    made = forecast.forecast(question(), [7200.0], [1, 2], None)[0]
    # Two rows of ten minutes on two cores after a minute's boot: one machine, one cycle.
    assert [run.cost_usd for run in made.runs] == [0.1, 0.1]
    assert [run.finish_s for run in made.runs] == [1260.0, 1260.0]
    assert made.met == 2 and made.most_at_once() == 1


def test_the_earliest_deadline_counts_rows_boots_and_memory():
    assert forecast.earliest_s(question(4)) == 60 + 2 * 600 + 5
    # Four gigabytes each: one at a time.
    assert forecast.earliest_s(question(2, memory_bytes=(4 << 30, 4 << 30))) == 60 + 2 * 600 + 5
    assert math.isinf(forecast.earliest_s(question(1, memory_bytes=(5 << 30,))))


def test_the_earliest_deadline_counts_free_hosts_which_need_no_boot():
    """A deadline that free hosts alone keep was called impossible."""
    assert forecast.earliest_s(question(4, free_slots=(2, 2))) == 600 + 5
    assert forecast.earliest_s(question(5, free_slots=(1,))) == 60 + 600 * 2 + 5
    # A card is on no free host.
    assert math.isinf(forecast.earliest_s(question(4, free_slots=(2, 2), resources={"gpus": 1.0})))


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    asked = question(spread=0.5)
    first, again = (forecast.forecast(asked, [7200.0], [1, 2], None)[0] for _ in range(2))
    assert first == again
    assert first.runs[0].finish_s != first.runs[1].finish_s


def test_run_times_of_an_earlier_job_are_drawn_from_and_nothing_beyond_them():
    made = forecast.forecast(question(2, seen_s=(100.0, 200.0)), [7200.0], range(5), None)[0]
    assert all(160.0 <= run.finish_s <= 260.0 for run in made.runs)


def test_a_planner_is_shown_the_same_run_times_as_live_by_a_job_with_one_estimate():
    cloud = Cloud()
    bag = cloud.rent(4, [TaskClass(estimate_s=600.0)])
    live = views.view(cloud.state, bag.number, cloud.t, math.inf)
    shown = []

    def planner(snapshot):
        shown.append(snapshot)
        return Plan()

    planner.names_up_to = math.inf
    world = World(forecast.scenario(question(spread=0.35), 3600.0), 1, None, None, lambda name: planner)
    world.driver.run(1.0)
    assert [task.runtime_s for task in shown[0].tasks.values()] == [task.runtime_s for task in live.tasks.values()]
    assert [task.mean_s for task in shown[0].tasks.values()] == [task.mean_s for task in live.tasks.values()]


def test_a_very_large_bag_is_simulated_in_bundles_of_the_same_work():
    asked = question(100_000, estimates_s=(1.0,) * 100_000, memory_bytes=(0,) * 50_001 + (1,) * 49_999, spread=0.4)
    made, size = bundled(asked, 7200.0)
    assert size == 20 and made.tasks == 5_001
    assert math.fsum(made.estimates_s) == pytest.approx(100_000.0)
    assert made.spread == pytest.approx(0.4 / math.sqrt(20))
    # None takes more than a fortieth of the deadline; of a small bag nothing is bundled.
    assert bundled(asked, 400.0)[1] == 10
    assert bundled(question(5_000), 7200.0)[1] == 1


def test_bundles_of_run_times_that_were_seen_take_as_long_on_the_whole():
    asked = question(10_000, estimates_s=(1.0,) * 10_000, memory_bytes=(0,) * 10_000, seen_s=(1.0, 3.0))
    made, size = bundled(asked, 7200.0)
    assert size == 2 and made.seen_s == ()
    assert math.fsum(made.estimates_s) == pytest.approx(20_000.0)


def test_a_share_is_never_known_for_certain():
    assert forecast.wilson(40, 40).low == pytest.approx(0.912, abs=1e-3)
    assert forecast.wilson(0, 40).high == pytest.approx(0.088, abs=1e-3)
    assert forecast.wilson(20, 40).mean == 0.5


def machine(from_s, to_s, *sleeps):
    return RentedMachine(1, "x", "spot", from_s, from_s, to_s, "released", 0.0, sleeps)


def test_machines_over_time_leave_out_hibernated_ones():
    run = forecast.Run(1, 0.0, 50.0, True, (machine(0, 100), machine(0, 100, (25.0, 75.0))), 0, 0, 1, None, "")
    made = forecast.Forecast(100.0, (run,))
    times, counts = made.machines_over_time()
    assert {counts["spot"][place] for place, t in enumerate(times) if t < 25 or t >= 75} == {2.0}
    assert {counts["spot"][place] for place, t in enumerate(times) if 25 <= t < 75} == {1.0}


def test_a_machine_that_follows_another_is_not_beside_it():
    run = forecast.Run(1, 0.0, 50.0, True, (machine(0, 10), machine(10, 20)), 0, 0, 1, None, "")
    assert forecast.Forecast(100.0, (run,)).most_at_once() == 1


def test_a_row_of_blocks_shows_everything_that_is_there():
    assert sparks([0.0, 0.01, 5.0, 10.0], 10.0) == " ▁▄█"
    assert sparks([0.0], 0.0) == " "


# --- jobs on a server -------------------------------------------------------------------------------------------------


class Remote:
    """A place whose one job is as it is told to be."""

    def __init__(self, **changes):
        offer = {"name": "steady", "price_usd": 0.1, "cores": 2, "lag_s": 60.0, "limit": 4, "market": "on-demand"}
        each = {"tasks": 3, "estimate_s": 600.0, "run_times_s": [], "memory_bytes": 0, "cpus": 1.0, "resources": {}}
        self.left = {
            "job": 7, "name": "fit", "state": "running", "workflow": False, "planner": "", "confidence": 0.9,
            "deadline_in_s": 3000.0, "spent_usd": 0.5, "budget_left_usd": 1.5, "machines": 2, "classes": [each],
            "offers": [offer | {"pool": "cloud", "memory_gb": None}],
        } | changes  # fmt: skip

    def open(self):
        return contextlib.nullcontext(self)

    def job(self, reference):
        assert reference == "fit"
        return self

    def unfinished(self):
        return self.left

    def machines(self):
        return {"offers": self.left["offers"]}

    def market(self):
        return []


def rest_of(place, **said):
    return prepare(Asked(job="fit", place=place, **said))


def test_free_hosts_are_those_of_the_server_or_those_said():
    place = Remote(free_slots=[4, 2])
    ready = rest_of(place)
    assert ready.question.free_slots == (4, 2) and "2 free hosts with 6 idle slots" in ready.assumed[-1]
    assert rest_of(Remote(free_slots=[4, 2]), free_hosts="3x8").question.free_slots == (8, 8, 8)
    assert rest_of(Remote(free_slots=[4, 2]), free_hosts="0").question.free_slots == ()
    for wrong in ("4x", "x4", "-1", "4y8", "4x0", "1000000x2", "2x2x2"):
        with pytest.raises(BadInput, match="--free-hosts"):
            rest_of(Remote(), free_hosts=wrong)


def test_the_rest_of_a_job_is_planned_with_the_market_and_the_pool_that_are_named():
    steady = Remote().left["offers"][0]
    risky = steady | {"name": "risky", "market": "spot", "price_usd": 0.03, "interruptions_per_h": 0.1}
    place = Remote(offers=[steady, risky])

    def rented(**said):
        return [supply.offer.name for supply in rest_of(place, **said).question.supplies]

    assert (rented(), rented(market="on-demand"), rented(market="spot")) == (["steady", "risky"], ["steady"], ["risky"])
    with pytest.raises(BadInput, match="no pool 'clod'"):
        rented(pools=("clod",))
    with pytest.raises(BadInput, match="no offer of market 'spot'"):
        rest_of(Remote(), market="spot")


def test_the_rest_of_a_job_is_planned_with_its_own_deadline_budget_confidence_and_offers():
    ready = rest_of(Remote(), what_if="deadline=1h,2h")
    assert (ready.name, ready.deadline_s) == ("fit", 3000.0)
    assert ready.others == [Variant(each_s, 0.9) for each_s in (3000.0, 3600.0, 7200.0)]
    asked = ready.question
    assert (asked.tasks, asked.confidence, asked.budget_usd, asked.planner) == (3, 0.9, 1.5, "windfall")
    assert [supply.offer.name for supply in asked.supplies] == ["steady"]
    assert "as if its 2 machines were not there" in ready.assumed[0]


def test_learned_run_times_take_the_place_of_the_guess():
    each = {
        "tasks": 3,
        "estimate_s": 500.0,
        "run_times_s": [400.0] * 6,
        "memory_bytes": 0,
        "cpus": 2.0,
        "resources": {},
    }
    asked = rest_of(Remote(classes=[each])).question
    assert (asked.seen_s, asked.cpus) == ((400.0,) * 6, 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workflow": True}, "is a workflow"),
        ({"classes": []}, "has ended"),
        ({"offers": []}, "rents no machines"),
        ({"deadline_in_s": None}, "a plan needs a deadline"),
        ({"deadline_in_s": -5.0}, "the deadline was 5.00 s ago"),
    ],
)
def test_what_cannot_be_planned_of_a_job_is_said(changes, says):
    with pytest.raises(BadInput) as refused:
        rest_of(Remote(**changes))
    assert says in str(refused.value) and refused.value.hint


def test_the_interval_says_how_often_it_holds_the_next_run_and_few_runs_cannot_say_nine_of_ten():
    runs = [forecast.Run(n, float(n), float(n), True, (), 0, 0, 1, None, "") for n in range(1, 40)]
    made = forecast.Forecast(100.0, tuple(runs))
    assert made.holds == 0.9 and (made.cost_usd.low, made.cost_usd.high) == pytest.approx((2.0, 38.0))
    few = forecast.Forecast(100.0, tuple(runs[:4]))
    assert few.holds == 0.6 and (few.cost_usd.low, few.cost_usd.high) == (1.0, 4.0)


def test_a_spread_that_was_not_given_differs_from_run_to_run_and_one_that_was_given_does_not():
    asked = question(spread=0.4, spread_is_guessed=True)
    spreads = {forecast.of_seed(asked, seed).spread for seed in range(20)}
    assert 0.0 in spreads and max(spreads) > 0.8 and len(spreads) > 4
    assert {forecast.of_seed(question(spread=0.4), seed).spread for seed in range(20)} == {0.4}


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C comes after two simulated runs, which are made one after the other: processes end in any order."""
    made = simulating._runs

    def runs(asked, cases, pool):
        for count, each in enumerate(made(asked, cases, None)):
            if count == 2:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(simulating, "_runs", runs)


def test_deadlines_that_ctrl_c_left_out_are_not_called_impossible(plan, interrupted):
    words = ("--deadline", "2h", "--what-if", "deadline=30s,3h", "--spread", "0", "--seeds", "2")
    soon, own, later = json.loads(plan(*words, "--json").out)["what_if"]
    assert (soon["possible"], own["possible"], later["possible"]) == (False, True, True)
    assert (own["runs"], later["runs"], later["cost_usd"]) == (2, 0, None)
    shown = plan(*words).out
    assert shown.count("impossible before") == 1 and "  3h00m       not simulated" in shown


def test_ctrl_c_shows_what_there_is(plan, interrupted):
    ended = plan("--deadline", "2h", "--spread", "0", "--seeds", "5", "--json")
    told = json.loads(ended.out)
    assert told["runs"] == 2 and "interrupted after 2 of 5 simulated runs" in told["assumed"]
    assert ended.code == 0


@pytest.fixture
def patient(plan, tmp_path, monkeypatch, capsys):
    """`windfall plan` as a user types it, without --seeds; the first round of runs takes all the time that there is."""
    monkeypatch.setattr(simulating, "processes", lambda runs: contextlib.nullcontext())
    monkeypatch.setattr(simulating, "ENOUGH", ((0.0, 3),))
    monkeypatch.setattr(refine.Milestones, "is_due", lambda *_: True)

    def call(*words):
        words = ("--offers", "offers.toml", "--deadline", "2h", "--spread", "0", *words)
        return windfall(monkeypatch, capsys, "plan", "job.toml", *words)

    return call


def test_when_time_is_up_the_answer_says_how_many_runs_it_rests_on(patient):
    told = json.loads(patient("--json").out)
    assert told["runs"] == 3 and told["met"]["runs"] <= 3
    assert any(
        re.fullmatch(r"answered after 3 of 20 simulated runs, .* s: with --seeds 20 .*", text)
        for text in told["assumed"]
    )
    shown = patient()
    assert "by 3 simulated" in shown.out and "answered after 3 of 20 simulated runs" in shown.out


def test_when_time_is_up_every_row_has_some_runs(patient):
    rows = json.loads(patient("--what-if", "deadline=3h,4h", "--json").out)["what_if"]
    assert len(rows) == 3 and all(row["runs"] >= 3 for row in rows)


def test_when_nearly_all_runs_have_ended_the_last_ones_are_waited_for(patient, monkeypatch):
    monkeypatch.setattr(simulating, "ENOUGH", ((0.0, 16),))
    monkeypatch.setattr(refine, "NEARLY_FOR_S", 1e9)
    assert json.loads(patient("--json").out)["runs"] >= 20


def test_as_many_runs_as_are_asked_for_are_waited_for(patient):
    told = json.loads(patient("--seeds", "5", "--json").out)
    assert told["runs"] == 5 and not any("answered after" in text for text in told["assumed"])


def test_in_a_pipe_lines_say_how_far_the_runs_are(patient):
    assert "windfall: 1 of 20 runs simulated after 0 s" in patient("--json").err


def test_ctrl_c_before_any_run_shows_the_first_plan(patient, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(simulating, "SLOW_TASKS", 0)
    monkeypatch.setattr(simulating, "_runs", interrupted)
    ended = patient()
    assert "first plan  rent" in ended.out and "not simulated yet" in ended.out and ended.code == 130


def test_what_if_always_shows_ones_own_deadline(plan):
    told = json.loads(plan("--deadline", "2h", "--what-if", "deadline=3h,4h", "--json").out)
    assert [row["deadline_s"] for row in told["what_if"]] == [7200.0, 10800.0, 14400.0]


def test_confidences_are_compared_with_the_same_seeds(plan):
    ended = plan("--deadline", "40m", "--what-if", "confidence=0.5,0.99", "--json", "--spread", "0.3")
    rows = json.loads(ended.out)["what_if"]
    assert [row["confidence"] for row in rows] == [0.5, 0.95, 0.99]
    costs = [row["cost_usd"]["mean"] for row in rows]
    assert costs == sorted(costs) and rows[1]["planned_for"]["confidence"] >= 0.95
    assert "confidence  cost" in plan("--deadline", "40m", "--what-if", "confidence=0.5,0.99", "--spread", "0.3").out


def test_a_deadline_that_cannot_be_promised_names_the_nearest_that_can(plan):
    ended = plan("--deadline", "12m", "--spread", "1.5", "--market", "on-demand", "--json")
    nearest = json.loads(ended.out)["nearest"]
    assert ended.code == 4 and nearest["deadline_s"] > 720.0 and nearest["met"]["share"] >= 0.95
    assert f"--deadline {math.ceil(nearest['deadline_s'])}s" in ended.err


def test_a_plan_for_a_higher_confidence_that_keeps_the_deadline_is_named_with_its_cost(plan, monkeypatch):
    made = forecast.run_once

    def late_unless_sure(encoded, deadline_s, seed):
        """A run that is late unless it is planned for at least 99.9 %."""
        asked = msgspec.msgpack.decode(encoded, type=Question)
        run = msgspec.msgpack.decode(made(encoded, deadline_s, seed), type=Run)
        return msgspec.msgpack.encode(replace(run, met=run.met and asked.confidence >= 0.999))

    for module in (simulating, forecast):
        monkeypatch.setattr(module, "run_once", late_unless_sure)
    words = ("--deadline", "2h", "--spread", "0")
    told = plan(*words, "--json")
    surer = json.loads(told.out)["surer"]
    assert told.code == 4 and surer["confidence"] == 0.999 and surer["met"]["runs"] == surer["runs"] == 1
    assert surer["cost_usd"]["mean"] > 0.0 and "planned for 99.9% it is in time in 1 of 1 runs" in told.err
    assert "try: --confidence 0.999;" in told.err
