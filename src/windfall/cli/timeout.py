"""`windfall timeout`: when to give a silent job up. A thin layer over the pure package `windfall.timeouts`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.timeouts import Best, Law, Process

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


def build_law(name: str, options: dict[str, Any]) -> Law:
    """The law a command line describes; names what is missing, foreign or malformed."""
    from windfall.timeouts import EGEE_LIKE, Blend, ScipyLaw, closed_form

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
    from windfall.timeouts import Process

    law = build_law(name, options)
    return Process(law, options["rho"], options["run_s"], options["submit_cost_s"])


@timeout.command()
@click.argument("name")
@law_options
@rho_option
@click.option("--quantile", type=float, help="Minimise this quantile (0.95) instead of the mean.")
@click.option("--max-resubmissions", type=int, help="At most so many resubmissions; then a timeout per submission.")
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
    from windfall.timeouts import best_limited, best_timeout

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
    names = ("timeout_s", "expected_s", "no_timeout_s", "speedup", "kind")
    everything = msgspec.to_builtins(best)
    return {name: everything.pop(name) for name in names} | everything


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
    if value is None or not math.isfinite(value):
        return none
    return f"{value:,.0f} s" if abs(value) >= 1000 else f"{value:.4g} s"


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
