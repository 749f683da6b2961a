"""`windfall plan --workflow`: machines and schedule of a workflow. Touches: files named, the terminal."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from typing import Any

import click
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windfall.cli.options import Place
from windfall.cli.plan.licences import workflow_in_turns
from windfall.cli.plan.run_times import checked_spread
from windfall.cli.plan.workflow_runs import (
    MOST_ON_DEMAND,
    MOST_TASKS,
    RUNS,
    RUNS_ON_DEMAND,
    document_of,
    lines_of,
    question_of,
    simulate,
)
from windfall.cli.show.output import console, deadline_words, note, wrote
from windfall.errors import BadInput, Missed
from windfall.planning.contract import SPOT, WORKFLOW
from windfall.planning.offers import Offer
from windfall.planning.registry import known_planner
from windfall.planning.workflow.bounds import work_bound_usd
from windfall.planning.workflow.budget import soonest_within
from windfall.planning.workflow.live import FIRST_PLAN_LOOKS, first_plan, planned_s
from windfall.planning.workflow.model import US, Effort, NoOffer, Plan, Problem, earliest_finish, make_problem
from windfall.planning.workflow.planners import plan as make_plan
from windfall.planning.workflow.planners import publish
from windfall.planning.workflow.risk import Risk
from windfall.planning.workflow.sets import with_sets
from windfall.units import parse_deadline, parse_money, show_duration, show_usd
from windfall.workflows import WorkflowSpec, read
from windfall.workflows.offers import read_offers

CONFIDENCE = 0.95
"""A workflow whose chance to be in time is certainly below this is not worth starting."""
QUICK = 30_000  # looks at machines for each of the deadlines that a budget is tried with


class Asked(Struct, frozen=True, kw_only=True):
    """The command line, as far as workflows go."""

    workflow_file: str
    offers_file: str | None
    deadline: str | None
    budget: str | None
    planner: str
    market: str
    failures: float
    seed: int
    seeds: int | None
    spread: float | None
    as_json: bool
    plot: str | None
    place: Place


def plan_workflow(asked: Asked) -> None:
    """Print the plan; raises Missed where deadline or budget are not kept."""
    known_planner(asked.planner, WORKFLOW)
    deadline_s, budget_usd = _limits(asked)
    offers = _offers(asked)
    spec = _on_machines(asked, offers)
    with _working(f"planning {len(spec.tasks):,} tasks", quiet=len(spec.tasks) < 20):
        if deadline_s is None:
            assert budget_usd is not None
            (problem, made), why = _within(asked, spec, offers, budget_usd), ""
        else:
            problem = _problem(asked, spec, offers, deadline_s)
            # What a run begins with: the same reserve of time, and the same search.
            planned = _problem(asked, spec, offers, planned_s(deadline_s))
            made, why = first_plan(planned, asked.planner, np.random.default_rng(asked.seed), FIRST_PLAN_LOOKS)
    document = publish(problem, made)
    runs = _runs(asked, spec, document, problem)
    if runs:
        _add_forecast(document, asked, spec, offers, problem.deadline / US, runs, budget_usd)
    over = budget_usd is not None and made.expected_usd(problem) > budget_usd + 1e-9
    if budget_usd is not None:
        document |= {"budget_usd": budget_usd, "within_budget": not over, "bound_usd": work_bound_usd(problem)}
    click.echo(json.dumps(document) if asked.as_json else _screen(document, problem, asked, made.effort, why))
    if asked.plot:
        from windfall.figures.gantt import plan_picture
        from windfall.figures.saved import save

        save(plan_picture(document, problem), asked.plot)
        wrote(asked.plot)
    if not document["met"]:
        raise _missed(problem, document, asked.planner)
    if over:  # before the runs, which end late because the budget ends them
        raise _too_dear(asked, spec, offers, problem, made, deadline_s, budget_usd or 0.0)
    if asked.deadline and runs and document["forecast"]["met_high"] < CONFIDENCE:
        raise _seldom(document["forecast"])


def _runs(asked: Asked, spec: WorkflowSpec, document: dict[str, Any], problem: Problem) -> int:
    """How many runs to simulate: as asked, else fewer where no machine of the plan may vanish."""
    if asked.seeds is not None:
        return asked.seeds
    if len({task.resources for task in spec.tasks}) > 1:
        return 0  # a simulated run gives all tasks the same resources: it would cost more than the plan
    spot = any(_market(problem, machine["offer"]) == SPOT for machine in document["machines"])
    if not document["met"] or problem.n > (MOST_TASKS if spot else MOST_ON_DEMAND):
        return 0
    return RUNS if spot else RUNS_ON_DEMAND


def _add_forecast(
    document: dict[str, Any], asked: Asked, spec: WorkflowSpec, offers: tuple[Offer, ...], deadline_s: float, runs: int,
    budget_usd: float | None,
) -> None:  # fmt: skip
    """What simulated runs of the live planner come to; its chance and cost replace those of the formula."""
    question = question_of(spec, offers, asked.planner, spec.spread, budget_usd)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        shown.update(f"simulating: {done} of {runs} runs")

    with _working(f"simulating {runs} runs", quiet=False) as shown:
        found = simulate(question, deadline_s, runs, asked.seed + 1, count)
    document["forecast"] = told = document_of(found)
    document["risk"] = document.get("risk", {}) | {
        "expected_usd": told["cost_usd"]["mean"], "chance_late": 1.0 - told["met"] / told["runs"]
    }  # fmt: skip


def _seldom(told: dict[str, Any]) -> Missed:
    finish = told["finish_s"]
    by = (
        "" if finish is None or finish["high"] is None else f"nine of ten are done by {show_duration(finish['high'])}; "
    )
    return Missed(
        f"the workflow is in time in {told['met']} of {told['runs']} simulated runs",
        hint=f"{by}try: a later --deadline, --market on-demand, or offers on demand with larger limits",
    )


def _limits(asked: Asked) -> tuple[float | None, float | None]:
    """The deadline in seconds and the budget in dollars; one of them at least."""
    if not asked.offers_file:
        raise BadInput(
            "plan needs to know what may be rented, and no --offers file was given",
            hint="try: --offers examples/offers.toml (a list of [[offer]] tables; copy it and put your prices in)",
        )
    if not asked.deadline and not asked.budget:
        raise BadInput(
            "plan needs a deadline", hint="try: --deadline 2h, or --budget 5 for the earliest finish it pays"
        )
    budget_usd = parse_money(asked.budget, "--budget") / 1e6 if asked.budget else None
    if not asked.deadline:
        return None, budget_usd
    return parse_deadline(asked.deadline, time.time(), field="--deadline").in_s, budget_usd


def _offers(asked: Asked) -> tuple[Offer, ...]:
    assert asked.offers_file is not None
    offers = tuple(offer for offer in read_offers(asked.offers_file) if asked.market in ("any", offer.market))
    if not offers:
        raise BadInput(f"{asked.offers_file}: no offer of market '{asked.market}'", hint="try: --market any")
    return offers


def _on_machines(asked: Asked, offers: tuple[Offer, ...]) -> WorkflowSpec:
    """The workflow with what its tasks need of machines, and turns for the licences of the server that is named."""
    assumed: list[str] = []
    named = bool(asked.place.address or asked.place.state)
    spec = workflow_in_turns(read(asked.workflow_file), offers, asked.place, named, assumed)
    for line in assumed:
        note(f"windfall: {line}")
    return spec if asked.spread is None else replace(spec, spread=checked_spread(asked.spread))


def _problem(asked: Asked, spec: WorkflowSpec, offers: tuple[Offer, ...], deadline_s: float) -> Problem:
    try:
        workflow, planned = with_sets(spec.for_planning(), offers)
        return make_problem(workflow, planned, deadline_s, Risk(task_failures=asked.failures))
    except NoOffer as error:
        place = f"{asked.workflow_file}: {spec.tasks[error.task].place}"
        hint = f"add an offer with more to {asked.offers_file}"
        raise BadInput(f"{place} needs {error.need} and no offer has that", hint=hint) from None


def _within(asked: Asked, spec: WorkflowSpec, offers: tuple[Offer, ...], budget_usd: float) -> tuple[Problem, Plan]:
    """The earliest finish within the budget."""
    return soonest_within(
        budget_usd,
        lambda deadline_s: _problem(asked, spec, offers, deadline_s),
        lambda problem: make_plan(problem, asked.planner, np.random.default_rng(asked.seed), QUICK),
    )


def _too_dear(
    asked: Asked, spec: WorkflowSpec, offers: tuple[Offer, ...], problem: Problem, made: Plan, deadline_s: float | None,
    budget_usd: float,
) -> Missed:  # fmt: skip
    """The least cost found, what no plan undercuts, and the deadline that the budget would do for."""
    cost, bound = made.expected_usd(problem), work_bound_usd(problem)
    within = "" if deadline_s is None else f" within {show_duration(deadline_s)}"
    said = f"the budget of {show_usd(budget_usd)} is not enough{within}: the least cost found is {show_usd(cost)}"
    if budget_usd < bound:
        return Missed(said, hint=f"no plan whatever costs less than {show_usd(bound)}")
    hint = f"no plan whatever costs less than {show_usd(bound)}; try: --budget {np.ceil(cost * 100) / 100:.2f}"
    if deadline_s is not None and problem.n <= 1_000:
        later, cheaper = _within(asked, spec, offers, budget_usd)
        if cheaper.expected_usd(later) <= budget_usd:
            hint += f", or --deadline {np.ceil(cheaper.makespan / US):.0f}s"
    return Missed(said, hint=hint)


def _missed(problem: Problem, document: dict[str, Any], planner: str) -> Missed:
    soonest_s = earliest_finish(problem) / US
    wanted = show_duration(problem.deadline / US)
    if problem.deadline / US < soonest_s:
        return Missed(
            f"a deadline {wanted} from now is impossible: the earliest finish is {show_duration(soonest_s)} from now",
            hint=f"boot and critical path take that long whatever is rented; try: --deadline {np.ceil(soonest_s):.0f}s",
        )
    hint = "try: --planner windfall" if planner != "windfall" else "raise the limits of the offers"
    found = np.ceil(document["makespan_s"])
    return Missed(
        f"{planner} misses the deadline of {wanted}: its plan takes {show_duration(document['makespan_s'])}",
        hint=f"{hint}, or --deadline {found:.0f}s",
    )


def _screen(document: dict[str, Any], problem: Problem, asked: Asked, effort: Effort | None, why: str) -> str:
    makespan_s, deadline_s = document["makespan_s"], problem.deadline / US
    spare = deadline_s - makespan_s
    verdict = f"{show_duration(spare)} to spare" if spare >= 0 else f"{show_duration(-spare)} late"
    due = f"deadline {deadline_words(time.time() + deadline_s)}, {verdict}"
    if not asked.deadline:
        due = (
            f"the earliest found for {show_usd(document['budget_usd'])}"
            if document["within_budget"]
            else "the cheapest"
        )
    name = problem.workflow.name
    lines = [
        f"'{name}'  {problem.n:,} tasks   planner {asked.planner}",
        f"  cost {show_usd(document['cost_usd'])}   done after {show_duration(makespan_s)}   {due}",
    ]
    work: defaultdict[str, float] = defaultdict(float)
    runs: Counter[str] = Counter()
    for task, width in zip(document["tasks"], problem.workflow.cores, strict=True):
        work[task["machine"]] += (task["end_s"] - task["start_s"]) * width
        runs[task["machine"]] += 1
    cores = {offer.name: offer.cores for offer in problem.offers}
    shown = document["machines"][:20]
    lines.append(f"  {'machine':<9}{'offer':<18}{'from':>12}{'to':>13}{'tasks':>7}{'busy':>7}{'cost':>11}")
    for machine in shown:
        leased = (machine["end_s"] - machine["start_s"]) * cores[machine["offer"]]
        busy = work[machine["id"]] / leased if leased else 0.0
        lines.append(
            f"  {machine['id']:<9}{machine['offer']:<18}{show_duration(machine['start_s']):>12}"
            f"{show_duration(machine['end_s']):>13}{runs[machine['id']]:>7}{busy:>7.0%}{show_usd(machine['cost_usd']):>11}"
        )
    if len(document["machines"]) > len(shown):
        lines.append(f"  ... and {len(document['machines']) - len(shown):,} more; --json lists them all")
    if effort is not None:
        lines.append(f"  search: {effort.said()}")
    if why:
        lines.append(f"  {why}")
    if "forecast" in document:
        lines += lines_of(document["forecast"])
    elif "risk" in document:
        lines += _risk_lines(document, problem)
    return "\n".join(lines)


def _risk_lines(document: dict[str, Any], problem: Problem) -> list[str]:
    risk = document["risk"]
    lines = [
        f"  losses: {risk['losses_expected']:.2g} tasks expected, {show_usd(risk['expected_usd'])} with them; "
        f"chance that one comes too late to run again in time {risk['chance_late']:.2g}"
    ]
    spot = sum(1 for m in document["machines"] if _market(problem, m["offer"]) == "spot")
    if spot:
        lines.append(
            f"  {spot} of {len(document['machines'])} machines are spot and may vanish; what they run leaves time for "
            "on-demand"
        )
    return lines


def _market(problem: Problem, name: str) -> str:
    return next(offer.market for offer in problem.offers if offer.name == name)


def _working(what: str, quiet: bool) -> Any:
    """A spinner on a terminal, nothing in a pipe."""
    return console(quiet).status(what)
