"""`windfall timeout`: when to give a silent job up. A thin layer over the pure package `windfall.timeouts`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windfall.cli.show.output import console, plot_file, plural
from windfall.cli.timeout.show import show as show_learned
from windfall.errors import BadInput
from windfall.store.location import shown
from windfall.units import show_duration

if TYPE_CHECKING:
    from windfall.timeouts.best import Best
    from windfall.timeouts.fitting.report import Report
    from windfall.timeouts.laws.closed import LatencyLaw
    from windfall.timeouts.process import Process

# law -> its parameters, in the paper's order: one table for `law`, `curve` and `strategy`.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "uniform": ("a", "b"),
    "gaussian": ("mu", "sigma"),
    "exponential": ("rate",),
    "lognormal": ("mu", "sigma"),
    "pareto": ("a", "nu"),
    "weibull": ("shape", "scale"),
    "blend": ("mu", "sigma", "a", "nu", "k", "tmin", "tmax"),
}
# What every answer says first; the public contract.
FIVE = ("timeout_s", "expected_s", "no_timeout_s", "speedup", "kind")
MEANINGS = {
    "a": "Uniform: shortest latency; Pareto: scale (s).",
    "b": "Uniform: longest latency (s).",
    "mu": "Gaussian: centre (s); log-normal: mean of ln(latency).",
    "sigma": "Gaussian: deviation (s); log-normal: deviation of ln(latency).",
    "rate": "Exponential: rate (1/s), one over the mean.",
    "nu": "Pareto: exponent of the tail.",
    "shape": "Weibull: shape; below 1 is heavy-tailed.",
    "scale": "Weibull: scale (s).",
    "k": "Blend: how late the Pareto part comes in.",
    "tmin": "Blend: shortest latency (s).",
    "tmax": "Blend: longest latency (s).",
}


@click.group()
def timeout() -> None:
    """When to give a silent job up and submit it again.

    \b
    windfall timeout law lognormal --mu 5 --sigma 1.2 --rho 0.02
    windfall timeout fit latencies.csv
    """


def law_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The parameters of every law, and what surrounds a submission."""
    command = process_options(command)
    command = click.option(
        "--param", "scipy_params", multiple=True, metavar="NAME=VALUE", help="A parameter of a scipy: law; repeat."
    )(command)
    for name in reversed(MEANINGS):
        command = click.option(f"--{name}", type=float, help=MEANINGS[name])(command)
    return command


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
        click.option("--submit-cost-s", type=float, default=0.0, help="Cost of each submission, the first included."),
        click.option("--run-s", type=float, default=0.0, help="Run time of the job itself; part of the timeout."),
    ):
        command = option(command)
    return command


def rho_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--rho", type=float, default=0.0, show_default=True, help="Share of jobs that never come back."
    )(command)


def build_law(name: str, options: dict[str, Any]) -> LatencyLaw:
    """The law a command line describes; names what is missing, foreign or malformed."""
    from windfall.timeouts.laws.closed import closed_form
    from windfall.timeouts.laws.numeric import EGEE_LIKE, Blend, ScipyLaw

    given = {key: options[key] for key in MEANINGS if options.get(key) is not None}
    if name.startswith("scipy:"):
        if given:
            raise BadInput(f"a scipy: law takes --param NAME=VALUE, not --{next(iter(given))}")
        return ScipyLaw(name.removeprefix("scipy:"), tuple(parse_param(text) for text in options["scipy_params"]))
    if name not in PARAMETERS:
        known = ", ".join(PARAMETERS)
        raise BadInput(f"no law '{name}'; known are {known}, and scipy:NAME", hint="try: windfall timeout law --help")
    wanted = PARAMETERS[name]
    if name == "blend" and not given:
        return EGEE_LIKE
    missing = [f"--{key}" for key in wanted if key not in given]
    foreign = [f"--{key}" for key in given if key not in wanted]
    if options["scipy_params"]:
        foreign.append("--param")
    if missing or foreign:
        said = [f"needs {' and '.join(missing)}"] if missing else []
        said += [f"does not take {' or '.join(foreign)}"] if foreign else []
        raise BadInput(f"{name} {' and '.join(said)}", hint=f"its parameters: {' '.join('--' + k for k in wanted)}")
    return Blend(**given) if name == "blend" else closed_form(name, **given)


