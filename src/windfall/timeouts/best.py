"""The best timeout of a resubmission process, for the mean or for a quantile, and what missing it costs. Pure.

E_J falls where hazard x E_J > 1 and rises where it is below 1, and psi = hazard x (A + overhead) - G moves as the
hazard does (its derivative is hazard' x (A + overhead)). Hence, for every law:

    hazard rising            -> wait for ever (kind "none")
    hazard constant          -> any timeout when an attempt costs nothing (kind "any"), else "none"
    hazard falling           -> give up at once when an attempt costs nothing (kind "zero"), else one root of psi
    hazard rising, falling   -> one root of psi after the peak (kind "finite")

This settles what the paper leaves open: a log-normal latency has a finite best timeout for every sigma, not only above
0.9311 (which is merely where waiting e^mu already beats waiting for ever).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from scipy import optimize

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array
from windfall.timeouts.process import Process, check_quantile

Kind = Literal["finite", "any", "none", "zero"]
Score = Callable[[Array], Array]

# Two expectations closer than this are the same number to a search on double precision.
SAME = 1e-9


class Best(Struct, frozen=True):
    """The best timeout and its effect, in seconds. None stands for no timeout and for infinite times."""

    kind: Kind
    timeout_s: float | None
    expected_s: float
    no_timeout_s: float | None
    speedup: float | None
    sd_s: float | None = None
    p95_s: float | None = None
    submissions: float | None = None
    range_s: tuple[float, float | None] | None = None
    half_s: float | None = None
    double_s: float | None = None
    notes: tuple[str, ...] = ()


def finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def best_timeout(process: Process, quantile: float | None = None) -> Best:
    """The timeout that minimises the expected time of a job, or the given quantile of it."""
    if quantile is None:
        kind, wait_s = _best_mean(process)
        score = float(process.expected(wait_s)) if kind == "finite" else math.nan
        none_s, zero_s = process.expected_without(), process.expected_at_zero()
    else:
        check_quantile(quantile)
        kind, wait_s = _best_quantile(process, quantile)
        score = float(process.quantile(quantile, wait_s)) if kind == "finite" else math.nan
        none_s, zero_s = float(process.quantile(quantile, math.inf)), process.quantile_at_zero(quantile)
    value = {"finite": score, "zero": zero_s}.get(kind, none_s)
    return describe(process, kind, wait_s, value, none_s, quantile)


def describe(process: Process, kind: Kind, wait_s: float, value: float, none_s: float, quantile: float | None) -> Best:
    speedup = none_s / value if math.isfinite(none_s) and value > 0 else None
    common: dict[str, Any] = {
        "expected_s": value,
        "no_timeout_s": finite(none_s),
        "speedup": speedup,
        "notes": _notes(process, kind, value, none_s, quantile),
    }
    if kind == "finite":
        score = scorer(process, quantile)
        low, high = _good_range(score, wait_s, value)
        run = process.run_s
        return Best(
            kind=kind,
            timeout_s=wait_s + run,
            sd_s=finite(math.sqrt(float(process.variance(wait_s)))),
            p95_s=finite(float(process.quantile(0.95, wait_s))),
            submissions=finite(float(process.submissions(wait_s))),
            range_s=(low + run, high + run if math.isfinite(high) else None),
            half_s=finite(float(score(np.array([wait_s / 2]))[0])),
            double_s=finite(float(score(np.array([wait_s * 2]))[0])),
            **common,
        )
    if kind == "zero":
        return _at_once(process, common)
    spread = finite(math.sqrt(float(process.variance(math.inf)))) if process.rho == 0 else None
    return Best(
        kind=kind,
        timeout_s=None,
        sd_s=spread,
        p95_s=finite(float(process.quantile(0.95, math.inf))),
        submissions=1.0 if process.rho == 0 else None,
        **common,
    )


def _at_once(process: Process, common: dict[str, Any]) -> Best:
    """A timeout of 0. On a law with a mass at 0 it takes only what starts at once; elsewhere it is a limit, in which J
    becomes exponential, so that its deviation is its mean."""
    share = float(process.success(0.0))
    if share == 0:
        rate_s = process.expected_at_zero()
        return Best(kind="zero", timeout_s=0.0, sd_s=rate_s, p95_s=process.quantile_at_zero(0.95), **common)
    return Best(
        kind="finite" if process.run_s > 0 else "zero",
        timeout_s=process.run_s,
        sd_s=finite(math.sqrt(float(process.variance(0.0)))),
        p95_s=finite(float(process.quantile(0.95, 0.0))),
        submissions=1 / share,
        **common,
    )


def _notes(process: Process, kind: Kind, value: float, none_s: float, quantile: float | None) -> tuple[str, ...]:
    notes = []
    if kind == "none" and math.isfinite(process.law.upper()) and process.rho == 0:
        top = process.law.upper() + process.run_s
        notes.append(f"no job takes longer than {top:g} s, so any timeout from there on is as good as none")
    if kind == "zero" and float(process.success(0.0)) > 0:
        notes.append("a share of these jobs starts at once, so resubmitting until one does looks cheap; it seldom is")
    elif kind == "zero":
        notes.append("resubmitting at once is best only while a submission costs nothing; give --submit-cost-s")
    if kind == "finite" and process.rho == 0 and math.isfinite(none_s) and none_s <= value * (1 + 1e-6):
        notes.append("the gain over no timeout is below one in a million: none is as good in practice")
    if math.isinf(none_s):
        why = "a share of the jobs never comes back" if process.rho else "the latency has no finite mean"
        if quantile is not None:
            why = "fewer than that share of the jobs ever comes back"
        notes.append(f"without a timeout the expected time is infinite ({why}); no_timeout_s and speedup are null")
    return tuple(notes)


def _best_mean(process: Process) -> tuple[Kind, float]:
    shape, costly = process.law.shape(process.rho), process.overhead_s > 0
    if shape == "increasing" or (shape == "constant" and costly):
        return "none", math.inf
    if shape == "constant":
        return "any", math.inf
    if shape == "decreasing" and not costly:
        return "zero", 0.0
    if shape == "step":
        return "finite", process.law.upper()
    if shape == "unknown":
        return _search(process, None)
    root = _root(process)
    if math.isinf(root):
        # A hazard that hardly falls: E_J never stops falling within the range of numbers.
        return "none", math.inf
    return ("finite", root) if root > 0 else ("zero", 0.0)


def _falls(process: Process, wait_s: float) -> bool:
    """Whether E_J still falls at this timeout: hazard x E_J > 1. Where nothing comes back yet, it does."""
    if float(process.success(wait_s)) <= 0:
        return True
    return float(process.log_hazard(wait_s)) + math.log(float(process.expected(wait_s))) > 0


def _root(process: Process) -> float:
    """The one timeout where E_J stops falling, by bisection on its logarithm; 0 or inf beyond all numbers."""
    low = high = float(process.law.ppf(0.5))
    while _falls(process, high):
        low, high = high, high * 4
        if high > 1e300:
            return math.inf
    while not _falls(process, low):
        low, high = low / 4, low
        if low < 1e-290:
            return 0.0
    for _ in range(200):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (middle, high) if _falls(process, middle) else (low, middle)
    return high


def scorer(process: Process, quantile: float | None) -> Score:
    """The criterion of a timeout: the expected time of a job, or a quantile of it."""
    if quantile is None:
        return process.expected
    return lambda wait_s: np.atleast_1d(process.quantile(quantile, wait_s))


def search_grid(process: Process) -> Array:
    """Timeouts to try: dense in probability and in the logarithm of time."""
    law = process.law
    steps = law.candidates()
    if steps is not None:
        return steps
    tails = np.geomspace(1e-9, 0.5, 700)
    points = np.concatenate([law.ppf(tails), law.ppf(1 - tails)])
    points = points[np.isfinite(points) & (points > 0)]
    return np.unique(np.concatenate([points, np.geomspace(points.min(), points.max(), 1500)]))


def _search(process: Process, quantile: float | None) -> tuple[Kind, float]:
    """Without a closed form: the best of a dense grid, refined, compared with both ends."""
    score, grid = scorer(process, quantile), search_grid(process)
    values = np.atleast_1d(score(grid))
    index = int(np.argmin(values))
    wait_s, value = float(grid[index]), float(values[index])
    if process.law.candidates() is None:
        wait_s, value = _refine(score, grid, index, value)
    none_s = process.expected_without() if quantile is None else float(process.quantile(quantile, math.inf))
    zero_s = process.expected_at_zero() if quantile is None else process.quantile_at_zero(quantile)
    if none_s <= value * (1 + SAME):
        flat = math.isfinite(zero_s) and np.ptp(values[values < np.inf]) <= SAME * value
        return ("any" if flat and abs(zero_s - none_s) <= SAME * none_s else "none"), math.inf
    if zero_s <= value * (1 + SAME):
        return "zero", 0.0
    return "finite", wait_s


def _refine(score: Score, grid: Array, index: int, value: float) -> tuple[float, float]:
    low, high = grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(
        lambda t: float(np.atleast_1d(score(np.array([t])))[0]),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9 * high},
    )
    return (float(found.x), float(found.fun)) if found.fun < value else (float(grid[index]), value)


def _best_quantile(process: Process, quantile: float) -> tuple[Kind, float]:
    # A hazard that only rises, stays or falls orders J for every quantile alike, not only for the mean.
    shape, costly = process.law.shape(process.rho), process.overhead_s > 0
    if shape == "increasing" or (shape == "constant" and costly):
        return "none", math.inf
    if shape == "constant":
        return "any", math.inf
    if shape == "decreasing" and not costly:
        return "zero", 0.0
    kind, wait_s = _search(process, quantile)
    if kind == "none" and process.rho > 0:
        # Any timeout past this quantile of R leaves it alone, but none at all would make the mean infinite.
        enough_s = float(process.law.ppf(quantile / (1 - process.rho)))
        return "finite", max(enough_s, _best_mean(process)[1])
    return kind, wait_s


def _good_range(score: Score, wait_s: float, value: float) -> tuple[float, float]:
    """The range of timeouts around the best one that cost at most 1 % more."""

    def outer(factor: float) -> float:
        near, far = wait_s, wait_s * factor
        while float(np.atleast_1d(score(np.array([far])))[0]) <= value * 1.01:
            near, far = far, far * factor
            if not 1e-9 < far / wait_s < 1e9:
                return math.inf if factor > 1 else 0.0
        for _ in range(30):
            middle = (near + far) / 2
            good = float(np.atleast_1d(score(np.array([middle])))[0]) <= value * 1.01
            near, far = (middle, far) if good else (near, middle)
        return near

    return outer(0.5), outer(2.0)


class Limited(Struct, frozen=True):
    """The best timeouts for a limited number of submissions: one for each, the last one may be None."""

    kind: Kind
    timeouts_s: tuple[float | None, ...]
    expected_s: float
    succeeds: float


def best_limited(process: Process, resubmissions: int, give_up_s: float | None = None) -> Limited:
    """Backward induction (van Moorsel and Wolter): with V still to pay after a failure, wait while hazard x V > 1.

    `give_up_s` is what it costs, in seconds, when the last submission fails too. None: the last one waits for ever,
    which only ends when nothing is lost (rho = 0).
    """
    if resubmissions < 0:
        raise BadInput(f"the number of resubmissions must be 0 or more, not {resubmissions}")
    if give_up_s is not None and not (math.isfinite(give_up_s) and give_up_s >= 0):
        raise BadInput(f"the cost of giving up must be a finite number of seconds, 0 or more, not {give_up_s:g}")
    if give_up_s is None and math.isinf(process.expected_without()):
        raise BadInput(
            "with a limited number of submissions this job may never end, so its expected time is infinite",
            hint="say what giving it up costs, in seconds: --give-up-s",
        )
    waits: list[float] = []
    to_pay = math.inf if give_up_s is None else give_up_s
    for _ in range(resubmissions + 1):
        wait_s, to_pay = _one_step(process, to_pay)
        waits.append(wait_s)
    waits.reverse()
    missed = math.prod(1 - float(process.success(wait)) for wait in waits)
    timeouts = tuple(wait + process.run_s if math.isfinite(wait) else None for wait in waits)
    kind: Kind = "none" if timeouts[0] is None else ("finite" if waits[0] > 0 else "zero")
    return Limited(kind, timeouts, to_pay, 1 - missed)


def _one_step(process: Process, to_pay: float) -> tuple[float, float]:
    """The best wait of one attempt when a failure then costs `to_pay`, and the expected cost from its start."""
    if math.isinf(to_pay):
        return math.inf, process.expected_without()

    def score(wait: Array) -> Array:
        return process.attempt_mean(wait) + (1 - process.success(wait)) * to_pay

    grid = search_grid(process)
    values = score(grid)
    index = int(np.argmin(values))
    wait_s, value = _refine(score, grid, index, float(values[index]))
    if process.expected_without() <= value * (1 + SAME):
        return math.inf, process.expected_without()
    at_once = process.overhead_s + to_pay
    return (0.0, at_once) if at_once <= value else (wait_s, value)
