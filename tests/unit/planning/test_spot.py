"""Spot and on-demand: the rules of a tick, the programme against plain recursion, the bound, the learned law."""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.errors import BadInput
from windfall.lab import data
from windfall.lab.spot.bound import omniscient_usd
from windfall.lab.spot.trace import Series, command, read_series, run, terms_of
from windfall.planning.counts import AGES_H, AWAY, HERE, SpellCounts, count
from windfall.planning.spot.law import LEARNING, PRIOR, Memory, Prior, fit_prior, learn
from windfall.planning.spot.market import Market, State, Terms, advance, begin, guarded, is_safe, price_usd
from windfall.planning.spot.programme import (
    NEVER,
    ONDEMAND,
    SPOT,
    Programme,
    Standing,
    at_deadline,
    costs,
    refine,
    tables,
    values,
)
from windfall.planning.spot.sight import Watcher, sight_of
from windfall.planning.spot.windfall import PLANNERS

HOURLY = {"tick_s": 3600.0, "spot_usd": 1.0, "ondemand_usd": 3.0}


def deal(work: int, deadline: int, changeover: int = 1) -> Terms:
    return Terms(work_ticks=work, deadline_ticks=deadline, changeover_ticks=changeover, **HOURLY)


def test_hours_become_ticks_with_work_rounded_up_and_the_deadline_down():
    terms = terms_of(195.0, work_h=48, deadline_h=52, changeover_s=720, spot_usd=0.973, ondemand_usd=3.06)
    assert (terms.work_ticks, terms.deadline_ticks, terms.changeover_ticks) == (887, 960, 4)
    exact = terms_of(600.0, work_h=48, deadline_h=52, changeover_s=720, spot_usd=0.973, ondemand_usd=3.06)
    assert (exact.work_ticks, exact.deadline_ticks, exact.changeover_ticks) == (288, 312, 2)


def test_every_start_and_every_change_of_market_is_paid_without_progress():
    terms, state = deal(4, 99, changeover=2), begin(deal(4, 99))
    left = []
    for choice in (
        Market.SPOT,
        Market.SPOT,
        Market.SPOT,
        Market.ONDEMAND,
        Market.ONDEMAND,
        Market.ONDEMAND,
        Market.IDLE,
    ):
        state = advance(terms, state, choice)
        left.append(state.left)
    assert left == [4, 4, 3, 3, 3, 2, 2]
    assert advance(terms, state, Market.ONDEMAND) == State(8, 2, Market.ONDEMAND, 1)


def test_the_cost_is_the_price_of_the_paid_ticks():
    assert price_usd(deal(1, 1), {Market.IDLE: 5, Market.SPOT: 2, Market.ONDEMAND: 3}) == 11.0


def test_idling_is_safe_only_while_on_demand_and_its_changeover_still_fit():
    terms = deal(4, 7, changeover=2)
    assert is_safe(terms, State(0, 4), Market.IDLE)
    assert not is_safe(terms, State(1, 4), Market.IDLE)
    assert guarded(terms, State(1, 4), True, Market.SPOT) is Market.ONDEMAND
    assert guarded(terms, State(0, 4), False, Market.SPOT) is Market.ONDEMAND


def test_a_warm_spot_machine_may_do_the_last_tick_of_work_without_room_for_a_rescue():
    terms = deal(4, 7, changeover=2)
    assert is_safe(terms, State(6, 1, Market.SPOT), Market.SPOT)
    assert not is_safe(terms, State(5, 2, Market.SPOT), Market.SPOT)


def series_of(text: str) -> Series:
    return Series("drawn", 3600.0, [mark == "#" for mark in text])


def cost_of(name: str, text: str, terms: Terms, start: int = 0) -> float:
    return run(series_of(text), start, terms, PLANNERS[name](terms)).cost_usd


def test_on_demand_only_pays_for_the_work_and_one_changeover():
    assert cost_of("ondemand", "####", deal(4, 8)) == 5 * 3.0


def test_greedy_idles_to_the_last_safe_moment_and_stays_on_demand():
    assert cost_of("greedy", ".....###", deal(2, 8)) == 3 * 3.0


