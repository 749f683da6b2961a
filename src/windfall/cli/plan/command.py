"""`windfall plan`: cost and finish before anything is rented. Touches: files named, the terminal."""

from __future__ import annotations

from typing import Any

import click

from windfall.cli.options import place_options
from windfall.cli.show.output import plot_file
from windfall.errors import BadInput


def _once(context: click.Context, option: click.Parameter, said: tuple[str, ...]) -> str | None:
    """The one value; where there are two, both are meant, and one table shows one of them."""
    if len(said) > 1:
        raise BadInput(f"--what-if is there {len(said)} times", hint="compare one after the other")
    return said[0] if said else None


@click.command("plan")
@click.argument("job", required=False, metavar="[JOB.TOML|JOB]")
@click.option("--workflow", "workflow_file", metavar="FILE", help="WfFormat 1.5 JSON or workflow.toml.")
@click.option("--offers", "offers_file", metavar="FILE", help="What may be rented: offers.toml.")
@click.option("--deadline", metavar="TIME", help="Finish within 2h30m, or by a clock time: 18:00.")
@click.option(
    "--what-if",
    multiple=True,
    callback=_once,
    metavar="deadline=T,... | confidence=P,... | every=T",
    help="Compare other deadlines or confidences of a bag; with --fleet, one such job every T.",
)
@click.option("--fleet", metavar="NAME", help="Price one more job in this fleet of the server, beside its other jobs.")
@click.option("--planner", metavar="NAME", help="Planner that decides what to rent.  [default: windfall]")
@click.option("--confidence", type=float, metavar="P", help="Wanted chance that a bag is in time.  [default: 0.95]")
@click.option("--budget", metavar="USD", help="Spend at most this many dollars.  [default: no limit]")
@click.option(
    "--failures",
    type=click.FloatRange(0, 0.99),
    default=0.0,
    metavar="P",
    help="Chance that a task of a workflow fails and runs again.  [default: 0]",
)
@click.option("--estimate", metavar="TIME", help="Run time of a task on a machine of speed 1.")
@click.option(
    "--spread",
    type=float,
    metavar="S",
    help="Standard deviation of the logarithm of run times.  [default: several around 0.35; of a workflow 0.15]",
)
@click.option("--like", metavar="JOB", help="Take run times from an earlier job.")
@click.option(
    "--trace", "traces", multiple=True, metavar="[OFFER=]FILE", help="Availability of spot machines, recorded."
)
@click.option(
    "--pools", "pools_file", metavar="FILE", help="Rent from the pools of a pools.toml, at the prices of now."
)
@click.option(
    "--pool", "pools", multiple=True, metavar="NAME", help="Rent from this pool only: of --pools, or of the server."
)
@click.option(
    "--free-hosts",
    metavar="N[xSLOTS]",
    help="Hosts that cost nothing and work for the bag as well.  [default: those of the server that is asked, or none]",
)
@click.option("--market", type=click.Choice(["any", "on-demand", "spot"]), default="any", show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Number of simulated runs.  [default: 20; 10 for a large bag and for --what-if; more if in doubt]",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="First seed; the same seed gives the same plan.")
@click.option("--whole", is_flag=True, help="Of a job on a server: all of it from its start, not what is left.")
@place_options
@click.option("--json", "as_json", is_flag=True, help="The plan as one JSON document.")
@click.option("--plot", callback=plot_file, metavar="FILE", help="Draw cost against deadline, or a workflow over time.")
def plan(
    job: str | None,
    workflow_file: str | None,
    offers_file: str | None,
    deadline: str | None,
    planner: str | None,
    market: str,
    seed: int | None,
    failures: float,
    as_json: bool,
    plot: str | None,
    fleet: str | None,
    **bag: Any,
) -> None:
    """Say what a bag or a workflow will cost and when it will be done, before anything is rented.

    A bag (a job.toml, or a list of tasks) is simulated many times with the planner that `windfall run` uses:
    cost, finish, the chance of being in time, machines over time. So is what is left of a job on a server, by its
    number or name. Of a workflow the plan itself is shown: machines, and which task runs where and when.

    Nothing is started. A lease is billed from its request to its release in whole cycles, the boot included.

    \b
    Examples:
      windfall plan job.toml --offers offers.toml --deadline 2h
      windfall plan job.toml --offers offers.toml --deadline 2h --what-if deadline=1h,2h,4h --plot front.png
      windfall plan job.toml --offers offers.toml --deadline 2h --what-if confidence=0.8,0.95,0.99
      windfall plan tasks.txt --estimate 5m --pools pools.toml --pool cloud --deadline 1h
      windfall plan tasks.txt --estimate 5m --pool cloud --deadline 1h            (a pool of the running server)
      windfall plan tasks.txt --estimate 5m --offers offers.toml --deadline 2h --free-hosts 4x8
      windfall plan last --what-if deadline=30m,1h,2h
      windfall plan tasks.txt --estimate 5m --fleet night --deadline 2h --what-if every=1m
      windfall plan --workflow examples/workflows/fit.toml --offers examples/offers.toml --deadline 2h --budget 1.50

    A workflow may have a budget beside its deadline, or instead of it: then it ends as early as that allows.

    Exit code 4: the deadline is impossible (the earliest possible one is named), or it is kept too seldom (the nearest
    one that is kept often enough is named), or the budget is not enough (the least cost found is named).
    """
    if job is not None and workflow_file is None and job.endswith((".toml", ".json")):
        from windfall.workflows.read import is_workflow_file

        if is_workflow_file(job):
            job, workflow_file = None, job
    if (job is None) == (workflow_file is None):
        said = "a job file and a workflow: plan one of them" if job else "plan what? A job file or a workflow is needed"
        raise BadInput(said, hint="try: windfall plan job.toml --offers offers.toml --deadline 2h")
    if fleet is not None:
        _plan_fleet(fleet, job, workflow_file, deadline, as_json, bag, {
            "offers": offers_file, "planner": planner, "market": None if market == "any" else market, "seed": seed,
            "failures": failures or None, "plot": plot,
        })  # fmt: skip
        return
    if job is not None:
        if failures:
            raise BadInput("--failures goes with a workflow, not with a bag", hint="leave it out")
        from windfall.cli.plan.bag import Asked, plan_bag

        plan_bag(
            Asked(
                job=job, offers_file=offers_file, deadline=deadline, planner=planner, market=market,
                first_seed=1 if seed is None else seed, as_json=as_json, plot=plot, **bag,
            )
        )  # fmt: skip
        return
    from windfall.cli.plan.workflow import Asked as AskedOfWorkflow
    from windfall.cli.plan.workflow import plan_workflow

    budget, seeds, spread = bag.pop("budget"), bag.pop("seeds"), bag.pop("spread")
    _refuse_options_of_bags(bag)
    assert workflow_file is not None
    plan_workflow(
        AskedOfWorkflow(
            workflow_file=workflow_file, offers_file=offers_file, deadline=deadline, budget=budget,
            planner=planner or "windfall", market=market, failures=failures, seed=seed or 0, seeds=seeds, spread=spread,
            as_json=as_json, plot=plot, place=bag["place"],
        )
    )  # fmt: skip


def _plan_fleet(
    fleet: str, job: str | None, workflow_file: str | None, deadline: str | None, as_json: bool, bag: dict[str, Any],
    others: dict[str, Any],
) -> None:  # fmt: skip
    from windfall.cli.plan.fleet import Asked, plan_fleet

    said = {"pools": bag["pools_file"], "pool": bag["pools"] or None, "trace": bag["traces"] or None, **others}
    said |= {name: bag[name] or None for name in ("confidence", "budget", "spread", "like", "seeds", "whole")}
    if option := next((name for name, value in said.items() if value is not None), None):
        raise BadInput(f"--{option} does not go with --fleet", hint="the fleet has its own pools, planner and budget")
    plan_fleet(
        Asked(
            fleet=fleet, job=job, workflow_file=workflow_file, deadline=deadline, estimate=bag["estimate"],
            what_if=bag["what_if"], as_json=as_json, place=bag["place"],
        )
    )  # fmt: skip


def _refuse_options_of_bags(said: dict[str, Any]) -> None:
    for name, value in said.items():
        if name != "place" and value not in (None, (), False):
            option = {"traces": "trace", "pools_file": "pools", "pools": "pool"}.get(name, name.replace("_", "-"))
            raise BadInput(f"--{option} goes with a bag, not with a workflow", hint="leave it out")
