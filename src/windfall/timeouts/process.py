"""The resubmission process: submit, wait at most the timeout, cancel, submit again (Timeouts, section 2). Pure.

G = (1 - rho) F is the chance that an attempt has come back; every attempt first pays `overhead_s`, the run time r plus
the cost c of a submission. With A(t) = E[min(R, t)] of the law that includes outliers, equation 6 becomes

    E_J(t) = (A(t) + overhead) / G(t),

the time an attempt takes over the chance that it works: no differences, no special case at either end.
Times called `wait_s` are timeouts on the latency alone; the timeout a person sets is wait_s + run_s (equation 1).
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array, as_array
from windfall.timeouts.laws.closed import LatencyLaw


class Process(Struct, frozen=True):
    """A law of latency, the share rho that never comes back, the run time, and what each submission costs (the first
    included), as seconds spent before the latency starts to count."""

    law: LatencyLaw
    rho: float = 0.0
    run_s: float = 0.0
    submit_cost_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 1:
            raise BadInput(
                f"the outlier ratio rho must be at least 0 and below 1, not {self.rho:g}",
                hint="with rho = 1 no job ever comes back and no timeout helps" if self.rho == 1 else "",
            )
        for what, value in (("run time", self.run_s), ("submission cost", self.submit_cost_s)):
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"the {what} must be a finite number of seconds, 0 or more, not {value:g}")

    @property
    def overhead_s(self) -> float:
        return self.run_s + self.submit_cost_s

    def success(self, wait_s: ArrayLike) -> Array:
        """G: the chance that one attempt comes back in time; 1 - q of equation 1."""
        return (1 - self.rho) * self.law.cdf(wait_s)

    def log_hazard(self, wait_s: ArrayLike) -> Array:
        """Logarithm of the hazard rate: at which rate a job that has waited this long comes back, outliers included."""
        if self.rho == 0:
            return self.law.log_hazard(wait_s)
        with np.errstate(divide="ignore"):
            return (
                math.log1p(-self.rho)
                + self.law.logpdf(wait_s)
                - np.log(self.rho + (1 - self.rho) * self.law.sf(wait_s))
            )

    def attempt_mean(self, wait_s: ArrayLike) -> Array:
        """Expected length of one attempt, whether it works or not, its overhead included."""
        wait = as_array(wait_s)
        outliers = self.rho * wait if self.rho else 0.0
        return (1 - self.rho) * self.law.restricted_mean(wait) + outliers + self.overhead_s

    def expected(self, wait_s: ArrayLike) -> Array:
        """E_J (equation 6): infinite where no attempt can work."""
        wait = as_array(wait_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.attempt_mean(wait) / self.success(wait)
        return np.where(self.success(wait) > 0, value, np.inf)

    def expected_without(self) -> float:
        """E_J without a timeout: E_R when everything comes back (equation 8), infinite otherwise (equation 7)."""
        return math.inf if self.rho else self.law.mean() + self.overhead_s

    def expected_at_zero(self) -> float:
        """Limit of E_J as the timeout goes to 0; its value there where some jobs come back at once."""
        at_once = float(self.success(0.0))
        if at_once > 0:
            return self.overhead_s / at_once
        density = self.law.density_at_zero()
        if self.overhead_s > 0 or density == 0:
            return math.inf
        return 0.0 if math.isinf(density) else 1 / ((1 - self.rho) * density)

    def submissions(self, wait_s: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return 1 / self.success(wait_s)

    def variance(self, wait_s: ArrayLike) -> Array:
        """Var J: the last attempt's own variance plus that of the number of failures before it."""
        wait = as_array(wait_s)
        success = self.success(wait)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            fail, failure_s = 1 - success, wait + self.overhead_s
            plain = np.where(np.isfinite(wait), wait, 0.0)
            sf = (1 - self.rho) * self.law.sf(wait)
            first = ((1 - self.rho) * self.law.restricted_mean(wait) - sf * plain) / success
            second = ((1 - self.rho) * self.law.restricted_square(wait) - sf * plain * plain) / success
            spread = np.where(fail > 0, failure_s**2 * fail / success**2, 0.0)
            value = np.maximum(second - first**2, 0.0) + spread
        return np.where(success > 0, value, np.inf)

    def cdf(self, x: ArrayLike, wait_s: float) -> Array:
        """F_J (equation 5): the chance that the job is through after x seconds, all its submissions included."""
        x = as_array(x)
        length, fail = wait_s + self.overhead_s, 1 - float(self.success(wait_s))
        if math.isinf(wait_s):
            rounds = np.zeros_like(x)
            since = x - self.overhead_s
        else:
            rounds = np.floor(x / length) if length > 0 else np.zeros_like(x)
            since = x - rounds * length - self.overhead_s
        before = fail**rounds
        within = np.where(since >= 0, self.success(np.maximum(since, 0.0)), 0.0)
        return np.where(x < 0, 0.0, 1 - before + before * within)

    def quantile(self, p: float, wait_s: ArrayLike) -> Array:
        """The p-quantile of J: F_J inverted exactly, attempt by attempt."""
        check_quantile(p)
        wait = np.atleast_1d(as_array(wait_s))
        success = self.success(wait)
        with np.errstate(divide="ignore", invalid="ignore"):
            rounds = np.floor(math.log1p(-p) / np.log1p(-success) * (1 + 1e-15))
            rounds = np.where(success >= 1, 0.0, rounds)
            remaining = -np.expm1(math.log1p(-p) - rounds * np.log1p(-np.minimum(success, 1 - 1e-300)))
            remaining = np.where(rounds == 0, p, np.clip(remaining, 0.0, success))
            latency = self.law.ppf(np.minimum(remaining / (1 - self.rho), 1.0))
            failed = np.where(rounds > 0, rounds * (wait + self.overhead_s), 0.0)
            value = failed + self.overhead_s + np.atleast_1d(latency)
        value = np.where(success > 0, value, np.inf)
        unreachable = (rounds == 0) & (p >= 1 - self.rho) & (self.rho > 0)
        value = np.where(unreachable, np.inf, value)
        return value if value.size > 1 else value.reshape(())

    def quantile_at_zero(self, p: float) -> float:
        """Limit of the quantile as the timeout goes to 0, where J becomes exponential."""
        if float(self.success(0.0)) > 0:
            return float(self.quantile(p, 0.0))
        return -math.log1p(-p) * self.expected_at_zero()

    def sample(self, wait_s: float, count: int, rng: np.random.Generator, most_rounds: int = 1_000_000) -> Array:
        """Play the process `count` times, attempt by attempt: the check on every formula above."""
        total = np.zeros(count)
        left = np.arange(count)
        for _ in range(most_rounds):
            latency = as_array(self.law.ppf(rng.random(len(left)))).reshape(len(left))
            back = (rng.random(len(left)) >= self.rho) & (latency <= wait_s)
            total[left] += self.overhead_s + np.where(back, latency, wait_s)
            left = left[~back]
            if not len(left):
                return total
        raise BadInput(f"after {most_rounds} rounds {len(left)} jobs are still not through; the timeout is too short")


def check_quantile(p: float) -> None:
    if not 0 < p < 1:
        raise BadInput(f"a quantile lies strictly between 0 and 1, not at {p:g}", hint="0.95 means 95 of 100 jobs")