def test_uniform_progress_rents_on_demand_below_the_line_until_twice_the_changeover_ahead():
    terms = deal(8, 16)
    outcome = run(series_of(".." + "#" * 14), 0, terms, PLANNERS["uniform-progress"](terms))
    # Tick 0 idle, on the line; on-demand from tick 1, below it; at tick 8 six are done against 4 + 2, so spot again.
    assert outcome.cost_usd == pytest.approx(7 * 3.0 + 3 * 1.0)


@pytest.mark.parametrize("name", list(PLANNERS))
def test_a_deadline_that_nothing_can_meet_is_missed_by_as_little_as_possible(name):
    terms = deal(4, 4)
    outcome = run(series_of("####"), 0, terms, PLANNERS[name](terms))
    assert (outcome.met, outcome.finish_h) == (False, 5.0)


@pytest.mark.parametrize("name", list(PLANNERS))
def test_no_planner_sees_the_future(name):
    terms, past = deal(6, 12), "##..#.##.."
    first = []
    for future in ("#" * 12, "." * 12):
        planner, seen = PLANNERS[name](terms), []
        planner_run = run(series_of(past + "#" + future), len(past), terms, Recorder(planner, seen))
        assert planner_run.met
        first.append(seen[0])
    assert first[0] == first[1]


class Recorder:
    """Notes what a planner chooses."""

    def __init__(self, inner, seen):
        self.inner, self.seen = inner, seen

    def observe(self, available):
        self.inner.observe(available)

    def choose(self, state):
        self.seen.append(self.inner.choose(state))
        return self.seen[-1]


def cheapest_by_trying_everything(terms: Terms, future: str) -> float:
    best = math.inf
    for picks in product(Market, repeat=terms.deadline_ticks):
        state, cost = begin(terms), 0.0
        for tick, choice in enumerate(picks):
            if choice is Market.SPOT and future[tick] != "#":
                break
            cost += {Market.IDLE: 0.0, Market.SPOT: 1.0, Market.ONDEMAND: 3.0}[choice]
            state = advance(terms, state, choice)
            if state.left == 0:
                best = min(best, cost)
                break
    return best


@pytest.mark.parametrize("changeover", [0, 1, 2])
@pytest.mark.parametrize("future", ["#.##.###", "........", "##....##", ".#.#.#.#"])
def test_the_omniscient_cost_is_the_least_of_all_ways(changeover, future):
    terms = deal(3, 8, changeover)
    assert omniscient_usd(terms, series_of(future).available) == pytest.approx(
        cheapest_by_trying_everything(terms, future)
    )


def test_the_omniscient_cost_of_the_impossible_is_infinite():
    assert omniscient_usd(deal(4, 4), [True] * 4) == math.inf


def small_programme(steps: int, slack: int, changeover: int, seed: int = 1) -> Programme:
    rng = np.random.default_rng(seed)
    return Programme(
        steps=steps, low=0, high=slack, changeover=changeover, spot_price=1.0, ondemand_price=3.0,
        ends=rng.uniform(0.05, 0.5, (steps + 1, 2, 2, 3)), ages=np.array([0.7, 0.4, 0.2]),
        switching=np.array([[0.9, 0.1], [0.3, 0.7]]),
    )  # fmt: skip


def plain_value(problem: Programme, regime: int = 0) -> float:
    """The same programme as a plain recursion over the rules of a tick, from nothing running in a fresh spell."""
    terms = deal(problem.steps - problem.high, problem.steps, problem.changeover)

    @cache
    def value(state: State, regime: int, spell: int, age: int) -> float:
        if state.left == 0:
            return 0.0
        end = problem.ends[problem.steps - state.tick, regime, spell, age]
        move = problem.ages[age] if age < 2 else 0.0
        ahead = [(end, 1 - spell, 0), ((1 - end) * move, spell, min(age + 1, 2)), ((1 - end) * (1 - move), spell, age)]
        best = math.inf
        for choice, price in ((Market.IDLE, 0.0), (Market.SPOT, 1.0), (Market.ONDEMAND, 3.0)):
            if (choice is Market.SPOT and spell == 1) or not is_safe(terms, state, choice):
                continue
            after = advance(terms, state, choice)
            then = [
                p * problem.switching[regime, r] * value(after, r, s, a) for p, s, a in ahead if p > 0 for r in (0, 1)
            ]
            best = min(best, price + sum(then))
        return best

    return value(begin(terms), regime, 0, 0)


