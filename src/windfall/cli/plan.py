"""`windfall plan`: what to rent and what runs where, before anything starts. Touches: files named, the terminal."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from difflib import get_close_matches
from typing import Any

import click
import numpy as np

from windfall.cli.options import place_options
from windfall.cli.units import parse_duration_s, show_duration, show_usd
from windfall.errors import BadInput, Missed
from windfall.planning.workflow.model import US, NoOffer, Problem, earliest_finish, make_problem
from windfall.planning.workflow.planners import NAMES, publish
from windfall.planning.workflow.planners import plan as make_plan
from windfall.workflows import read
from windfall.workflows.offers import read_offers


@click.command("plan")
@click.argument("job", required=False, metavar="[JOB.TOML]")
@click.option("--workflow", "workflow_file", metavar="FILE", help="WfFormat 1.5 JSON or workflow.toml.")
@click.option("--offers", "offers_file", metavar="FILE", help="What may be rented: offers.toml.")
@click.option("--deadline", metavar="TIME", help="From now: 90s, 10m, 2h, 1h30m.")
@click.option("--what-if", metavar="deadline=T,T,...", help="Of a bag: other deadlines beside that.")
@click.option("--planner", metavar="NAME", help="Who decides what is rented.  [default: windfall]")
@click.option("--confidence", type=float, metavar="P", help="Of a bag: how sure it shall be.  [default: 0.95]")
@click.option("--budget", metavar="USD", help="Of a bag: spend at most so many dollars.")
@click.option("--estimate", metavar="TIME", help="Of a bag: what a task takes on a machine of speed 1.")
@click.option(
    "--spread", type=float, metavar="S", help="How unequal run times are: sigma of their log.  [default: 0.5]"
)
@click.option("--like", metavar="JOB", help="Of a bag: run times as those of an earlier job.")
@click.option(
    "--trace", "traces", multiple=True, metavar="[OFFER=]FILE", help="Of a bag: availability of spot machines."
)
@click.option("--pools", "pools_file", metavar="FILE", help="Of a bag: rent from the clouds of a pools.toml instead.")
@click.option("--pool", "pools", multiple=True, metavar="NAME", help="With --pools: from this one. Repeatable.")
@click.option("--market", type=click.Choice(["any", "on-demand", "spot"]), default="any", show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Of a bag: simulated so often.  [default: 40, or fewer]",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="The same seed gives the same plan.")
@place_options
@click.option("--json", "as_json", is_flag=True, help="The plan as one JSON document.")
@click.option("--plot", metavar="PNG", help="Draw it: what deadlines cost; of a workflow, machines and tasks.")
def plan(
    job: str | None,
    workflow_file: str | None,
    offers_file: str | None,
    deadline: str | None,
    planner: str | None,
    market: str,
    seed: int | None,
    as_json: bool,
    plot: str | None,
    **bag: Any,
) -> None:
    """Say what a bag or a workflow will cost and when it will be done, before anything is rented.

    A bag (a job.toml, or a list of tasks) is simulated many times with the very planner that `windfall run` uses:
    cost, finish, the chance of being in time, machines over time. Of a workflow the plan itself is made: which
    machines, when, and what runs where.

    Nothing is started. A lease is billed from its request to its release in whole cycles, the boot included.

    \b
    Examples:
      windfall plan job.toml --offers offers.toml --deadline 2h
      windfall plan job.toml --offers offers.toml --deadline 2h --what-if deadline=1h,2h,4h --plot front.png
      windfall plan tasks.txt --estimate 5m --pools pools.toml --pool cloud --deadline 35m
      windfall plan --workflow examples/workflows/fit.toml --offers examples/offers.toml --deadline 2h

    Exit code 4: the deadline is impossible (the earliest possible one is named), or it is kept too seldom.
    """
    if (job is None) == (workflow_file is None):
        said = "a job file and a workflow: plan one of them" if job else "plan what? A job file or a workflow is needed"
        raise BadInput(said, hint="try: windfall plan job.toml --offers offers.toml --deadline 2h")
    if job is not None:
        from windfall.cli.plan_bag import Asked, plan_bag

        plan_bag(
            Asked(
                job=job, offers_file=offers_file, deadline=deadline, planner=planner, market=market,
                first_seed=1 if seed is None else seed, as_json=as_json, plot=plot, **bag,
            )
        )  # fmt: skip
        return
    _refuse_options_of_bags(bag)
    _plan_workflow(workflow_file, offers_file, deadline, planner or "windfall", market, seed or 0, as_json, plot)


def _refuse_options_of_bags(said: dict[str, Any]) -> None:
    for name, value in said.items():
        if name != "place" and value not in (None, ()):
            option = {"traces": "trace", "pools_file": "pools", "pools": "pool"}.get(name, name.replace("_", "-"))
            raise BadInput(f"--{option} goes with a bag, not with a workflow", hint="leave it out")


def _plan_workflow(
    workflow_file: str | None,
    offers_file: str | None,
    deadline: str | None,
    planner: str,
    market: str,
    seed: int,
    as_json: bool,
    plot: str | None,
) -> None:
    if planner not in NAMES:
        near = get_close_matches(planner, NAMES, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"planners of workflows are: {', '.join(NAMES)}"
        raise BadInput(f"there is no planner '{planner}'", hint=hint)
    problem = _problem(workflow_file, offers_file, deadline, market)
    with _working(f"planning {problem.n:,} tasks", quiet=problem.n < 20):
        made = make_plan(problem, planner, np.random.default_rng(seed))
    document = publish(problem, made)
    if plot:
        from windfall.lab.gantt import draw

        draw(document, problem, plot)
    click.echo(json.dumps(document) if as_json else _screen(document, problem, planner))
    if not document["met"]:
        raise _missed(problem, document, planner)


def _problem(workflow_file: str | None, offers_file: str | None, deadline: str | None, market: str) -> Problem:
    assert workflow_file is not None
    if not offers_file:
        raise BadInput(
            "plan needs to know what may be rented, and no --offers file was given",
            hint="try: --offers examples/offers.toml (a list of [[offer]] tables; copy it and put your prices in)",
        )
    if not deadline:
        raise BadInput("plan needs a deadline", hint="try: --deadline 2h")
    deadline_s = parse_duration_s(deadline, "--deadline")
    if deadline_s <= 0:
        raise BadInput(f"--deadline {deadline} is not in the future", hint="try: --deadline 2h")
    spec = read(workflow_file)
    offers = tuple(offer for offer in read_offers(offers_file) if market in ("any", offer.market))
    if not offers:
        raise BadInput(f"{offers_file}: no offer of market '{market}'", hint="try: --market any")
    try:
        return make_problem(spec.for_planning(), offers, deadline_s)
    except NoOffer as error:
        place = f"{workflow_file}: {spec.tasks[error.task].place}"
        hint = f"add an offer with more to {offers_file}"
        raise BadInput(f"{place} needs {error.need} and no offer has that", hint=hint) from None


def _missed(problem: Problem, document: dict[str, Any], planner: str) -> Missed:
    soonest_s = earliest_finish(problem) / US
    wanted = show_duration(problem.deadline / US)
    if problem.deadline / US < soonest_s:
        return Missed(
            f"a deadline of {wanted} is impossible: the earliest possible finish is {show_duration(soonest_s)}",
            hint=f"boot and critical path take that long whatever is rented; try: --deadline {np.ceil(soonest_s):.0f}s",
        )
    hint = "try: --planner windfall" if planner != "windfall" else "raise the limits of the offers"
    found = np.ceil(document["makespan_s"])
    return Missed(
        f"{planner} misses the deadline of {wanted}: its plan takes {show_duration(document['makespan_s'])}",
        hint=f"{hint}, or --deadline {found:.0f}s",
    )


def _screen(document: dict[str, Any], problem: Problem, planner: str) -> str:
    makespan_s, deadline_s = document["makespan_s"], problem.deadline / US
    spare = deadline_s - makespan_s
    verdict = f"{show_duration(spare)} to spare" if spare >= 0 else f"{show_duration(-spare)} late"
    name = problem.workflow.name
    lines = [
        f"'{name}'  {problem.n:,} tasks   planner {planner}",
        f"  cost {show_usd(document['cost_usd'])}   done after {show_duration(makespan_s)}   "
        f"deadline {show_duration(deadline_s)} ({verdict})",
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
    spot = sum(1 for m in document["machines"] if _market(problem, m["offer"]) == "spot")
    if spot:
        lines.append(
            f"  {spot} of {len(document['machines'])} machines are spot and may vanish; --market on-demand avoids"
        )
    return "\n".join(lines)


def _market(problem: Problem, name: str) -> str:
    return next(offer.market for offer in problem.offers if offer.name == name)


def _working(what: str, quiet: bool) -> Any:
    """A spinner on a terminal, nothing in a pipe."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
    return console.status(what)
