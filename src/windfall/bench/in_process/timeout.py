"""`windfall bench timeout`: the best timeout of a million samples, and one online update, beside their floors.

The first has a floor (one pass over the data, a sum) and a peer (the plain method, which sorts); the floor of the
second is an empty method call. Touches: the clock, the terminal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import click
import numpy as np

from windfall.timeouts.fitting.sample import make_sample, survival
from windfall.timeouts.laws.empirical import empirical_process
from windfall.timeouts.laws.steps import choose
from windfall.timeouts.learning.online import Sketch

GOAL_MS, GOAL_US = 50.0, 20.0


def best_ms(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Minimum and median of several rounds, because the machine may be shared."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1e3)
    return min(taken), float(np.median(taken))


def sorted_way(values: np.ndarray) -> float:
    """Equation 6 at every value, after sorting: the plain method."""
    ordered = np.sort(values)
    count = len(ordered)
    back = np.arange(1, count + 1) / count
    expected = (np.cumsum(ordered) / count + ordered * (1 - back)) / back
    return float(ordered[int(np.argmin(expected))])


class Nothing:
    def observe(self, latency_s: float) -> None:
        pass


def update_us(sketch: Sketch | Nothing, values: list[float]) -> float:
    start = time.perf_counter()
    for value in values:
        sketch.observe(value)
    return (time.perf_counter() - start) / len(values) * 1e6


def slowest_us(values: list[float]) -> float:
    """The 99.9 % quantile of the time of an update (slower ones were interrupted by other work)."""
    sketch, taken = Sketch(), np.empty(len(values))
    for index, value in enumerate(values):
        start = time.perf_counter()
        sketch.observe(value)
        taken[index] = time.perf_counter() - start
    return float(np.quantile(taken, 0.999)) * 1e6


@click.command()
@click.option("--samples", type=click.IntRange(1000), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(samples: int, rounds: int, as_json: bool) -> None:
    """Best timeout of a million samples (goal: 50 ms) and one online update (goal: 20 microseconds)."""
    values = np.random.default_rng(1).lognormal(5, 1.2, samples)
    latencies = values[: min(samples, 100_000)].tolist()
    whole = best_ms(lambda: choose(survival(make_sample(values)), 0.0), rounds)
    taught = Sketch()
    update_us(taught, latencies)
    chosen = choose(survival(make_sample(values)), 0.0).wait_s
    plain = sorted_way(values)
    process = empirical_process(survival(make_sample(values)))
    document = {
        "samples": samples,
        "best_timeout_ms": whole[0],
        "best_timeout_median_ms": whole[1],
        "goal_ms": GOAL_MS,
        "peer_sorting_ms": best_ms(lambda: sorted_way(values), rounds)[0],
        "floor_one_pass_ms": best_ms(lambda: float(values.sum()), rounds)[0],
        "timeout_s": chosen,
        "peer_timeout_s": plain,
        "expected_s": float(process.expected(chosen)),
        "peer_expected_s": float(process.expected(plain)),
        "update_us": min(update_us(Sketch(), latencies) for _ in range(3)),
        "update_999_us": slowest_us(latencies),
        "goal_us": GOAL_US,
        "floor_call_us": min(update_us(Nothing(), latencies) for _ in range(3)),
        "decision_ms": best_ms(lambda: taught.best_timeout(prior_s=3600.0), 20)[0],
    }
    document["met"] = document["best_timeout_ms"] <= GOAL_MS and document["update_us"] <= GOAL_US
    if as_json:
        click.echo(json.dumps(document))
        return
    click.echo(
        f"best timeout of {samples:,} samples   {whole[0]:7.1f} ms (median {whole[1]:.1f}; goal {GOAL_MS:.0f})   "
        f"sorting first {document['peer_sorting_ms']:.1f} ms, one pass over them {document['floor_one_pass_ms']:.1f} ms"
    )
    click.echo(
        f"one online update                   {document['update_us']:7.2f} us (99.9 % under "
        f"{document['update_999_us']:.0f} us; goal {GOAL_US:.0f})   an empty call {document['floor_call_us']:.2f} us"
    )
    click.echo(f"one decision of the sketch          {document['decision_ms']:7.2f} ms")
    click.echo("goals met" if document["met"] else "goals NOT met")