def parse_param(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        if not (equals and name):
            raise ValueError
        return name, float(value)
    except ValueError:
        raise BadInput(
            f"--param '{text}' is not NAME=NUMBER", hint="for example: --param a=2 --param scale=50"
        ) from None


def build_process(name: str, options: dict[str, Any]) -> Process:
    from windfall.timeouts.process import Process

    law = build_law(name, options)
    return Process(law, options["rho"], options["run_s"], options["submit_cost_s"])


@timeout.command()
@click.argument("name")
@law_options
@rho_option
@click.option("--quantile", type=float, help="Minimise this quantile (0.95) instead of the mean.")
@click.option(
    "--max-resubmissions", type=int, help="Resubmissions at most; then a timeout per submission.  [default: no limit]"
)
@click.option("--give-up-s", type=float, help="With --max-resubmissions: cost when the last submission fails too.")
def law(name: str, as_json: bool, **options: Any) -> None:
    """The best timeout of a known law of latency.

    NAME is uniform (--a --b), gaussian (--mu --sigma), exponential (--rate), lognormal (--mu --sigma), pareto (--a
    --nu), weibull (--shape --scale), blend (--mu --sigma --a --nu --k --tmin --tmax; without any: like EGEE), or
    scipy:NAME with --param.

    \b
    windfall timeout law lognormal --mu 5 --sigma 1.2 --rho 0.02
    windfall timeout law pareto --a 100 --nu 1.5 --submit-cost-s 20 --json
    windfall timeout law scipy:gamma --param a=2 --param scale=50 --rho 0.01

    kind says what the best timeout is: finite; zero (resubmit at once); any (it makes no difference); none (wait for
    ever; timeout_s is null). no_timeout_s and speedup are null where waiting for ever takes infinitely long.
    """
    from windfall.timeouts.best import best_limited, best_timeout

    process = build_process(name, options)
    if options["max_resubmissions"] is not None:
        if options["quantile"] is not None:
            raise BadInput("--quantile and --max-resubmissions cannot be combined")
        limited = best_limited(process, options["max_resubmissions"], options["give_up_s"])
        unlimited = best_timeout(process)
        no_timeout_s = unlimited.no_timeout_s
        document = {
            "timeout_s": limited.timeouts_s[0],
            "expected_s": limited.expected_s,
            "no_timeout_s": no_timeout_s,
            "speedup": no_timeout_s / limited.expected_s if no_timeout_s and limited.expected_s else None,
            "kind": limited.kind,
            "timeouts_s": limited.timeouts_s,
            "succeeds": limited.succeeds,
            "unlimited_s": unlimited.expected_s,
            **describe_process(name, process),
        }
        show(document, as_json, lambda: print_limited(document))
        return
    if options["give_up_s"] is not None:
        raise BadInput("--give-up-s only makes sense with --max-resubmissions")
    best = best_timeout(process, options["quantile"])
    document = best_document(best) | describe_process(name, process) | {"objective": objective(options["quantile"])}
    show(document, as_json, lambda: print_best(document))


def objective(quantile: float | None) -> str:
    return "mean" if quantile is None else f"quantile {quantile:g}"


def describe_process(name: str, process: Process) -> dict[str, Any]:
    return {
        "law": name,
        "params": process.law.params(),
        "rho": process.rho,
        "run_s": process.run_s,
        "submit_cost_s": process.submit_cost_s,
    }


def best_document(best: Best) -> dict[str, Any]:
    """The five contract fields first, then what explains them."""
    everything: dict[str, Any] = msgspec.to_builtins(best)
    return {name: everything.pop(name) for name in FIVE} | everything


def show(document: dict[str, Any], as_json: bool, text: Callable[[], None]) -> None:
    if as_json:
        click.echo(json.dumps(jsonable(document), allow_nan=False))
    else:
        text()


def jsonable(value: Any) -> Any:
    """JSON has neither infinity nor NaN: both become null."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def seconds(value: float | None, none: str = "infinite") -> str:
    """A time as every command shows it; `none` for one that never comes."""
    if value is None or not math.isfinite(value):
        return none
    return show_duration(value, fine=True)


ADVICE = {
    "finite": "give up after {timeout} and submit again",
    "zero": "give up at once and submit again (timeout 0)",
    "any": "any timeout: it makes no difference",
    "none": "set no timeout",
}


def line(label: str, text: str) -> None:
    click.echo(f"  {label:<16} {text}")


def print_best(document: dict[str, Any]) -> None:
    """What a person sees: the advice, what it brings, and what missing it costs."""
    kind = document["kind"]
    click.echo(ADVICE[kind].format(timeout=seconds(document["timeout_s"])))
    what = "expected time" if document.get("objective", "mean") == "mean" else document["objective"]
    gain = f", {document['speedup']:.3f} times as fast" if document["speedup"] else ""
    line(what, f"{seconds(document['expected_s'])}   (no timeout: {seconds(document['no_timeout_s'])}{gain})")
    if document.get("sd_s") is not None:
        line("spread", f"deviation {seconds(document['sd_s'])}, 95 of 100 within {seconds(document['p95_s'])}")
    if kind == "finite" and document.get("range_s"):
        low, high = document["range_s"]
        reach = f"from {seconds(low)} to {seconds(high, 'any longer one')}"
        line("within 1 %", f"{reach}; {document['submissions']:.3g} submissions a job")
        line("missing it", f"half the timeout: {seconds(document['half_s'])}; twice: {seconds(document['double_s'])}")
    for note in document.get("notes", ()):
        click.echo(f"  note: {note}")


def print_limited(document: dict[str, Any]) -> None:
    waits = ", ".join(seconds(t, "no timeout") for t in document["timeouts_s"])
    click.echo(f"timeouts, submission by submission: {waits}")
    line("expected time", f"{seconds(document['expected_s'])}   (unlimited: {seconds(document['unlimited_s'])})")
    line("comes back", f"{document['succeeds']:.6g} of the jobs")


# --- fit


@timeout.command()
@click.argument("file", type=click.Path())
@click.option("--column", help="CSV: the column of latencies. SWF: wait (default) or run.")
@click.option("--censored", help="CSV: column that marks jobs still waiting or killed (1/0, true/false).")
@click.option("--pool", help="CSV: column with the pool (site, queue) of each job.")
@click.option("--submitted", help="CSV: column with the time of submission, in seconds.")
@click.option("--outlier-after-s", type=float, help="Jobs slower than this count as lost (the paper: 10000).")
@click.option("--quantile", type=float, help="Minimise this quantile (0.95) instead of the mean.")
@click.option("--plot", callback=plot_file, metavar="FILE", help="Draw the latencies, the laws and the curve.")
@process_options
def fit(file: str, as_json: bool, run_s: float, submit_cost_s: float, **options: Any) -> None:
    """Learn the law of latencies from FILE, and the timeout it advises.

    FILE is CSV, one number a line, or a log in Standard Workload Format (.swf); .gz of each. Jobs that still wait or
    were killed belong in it too, marked in a --censored column: leaving them out makes the grid look faster than it is.

    \b
    windfall timeout fit latencies.csv --censored still_waiting
    windfall timeout fit KTH-SP2.swf.gz --submit-cost-s 60 --json

    The advice comes from the sample itself (Kaplan-Meier), not from a fitted law. Where neighbouring jobs wait alike,
    resubmission does not draw a new latency; then the log is replayed instead, and the warnings say so.
    """
    from windfall.cli.timeout.files import Columns, read_latencies

    columns = Columns(options["column"], options["censored"], options["pool"], options["submitted"])
    latencies = read_latencies(file, columns)
    file = shown(file)
    with working(f"learning from {len(latencies.observations.values):,} latencies"):
        report = analyse_file(file, latencies, run_s, submit_cost_s, options)
    document = fit_document(report) | {
        "objective": objective(options["quantile"]),
        "file": file,
        "column": latencies.what,
        "skipped": latencies.skipped,
        "run_s": run_s,
        "submit_cost_s": submit_cost_s,
    }
    if options["plot"]:
        from windfall.figures.saved import save
        from windfall.figures.timeouts import fit_picture

        document["plot"] = str(save(fit_picture(report, run_s, submit_cost_s), options["plot"]))
    show(document, as_json, lambda: print_fit(document))


def analyse_file(file: str, latencies: Any, run_s: float, submit_cost_s: float, options: dict[str, Any]) -> Report:
    from windfall.timeouts.fitting.report import analyse

    try:
        return analyse(latencies.observations, run_s, submit_cost_s, options["quantile"], options["outlier_after_s"])
    except BadInput as error:
        raise BadInput(f"{file}: {error.message}", hint=error.hint) from None


def working(what: str) -> Any:
    """A spinner on a terminal, silence in a pipe."""
    return console().status(what)


def fit_document(report: Report) -> dict[str, Any]:
    sample = report.sample
    return best_document(report.best) | {
        "basis": report.basis,
        "samples": sample.count,
        "came_back": sample.came_back,
        "censored": sample.cut_short,
        "mean_s": sample.mean(),
        "deviation_s": sample.deviation(),
        "rho": report.rho.value,
        "rho_interval": [report.rho.low, report.rho.high],
        "law": law_document(report.laws[0]) if report.laws else None,
        "laws": [law_document(answer) for answer in report.laws],
        "formula": {key: value for key, value in best_document(report.formula).items() if key in FIVE},
        "warnings": msgspec.to_builtins(report.warnings),
        "groups": [group_document(group) for group in report.conditioned.groups] if report.conditioned else [],
        "replay": msgspec.to_builtins(report.conditioned.replay) if report.conditioned else None,
    }


def law_document(answer: Any) -> dict[str, Any]:
    found = answer.fit
    return {
        "name": found.law.name,
        "params": found.law.params(),
        "rho": found.rho,
        "log_likelihood": found.log_likelihood,
        "aic": found.aic,
        "ks": found.ks,
        "ks_n": found.ks_n,
        "p_value": found.p_value,
        "kind": answer.best.kind,
        "timeout_s": answer.best.timeout_s,
        "expected_s": answer.best.expected_s,
    }


def group_document(group: Any) -> dict[str, Any]:
    return {
        "pool": group.pool,
        "load": group.load,
        "jobs": group.count,
        "zero_share": group.zero_share,
        "neighbours": group.neighbours,
        "kind": group.best.kind,
        "timeout_s": group.best.timeout_s,
        "expected_s": group.best.expected_s,
        "no_timeout_s": group.best.no_timeout_s,
    }


def print_fit(document: dict[str, Any]) -> None:
    print_best(document)
    low, high = document["rho_interval"]
    line("seen", f"{document['came_back']:,} came back, {document['censored']:,} cut short; "
         f"mean {seconds(document['mean_s'])}, deviation {seconds(document['deviation_s'])}")  # fmt: skip
    if document["skipped"]:
        line("left out", f"{plural(document['skipped'], 'row')} without a latency")
    line("lost (rho)", f"{document['rho']:.2%}, between {low:.2%} and {high:.2%}")
    if document["law"]:
        click.echo("  law          likelihood (AIC)   KS D_n   p        its timeout")
        for law in document["laws"]:
            click.echo(
                f"  {law['name']:<12} {law['aic']:>16,.1f} {law['ks']:>8.2f}   {law['p_value']:<8.2g} "
                + (seconds(law["timeout_s"]) if law["kind"] == "finite" else law["kind"])
            )
    if document["groups"]:
        click.echo("  taken by themselves (a timeout holds only where neighbours do not wait alike):")
        for group in sorted(document["groups"], key=lambda g: -g["jobs"])[:8]:
            told = ", ".join(part for part in (group["pool"], group["load"]) if part)
            best = seconds(group["timeout_s"]) if group["kind"] == "finite" else group["kind"]
            click.echo(
                f"    {told:<44} {group['jobs']:>7,} jobs  neighbours {group['neighbours']:+.2f}  timeout {best}"
            )
    for warning in document["warnings"]:
        click.echo(f"  warning: {warning['text']}")


# --- curve and strategy


@timeout.command()
@click.argument("name")
@law_options
@rho_option
@click.option("--from-s", type=float, help="First timeout.")
@click.option("--to-s", type=float, help="Last timeout.")
@click.option("--points", type=click.IntRange(2, 100_000), default=50, show_default=True, help="How many timeouts.")
@click.option("--plot", callback=plot_file, metavar="FILE", help="Draw the curve.")
def curve(name: str, as_json: bool, **options: Any) -> None:
    """Expected time, deviation and 95 % quantile against the timeout, for a law as in `windfall timeout law`.

    \b
    windfall timeout curve lognormal --mu 5 --sigma 1.2 --rho 0.02 --to-s 1000
    windfall timeout curve pareto --a 100 --nu 1.5 --submit-cost-s 20 --plot curve.png
    """
    import numpy as np

    from windfall.timeouts.best import best_timeout

    process = build_process(name, options)
    best = best_timeout(process)
    low, high = curve_range(process, best, options["from_s"], options["to_s"])
    timeouts = np.geomspace(low, high, options["points"])
    waits = timeouts - process.run_s
    expected, spread = process.expected(waits), np.sqrt(process.variance(waits))
    tail = np.atleast_1d(process.quantile(0.95, waits))
    points = [
        {"timeout_s": t, "expected_s": e, "sd_s": s, "p95_s": p}
        for t, e, s, p in zip(timeouts.tolist(), expected.tolist(), spread.tolist(), tail.tolist(), strict=True)
    ]
    document = best_document(best) | describe_process(name, process) | {"points": points}
    if options["plot"]:
        from windfall.figures.saved import save
        from windfall.figures.timeouts import curve_picture

        document["plot"] = str(save(curve_picture(process, best, timeouts), options["plot"]))
    show(document, as_json, lambda: print_curve(document))


def curve_range(process: Process, best: Best, low: float | None, high: float | None) -> tuple[float, float]:
    law, run = process.law, process.run_s
    if low is None:
        low = run + max(float(law.ppf(0.02)), 1e-3 * float(law.ppf(0.5)))
    if high is None:
        high = max(float(law.ppf(0.98)) + run, 3 * (best.timeout_s or 0.0), 2 * low)
    if not (math.isfinite(low) and math.isfinite(high) and run < low < high):
        raise BadInput(
            f"the timeouts must run from above the run time ({run:g} s) upwards, not from {low:g} to {high:g}"
        )
    return low, high


def print_curve(document: dict[str, Any]) -> None:
    print_best(document)
    click.echo("  timeout          expected         deviation        95 % within")
    for point in document["points"]:
        cells = (point[key] for key in ("timeout_s", "expected_s", "sd_s", "p95_s"))
        click.echo("  " + " ".join(f"{seconds(cell):<16}" for cell in cells).rstrip())


@timeout.command()
@click.argument("name")
@law_options
@rho_option
@click.option("--most-copies", type=click.IntRange(1, 8), default=3, show_default=True, help="Copies alive at a time.")
def strategy(name: str, as_json: bool, **options: Any) -> None:
    """Resubmit, submit several at once, or submit another before giving up: which is worth its price.

    The price of a job is --submit-cost-s: how many seconds of waiting one more job is worth.

    \b
    windfall timeout strategy lognormal --mu 5 --sigma 1.2 --rho 0.02 --submit-cost-s 30
    """
    from windfall.timeouts.strategies import best_strategies

    process = build_process(name, options)
    found = msgspec.to_builtins(best_strategies(process, options["most_copies"]))
    document = {"best": found[0], "strategies": found, **describe_process(name, process)}
    show(document, as_json, lambda: print_strategies(document))


def print_strategies(document: dict[str, Any]) -> None:
    click.echo("  strategy        copies  every            give up after    expected         jobs   score")
    for one in document["strategies"]:
        every, after = (seconds(one[key], "never") for key in ("every_s", "timeout_s"))
        click.echo(
            f"  {one['name']:<15} {one['copies']:>6}  {every:<16} {after:<16} {seconds(one['expected_s']):<16} "
            f"{one['jobs']:<6.3g} {seconds(one['score_s'])}"
        )
    click.echo(f"  score = expected time + {document['submit_cost_s']:g} s for each job; the best is first")


timeout.add_command(show_learned, "show")