SIZES = [(8, 4, 1), (9, 5, 2), (10, 6, 3), (7, 3, 0)]


@pytest.mark.parametrize(("steps", "slack", "changeover"), SIZES)
def test_the_programme_is_what_a_plain_recursion_gives(steps, slack, changeover):
    problem = small_programme(steps, slack, changeover)
    for regime in (0, 1):
        assert values(problem)[regime, 0, 0, 0, slack] == pytest.approx(plain_value(problem, regime), rel=1e-5)


@pytest.mark.parametrize(("steps", "slack", "changeover"), SIZES)
def test_the_best_of_the_weighed_choices_costs_what_the_programme_says(steps, slack, changeover):
    problem = small_programme(steps, slack, changeover)
    found = tables(problem, at_deadline(problem), steps)
    for regime, belief in enumerate(np.eye(2)):
        best = min(costs(problem, found, Standing(steps, slack, 0, 0, HERE, 0), belief))
        assert best == pytest.approx(values(problem)[regime, HERE, 0, 0, slack], rel=1e-5)


def test_spot_cannot_be_chosen_where_there_is_none_nor_idleness_where_it_would_be_too_late():
    problem = small_programme(9, 5, 2)
    found = tables(problem, at_deadline(problem), 9)
    idle, spot, ondemand = costs(problem, found, Standing(9, 2, 0, 0, AWAY, 0), np.array([0.5, 0.5]))
    assert min(idle, spot) >= NEVER
    assert ondemand == pytest.approx(3.0 * 9)
    assert (SPOT, ONDEMAND) == (1, 2)


def test_a_tail_in_steps_of_the_same_size_changes_no_value():
    problem, far, keep = small_programme(20, 8, 2), 12, 8
    tail_problem = Programme(**{name: getattr(problem, name) for name in problem.__struct_fields__} | {"steps": far})
    tail = refine(tail_problem, values(tail_problem), problem, 1, far)
    whole = tables(problem, at_deadline(problem), 20)[:keep]
    reachable = whole < NEVER
    assert tables(problem, tail, keep)[reachable] == pytest.approx(whole[reachable], rel=1e-4)


def watched(text: str, tick_s: float = 600.0) -> Watcher:
    watcher = Watcher(tick_s, PRIOR, LEARNING)
    for mark in text:
        watcher.observe(mark == "#")
    return watcher


def test_without_a_past_the_law_is_the_prior():
    law = learn(Memory(), PRIOR, LEARNING)
    assert law.by_age == pytest.approx(PRIOR.table())
    assert law.by_hour == pytest.approx(np.ones((2, 24)))


@pytest.mark.parametrize("per_h", [0.02, 0.5, 3.0])
def test_where_spells_end_as_often_as_the_law_expects_no_regime_is_preferred(per_h: float):
    """The belief weighs ends by the law's own number: a market that is calmer than others has no better days."""
    flat = Prior((per_h,) * len(AGES_H), (per_h,) * len(AGES_H))
    counts, t = SpellCounts(), 0.0
    for kind in (HERE, AWAY) * 40:
        count(counts, kind, t, t, t + 3600.0 / per_h, ended=True)
        t += 3600.0 / per_h
    belief = sight_of(counts, t, is_here=True, prior=flat).belief
    assert belief[0] == belief.max()
    assert belief[1] == pytest.approx(belief[2], abs=0.15)


def test_what_was_seen_moves_the_law_away_from_the_prior():
    flicker, calm = watched("#." * 500), watched("#" * 500 + "." * 500)
    assert flicker.law.by_age[HERE, 0] > PRIOR.here[0] > calm.law.by_age[HERE, 0]


def test_hours_of_the_day_at_which_spot_goes_away_are_learned():
    day = "#" * 60 + "." * 12 + "#" * 72
    law = watched(day * 14).law
    assert law.by_hour[HERE, 10] > 1.5 > 0.7 > law.by_hour[HERE, 20]


def test_a_spell_that_ends_early_speaks_for_a_bad_regime_and_one_that_lasts_for_a_good_one():
    past = "#" * 30 + "." * 10
    usual, good, bad = watched(past * 8 + "#" * 120).belief
    assert good > usual > bad
    usual, good, bad = watched(past * 8 + "#..........." * 4).belief
    assert bad > usual > good


