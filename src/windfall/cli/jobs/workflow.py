"""`windfall workflow`: look at one, draw it, check a file, list classes. Touches the terminal and the files named."""

from __future__ import annotations

from typing import Any

import click

from windfall import files
from windfall.api.small import WorkflowClass, WorkflowGraph
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import output_file, plot_file, plural, print_json, print_table, wrote
from windfall.units import show_duration

Json = dict[str, Any]
STATES = ("waiting", "running", "done", "failed", "cancelled")


@click.group()
def workflow() -> None:
    """Workflows: tasks that wait for each other. They are run with `windfall run --workflow FILE`.

    \b
    Examples:
      windfall workflow check wf.toml
      windfall workflow show last --plot graph.svg
    """


@workflow.command()
@click.argument("job", default="last")
@click.option("--plot", callback=plot_file, metavar="FILE", help="Draw the graph and the states of its tasks.")
@place_options
@json_option
def show(job: str, plot: str | None, place: Place, as_json: bool) -> None:
    """Show how far a workflow is, step by step, and its longest chain of tasks.

    \b
    Examples:
      windfall workflow show last
      windfall workflow show last --plot graph.svg
    """
    with place.open() as client:
        told = client.job(job).graph()
    if plot:
        from windfall.figures.graph import graph_document
        from windfall.figures.saved import save

        save(graph_document(told), plot)
    if as_json:
        print_json(told)
        return
    _print_steps(told)
    if plot:
        wrote(plot)


def _print_steps(told: WorkflowGraph) -> None:
    from windfall.figures.workflow import depths
    from windfall.workflows.wfformat import class_of

    steps: dict[str, Json] = {}
    depth = depths([task["parents"] for task in told["tasks"]])
    for task in sorted(told["tasks"], key=lambda task: (depth[task["task"]], task["task"])):
        step = steps.setdefault(class_of(task["name"]), {"tasks": 0, "blocked": 0, **dict.fromkeys(STATES, 0)})
        step["tasks"] += 1
        step["blocked" if task["blocked"] else task["state"]] += 1
    edges = sum(len(task["parents"]) for task in told["tasks"])
    job, tasks = f"job {told['job']} '{told['name']}'", plural(len(told["tasks"]), "task")
    click.echo(f"{job}  {tasks}, {plural(edges, 'edge')}   {told['state']}")
    columns = ["tasks", *STATES, "blocked"]
    rows = ([name, *(step[column] or "-" for column in columns)] for name, step in steps.items())
    print_table(["step", *columns], rows)
    chain, known_s = _longest_chain(told)
    names = [told["tasks"][task]["name"] for task in chain]
    shown = " -> ".join(names if len(names) <= 6 else [*names[:3], "...", *names[-2:]])
    took = f", {show_duration(known_s)} as far as they have run" if known_s else ""
    click.echo(f"longest chain: {plural(len(chain), 'task')}{took}: {shown}")


def _longest_chain(told: WorkflowGraph) -> tuple[list[int], float]:
    """By run time where tasks have run, by their number otherwise."""
    from windfall import graph as graphs

    tasks = told["tasks"]
    ran_s = [(task["end_s"] or 0.0) - (task["start_s"] or 0.0) if task["state"] == "done" else 0.0 for task in tasks]
    shape = graphs.from_edges(len(tasks), ((parent, task["task"]) for task in tasks for parent in task["parents"]))
    chain = shape.critical_path([run_s + 1e-9 for run_s in ran_s])
    return chain, sum(ran_s[task] for task in chain)


@workflow.command()
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> None:
    """Check a workflow file: names, parents, files, cycles. Says what it would run.

    \b
    Example:
      windfall workflow check examples/workflows/fit.toml
    """
    from windfall.workflows import read

    spec = read(file)
    depth = max(spec.graph.levels()) + 1
    made = {name for task in spec.tasks for name in task.outputs}
    outside = sorted({name for task in spec.tasks for name in task.inputs} - made)
    silent = [task.id for task in spec.tasks if not task.command]
    if as_json:
        about = {"name": spec.name, "tasks": len(spec.tasks), "dependencies": spec.graph.edges, "depth": depth}
        print_json({**about, "files_from_outside": outside, "without_command": silent})
        return
    click.echo(f"workflow '{spec.name}': {plural(len(spec.tasks), 'task')}, the longest chain has {depth}")
    if outside:
        listed = ", ".join(outside[:5]) + (", ..." if len(outside) > 5 else "")
        click.echo(f"  {plural(len(outside), 'file')} from outside: {listed}")
    if silent:
        click.echo(f"  {plural(len(silent), 'task')} without a command, as {silent[0]}: try --emulate")
    click.echo(f"try: windfall run --workflow {file}")


@workflow.command()
@click.argument("job", default="last")
@click.option(
    "-o", "--out", callback=output_file, default="-", metavar="FILE",
    help="Where to write it; standard output if not said.",
)  # fmt: skip
@place_options
def export(job: str, out: str, place: Place) -> None:
    """Write a workflow that has ended in WfCommons' WfFormat 1.5, with measured run times, memory and files.

    `windfall workflow check`, `plan --workflow` and `run --workflow --emulate` read such files.

    \b
    Examples:
      windfall workflow export last > recorded.json
      windfall workflow export last -o recorded.json
    """
    import json

    with place.open() as client:
        document = client.job(job).to_wfformat()
    text = json.dumps(document, indent=1)
    if out == "-":
        click.echo(text)
        return
    wrote(files.write(out, text + "\n"))


@workflow.command()
@place_options
@json_option
def classes(place: Place, as_json: bool) -> None:
    """List the classes of workflows: what defines each, and how many jobs of it there are.

    \b
    Example:
      windfall submit --workflow wf.toml --class nightly --deadline 2h
      windfall submit --class nightly --deadline 3h
      windfall workflow classes
    """
    with place.open() as client:
        rows = client.classes()
    if as_json:
        print_json({"classes": rows})
    elif not rows:
        click.echo("no classes yet.  try: windfall submit --workflow wf.toml --class NAME")
    else:
        print_table(["class", "job", "tasks", "jobs", "running", "failed"], map(_class_cells, rows))


def _class_cells(row: WorkflowClass) -> list[Any]:
    return [row["class"], row["job"], row["tasks"], row["jobs"], row["running"], row["failed"]]
