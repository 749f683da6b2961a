"""What the timeout costs that a new pool gets after its first attempts, on pools that no setting has seen. Pure.

`windfall lab timeouts --only first-fifty` prints it: each pool, beside a learner that knows the family of its law, and
the mean over all pools.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from windfall.lab.timeouts.known_law import error_of, informed_losses
from windfall.lab.timeouts.learning import Pool, best_fixed, learned_wait
from windfall.lab.timeouts.markdown import table
from windfall.timeouts.arrays import Array
from windfall.timeouts.best import best_timeout
from windfall.timeouts.laws.numeric import ScipyLaw
from windfall.timeouts.process import Process

FIRST_SEED = 950_000
"""The first seed of the runs; each pool has seeds of its own, so that their errors are independent."""

# No setting of the learner was chosen on these laws.
NO_FITTED_LAW = {
    "gamma, 4 % lost, 15 s a submission": Pool(
        Process(ScipyLaw("gamma", (("a", 0.6), ("scale", 200.0))), 0.04, submit_cost_s=15)
    ),
    "Burr, 3 % lost, 10 s a submission": Pool(
        Process(ScipyLaw("burr12", (("c", 2.2), ("d", 0.6), ("scale", 90.0))), 0.03, submit_cost_s=10)
    ),
    "Fréchet with a run of 30 s, 5 % lost": Pool(
        Process(ScipyLaw("invweibull", (("c", 1.3), ("scale", 60.0))), 0.05, run_s=30)
    ),
    "Birnbaum-Saunders, 6 % lost": Pool(Process(ScipyLaw("fatiguelife", (("c", 1.8), ("scale", 100.0))), 0.06)),
    "half-Cauchy, 2 % lost, 20 s a submission": Pool(
        Process(ScipyLaw("halfcauchy", (("scale", 80.0),)), 0.02, submit_cost_s=20)
    ),
    "log-Laplace, 4 % lost, 10 s a submission": Pool(
        Process(ScipyLaw("loglaplace", (("c", 1.6), ("scale", 150.0))), 0.04, submit_cost_s=10)
    ),
}

# As above, and chosen after the weights of the fitted laws were: no setting of the learner has seen them.
SEEN_BY_NO_SETTING = {
    "Burr III, 4 % lost, 10 s a submission": Pool(
        Process(ScipyLaw("burr", (("c", 1.6), ("d", 0.8), ("scale", 100.0))), 0.04, submit_cost_s=10)
    ),
    "shifted inverse Gaussian, 3 % lost, 5 s a submission": Pool(
        Process(ScipyLaw("invgauss", (("mu", 1.5), ("loc", 20.0), ("scale", 80.0))), 0.03, submit_cost_s=5)
    ),
    "beta prime, 5 % lost, 10 s a submission": Pool(
        Process(ScipyLaw("betaprime", (("a", 2.0), ("b", 1.8), ("scale", 80.0))), 0.05, submit_cost_s=10)
    ),
    "generalised Pareto, 4 % lost, 10 s a submission": Pool(
        Process(ScipyLaw("genpareto", (("c", 0.5), ("scale", 80.0))), 0.04, submit_cost_s=10)
    ),
    "Nakagami, 6 % lost, 15 s a submission": Pool(
        Process(ScipyLaw("nakagami", (("nu", 0.7), ("scale", 150.0))), 0.06, submit_cost_s=15)
    ),
}


FITTED_BY_NOW = ("Fréchet",)
"""Held-back laws that have become one of the fitted shapes: told, and left out of the mean."""


class Losses(Struct, frozen=True):
    """By how much a job takes longer than with the best timeout (0.02 is 2 %), run by run."""

    waits_s: Array
    learner: Array
    knows_the_family: Array


def losses(pool: Pool, attempts: int, seeds: int, first_seed: int) -> Losses:
    """The learner and one that knows the family of the law, both with the draws of the same seeds."""
    waits_s = np.array([learned_wait(pool, attempts, first_seed + run) for run in range(seeds)])
    loss = np.asarray(pool.process.expected(waits_s)) / best_timeout(pool.process).expected_s - 1
    return Losses(waits_s, loss, informed_losses(pool, attempts, seeds, first_seed))


def mean_over_pools(means: list[float], errors: list[float]) -> tuple[float, float]:
    """The mean of independent means, and its standard error."""
    return sum(means) / len(means), math.sqrt(sum(error**2 for error in errors)) / len(errors)


def first_fifty(seeds: int, attempts: int = 50, first_seed: int = FIRST_SEED) -> tuple[Any, str]:
    """The losses of each pool, and their mean over the pools whose law has none of the fitted shapes."""
    rows, found = [], []
    for place, (name, pool) in enumerate((NO_FITTED_LAW | SEEN_BY_NO_SETTING).items()):
        of = losses(pool, attempts, seeds, first_seed + place * seeds)
        found.append(_summary(name, of))
        rows.append(_row(found[-1], best_fixed(pool) - pool.process.run_s, of.waits_s))
    counted = [row for row in found if not row["fitted"]]
    mean, error = mean_over_pools([row["loss"] for row in counted], [row["loss_error"] for row in counted])
    bound, bound_error = mean_over_pools(
        [row["informed_loss"] for row in counted], [row["informed_error"] for row in counted]
    )
    head = ["pool", "best wait", f"after {attempts} attempts (8 of 10 runs)", "mean loss", "median loss",
            "9 of 10 runs lose less than", "mean loss of a learner that knows the family"]  # fmt: skip
    title = f"mean of the {len(counted)} pools whose law has none of the fitted shapes"
    rows.append([title, "", "", _with_error(mean, error), "", "", _with_error(bound, bound_error)])
    text = (
        f"## After {attempts} attempts\n\nThe timeout that a new pool gets after {attempts} attempts, {seeds} runs of "
        f"each pool (seeds from {first_seed}), and by how much a job takes longer with it than with the best. No "
        "setting was chosen on these laws. The last column is what nobody can be expected to avoid: the loss of a "
        "learner that knows the family of the law and its parameters within a factor of four, and weighs them by the "
        "same attempts (Bayes).\n\n" + table(head, rows)
    )
    document = {"pools": found, "mean_loss": mean, "mean_loss_error": error, "mean_informed_loss": bound,
                "mean_informed_error": bound_error, "seeds": seeds, "first_seed": first_seed}  # fmt: skip
    return document, text


def _summary(name: str, of: Losses) -> dict[str, Any]:
    return {
        "pool": name,
        "fitted": name.startswith(FITTED_BY_NOW),
        "loss": float(of.learner.mean()),
        "loss_error": error_of(of.learner),
        "loss_median": float(np.median(of.learner)),
        "loss_90": float(np.quantile(of.learner, 0.9)),
        "informed_loss": float(of.knows_the_family.mean()),
        "informed_error": error_of(of.knows_the_family),
    }


def _row(found: dict[str, Any], best_s: float, waits_s: Array) -> list[str]:
    low, high = np.quantile(waits_s, [0.1, 0.9])
    return [
        found["pool"] + (" (a fitted shape)" if found["fitted"] else ""),
        f"{best_s:.1f} s",
        f"{low:.1f} to {high:.1f} s",
        _with_error(found["loss"], found["loss_error"]),
        f"{found['loss_median']:.1%}",
        f"{found['loss_90']:.1%}",
        _with_error(found["informed_loss"], found["informed_error"]),
    ]


def _with_error(share: float, error: float) -> str:
    return f"{100 * share:.2f} ± {100 * error:.2f} %"