def test_a_belief_is_a_distribution_that_time_without_news_draws_back_to_even():
    assert LEARNING.switching(0.0) == pytest.approx(np.eye(3))
    assert LEARNING.switching(6.0).sum(axis=1) == pytest.approx(np.ones(3))
    assert LEARNING.switching(1e4) == pytest.approx(np.full((3, 3), 1 / 3))
    assert watched("##.#..###" * 9).belief.sum() == pytest.approx(1.0)


def test_a_prior_fitted_to_a_memoryless_series_is_flat():
    rng = np.random.default_rng(4)
    flips = rng.random(60_000) < 1 / 6
    available = np.cumsum(flips) % 2 == 0
    prior = fit_prior([(600.0, available.tolist())])
    assert isinstance(prior, Prior)
    assert len(prior.here) == len(AGES_H)
    assert prior.here[:6] == pytest.approx([1.0] * 6, rel=0.25)


def test_the_windfall_planner_uses_spot_throughout_where_it_never_goes_away():
    terms = terms_of(600.0, work_h=20, deadline_h=22, changeover_s=720, spot_usd=1.0, ondemand_usd=3.0)
    series = Series("calm", 600.0, [True] * 1000)
    assert run(series, 600, terms, PLANNERS["windfall"](terms)).cost_usd == pytest.approx(122 / 6)


def test_the_windfall_planner_wastes_no_slack_where_spot_never_comes():
    terms = terms_of(600.0, work_h=20, deadline_h=22, changeover_s=720, spot_usd=1.0, ondemand_usd=3.0)
    series = Series("dead", 600.0, [False] * 1000)
    assert run(series, 600, terms, PLANNERS["windfall"](terms)).cost_usd == pytest.approx(122 / 2)


def test_the_command_prints_one_document(tmp_path):
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 0, 2, 1] * 60}))
    result = CliRunner().invoke(command, ["--trace", str(path), "--work-h", "10", "--deadline-h", "12", "--json"])
    assert result.exit_code == 0
    assert set(json.loads(result.output)) == {"cost_usd", "finish_h", "met"}


@pytest.mark.parametrize("content", ["", "{}", '{"metadata": {"gap_seconds": 0}, "data": [1]}', '{"data": []}'])
def test_a_file_that_is_no_series_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"broken\.json"):
        read_series(path)


def test_a_start_beyond_the_series_is_refused(tmp_path):
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 0]}))
    result = CliRunner().invoke(command, ["--trace", str(path), "--start", "2"])
    assert isinstance(result.exception, BadInput)


@pytest.mark.skipif(data.root() is None, reason="the shared traces are not here (set WINDFALL_DATA)")
@pytest.mark.parametrize("deadline_h", [52, 70])
def test_on_real_series_windfall_is_cheaper_than_uniform_progress_and_misses_nothing(deadline_h):
    spent = {"windfall": 0.0, "uniform-progress": 0.0}
    for name in ("k80_1", "k80_8", "v100_1", "v100_8"):
        folder = "spot/skypilot-spot-traces/availability/1-node/aws-10-26-2022"
        series = read_series(data.find(f"{folder}/us-west-2a_{name}.json"))
        terms = terms_of(
            series.tick_s, work_h=48, deadline_h=deadline_h, changeover_s=720, spot_usd=0.973, ondemand_usd=3.06
        )
        for planner in spent:
            outcome = run(series, 1500, terms, PLANNERS[planner](terms))
            assert outcome.met
            spent[planner] += outcome.cost_usd
    assert spent["windfall"] < spent["uniform-progress"]


@pytest.mark.parametrize("spare", [0, 2])
def test_without_changeovers_windfall_uses_spot_whenever_it_is_there_even_with_no_slack_left(spare):
    terms, future = deal(12, 12 + spare, changeover=0), "##..##..##..##"
    used = future[: 12 + spare]
    outcome = run(series_of(used), 0, terms, PLANNERS["windfall"](terms))
    assert outcome.met
    assert outcome.cost_usd <= used.count("#") * 1.0 + (12 - used.count("#")) * 3.0
