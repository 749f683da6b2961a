"""The laws of the latency R: what the timeout formulas need of each, in closed form. Pure.

A law answers, for times in seconds (numbers or arrays): the survival `sf`, the density in logs `logpdf`, the quantile
`ppf`, and two restricted moments, E[min(R, t)] and E[min(R, t)^2], from which every figure of the resubmission
process follows without subtracting nearly equal numbers. `shape(rho)` says how the rate of finishing (the hazard)
moves when a share rho of the jobs never comes back; the exact special cases of table 2 follow from it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike
from scipy import special

from windfall.errors import BadInput
from windfall.timeouts.arrays import Array, as_array

# How the hazard moves as a job waits: "hump" rises and then falls, "unknown" is left to a numeric search.
Shape = Literal["increasing", "constant", "decreasing", "hump", "step", "unknown"]


class LatencyLaw(Struct, frozen=True):
    """The law of a latency in seconds. Subclasses hold the parameters and the closed forms."""

    name: ClassVar[str] = ""

    def params(self) -> dict[str, float]:
        return {field: float(getattr(self, field)) for field in self.__struct_fields__}

    def sf(self, t: ArrayLike) -> Array:
        raise NotImplementedError

    def logpdf(self, t: ArrayLike) -> Array:
        raise NotImplementedError

    def ppf(self, p: ArrayLike) -> Array:
        raise NotImplementedError

    def restricted_mean(self, t: ArrayLike) -> Array:
        """E[min(R, t)], which is the integral of the survival from 0 to t."""
        raise NotImplementedError

    def restricted_square(self, t: ArrayLike) -> Array:
        """E[min(R, t)^2]."""
        raise NotImplementedError

    def mean(self) -> float:
        raise NotImplementedError

    def shape(self, rho: float) -> Shape:
        return "unknown"

    def cdf(self, t: ArrayLike) -> Array:
        return 1.0 - self.sf(t)

    def logsf(self, t: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return as_array(np.log(self.sf(t)))

    def pdf(self, t: ArrayLike) -> Array:
        with np.errstate(over="ignore"):
            return as_array(np.exp(self.logpdf(t)))

    def log_hazard(self, t: ArrayLike) -> Array:
        """Logarithm of the rate at which a job that has waited t comes back."""
        return self.logpdf(t) - self.logsf(t)

    def density_at_zero(self) -> float:
        return float(self.pdf(0.0))

    def upper(self) -> float:
        """The largest latency the law allows."""
        return math.inf

    def candidates(self) -> Array | None:
        """The only timeouts worth trying, if the law is a step function."""
        return None


def require(condition: bool, law: str, message: str) -> None:
    if not condition:
        raise BadInput(f"{law}: {message}", code="bad-law")


def require_finite(law: LatencyLaw) -> None:
    for field, value in law.params().items():
        require(math.isfinite(value), law.name, f"{field} = {value} is not a finite number")


class Uniform(LatencyLaw, frozen=True):
    """Equally likely anywhere between a and b (section 3.1)."""

    name: ClassVar[str] = "uniform"
    a: float
    b: float

    def __post_init__(self) -> None:
        require_finite(self)
        require(0 <= self.a < self.b, self.name, f"needs 0 <= a < b, not a = {self.a:g}, b = {self.b:g}")

    def sf(self, t: ArrayLike) -> Array:
        return as_array(np.clip((self.b - as_array(t)) / (self.b - self.a), 0.0, 1.0))

    def cdf(self, t: ArrayLike) -> Array:
        return as_array(np.clip((as_array(t) - self.a) / (self.b - self.a), 0.0, 1.0))

    def logpdf(self, t: ArrayLike) -> Array:
        t = as_array(t)
        return np.where((t >= self.a) & (t <= self.b), -math.log(self.b - self.a), -np.inf)

    def ppf(self, p: ArrayLike) -> Array:
        return self.a + as_array(p) * (self.b - self.a)

    def restricted_mean(self, t: ArrayLike) -> Array:
        t = as_array(t)
        inside = np.clip(t, self.a, self.b)
        return np.minimum(t, self.a) + (inside - self.a) * (1 - (inside - self.a) / (2 * (self.b - self.a)))

    def restricted_square(self, t: ArrayLike) -> Array:
        t = as_array(t)
        u, width = np.clip(t, self.a, self.b), self.b - self.a
        inside = ((u - self.a) * (u * u + u * self.a + self.a**2) / 3 + u * u * (self.b - u)) / width
        return np.where(t <= self.a, t * t, inside)

    def mean(self) -> float:
        return (self.a + self.b) / 2

    def shape(self, rho: float) -> Shape:
        # E_J falls all the way to b, where its derivative jumps: equation 10.
        return "increasing" if rho == 0 else "step"

    def upper(self) -> float:
        return self.b


def _inverse_mills(x: ArrayLike) -> Array:
    """phi(x) / Phi(x), stable far in both tails."""
    x = as_array(x)
    with np.errstate(over="ignore", divide="ignore"):
        return as_array(math.sqrt(2 / math.pi) / special.erfcx(-x / math.sqrt(2)))


class Gaussian(LatencyLaw, frozen=True):
    """Gaussian cut off below 0 (section 3.2)."""

    name: ClassVar[str] = "gaussian"
    mu: float
    sigma: float

    def __post_init__(self) -> None:
        require_finite(self)
        require(self.sigma > 0, self.name, f"needs sigma > 0, not {self.sigma:g}")
        require(self.mu / self.sigma > -1e4, self.name, "mu lies so far below 0 that nothing of the law is left")

    def _x(self, t: ArrayLike) -> Array:
        return (self.mu - as_array(t)) / self.sigma

    def logsf(self, t: ArrayLike) -> Array:
        return as_array(special.log_ndtr(self._x(t)) - special.log_ndtr(self.mu / self.sigma))

    def sf(self, t: ArrayLike) -> Array:
        return np.exp(np.minimum(self.logsf(t), 0.0))

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(np.minimum(self.logsf(t), 0.0))

    def logpdf(self, t: ArrayLike) -> Array:
        x = self._x(t)
        log_phi = -0.5 * x * x - 0.5 * math.log(2 * math.pi) - math.log(self.sigma)
        return np.where(as_array(t) >= 0, log_phi - special.log_ndtr(self.mu / self.sigma), -np.inf)

    def ppf(self, p: ArrayLike) -> Array:
        # S(t) = 1 - p: invert Phi in logs, so that the far tail keeps its digits.
        with np.errstate(divide="ignore"):
            log_tail = np.log1p(-as_array(p)) + special.log_ndtr(self.mu / self.sigma)
        return as_array(np.maximum(self.mu - self.sigma * special.ndtri_exp(log_tail), 0.0))

    def restricted_mean(self, t: ArrayLike) -> Array:
        x0, xt = self.mu / self.sigma, self._x(t)
        with np.errstate(invalid="ignore", over="ignore"):
            tail = np.where(np.isfinite(xt), self.sf(t) * (xt + _inverse_mills(xt)), 0.0)
        return self.sigma * ((x0 + _inverse_mills(x0)) - tail)

    def restricted_square(self, t: ArrayLike) -> Array:
        t = as_array(t)
        x0, xt, sf = self.mu / self.sigma, self._x(t), self.sf(t)
        with np.errstate(invalid="ignore", over="ignore"):
            phi_t = np.where(np.isfinite(xt), sf * _inverse_mills(xt), 0.0)
            edge = np.where(np.isfinite(xt), t * t * sf + self.sigma**2 * xt * phi_t, 0.0)
        phi_0 = _inverse_mills(x0)
        body = (self.mu**2 + self.sigma**2) * (1 - sf) + 2 * self.mu * self.sigma * (phi_0 - phi_t)
        return np.maximum(body - self.sigma**2 * x0 * phi_0 + edge, 0.0)

    def mean(self) -> float:
        return float(self.mu + self.sigma * _inverse_mills(self.mu / self.sigma))

    def shape(self, rho: float) -> Shape:
        if rho == 0:
            return "increasing"
        # The density is log-concave, so the hazard has one peak at most; at 0 it already falls when the cut-off tail
        # is all that is left of the Gaussian. The paper's table 2 leaves that case out.
        slope = self.mu / self.sigma**2 + (1 - rho) * self.density_at_zero()
        return "hump" if slope > 0 else "decreasing"


class Exponential(LatencyLaw, frozen=True):
    """Without memory: having waited says nothing (section 3.3)."""

    name: ClassVar[str] = "exponential"
    rate: float

    def __post_init__(self) -> None:
        require_finite(self)
        require(self.rate > 0, self.name, f"needs rate > 0 (per second), not {self.rate:g}")

    def sf(self, t: ArrayLike) -> Array:
        return np.exp(-self.rate * as_array(t))

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(-self.rate * as_array(t))

    def logsf(self, t: ArrayLike) -> Array:
        return -self.rate * as_array(t)

    def logpdf(self, t: ArrayLike) -> Array:
        return math.log(self.rate) - self.rate * as_array(t)

    def ppf(self, p: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return -np.log1p(-as_array(p)) / self.rate

    def restricted_mean(self, t: ArrayLike) -> Array:
        return -np.expm1(-self.rate * as_array(t)) / self.rate

    def restricted_square(self, t: ArrayLike) -> Array:
        return as_array(2 / self.rate**2 * special.gammainc(2.0, self.rate * as_array(t)))

    def mean(self) -> float:
        return 1 / self.rate

    def shape(self, rho: float) -> Shape:
        return "constant" if rho == 0 else "decreasing"


class LogNormal(LatencyLaw, frozen=True):
    """exp of a Gaussian (section 3.4): heavy-tailed, the usual shape of latencies."""

    name: ClassVar[str] = "lognormal"
    mu: float
    sigma: float

    def __post_init__(self) -> None:
        require_finite(self)
        require(self.sigma > 0, self.name, f"needs sigma > 0, not {self.sigma:g}")
        require(abs(self.mu) < 600, self.name, f"mu is the logarithm of seconds; {self.mu:g} is out of range")

    def _z(self, t: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return (np.log(as_array(t)) - self.mu) / self.sigma

    def sf(self, t: ArrayLike) -> Array:
        return as_array(special.ndtr(-self._z(t)))

    def cdf(self, t: ArrayLike) -> Array:
        return as_array(special.ndtr(self._z(t)))

    def logsf(self, t: ArrayLike) -> Array:
        return as_array(special.log_ndtr(-self._z(t)))

    def logpdf(self, t: ArrayLike) -> Array:
        t, z = as_array(t), self._z(t)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = -0.5 * z * z - np.log(t) - math.log(self.sigma) - 0.5 * math.log(2 * math.pi)
        return np.where(t > 0, value, -np.inf)

    def ppf(self, p: ArrayLike) -> Array:
        return as_array(np.exp(self.mu + self.sigma * special.ndtri(as_array(p))))

    def _moment(self, order: int, t: Array) -> Array:
        """E[min(R, t)^order]: the part that came back before t, plus t^order for the part that did not."""
        z = self._z(t)
        log_part = order * self.mu + 0.5 * (order * self.sigma) ** 2 + special.log_ndtr(z - order * self.sigma)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            rest = np.where(np.isfinite(t), np.exp(order * np.log(t) + special.log_ndtr(-z)), 0.0)
            return as_array(np.exp(log_part) + rest)

    def restricted_mean(self, t: ArrayLike) -> Array:
        return self._moment(1, as_array(t))

    def restricted_square(self, t: ArrayLike) -> Array:
        return self._moment(2, as_array(t))

    def mean(self) -> float:
        exponent = self.mu + self.sigma**2 / 2
        return math.exp(exponent) if exponent < 700 else math.inf

    def shape(self, rho: float) -> Shape:
        # H(z) - z falls for the (defective) normal hazard H, so t h(t) = 1 + z/sigma is met once: one peak, any rho.
        return "hump"


class Pareto(LatencyLaw, frozen=True):
    """The paper's form, F(t) = 1 - (a / (a + t))^nu, which begins at 0 (section 3.5)."""

    name: ClassVar[str] = "pareto"
    a: float
    nu: float

    def __post_init__(self) -> None:
        require_finite(self)
        require(self.a > 0, self.name, f"needs a > 0, not {self.a:g}")
        require(self.nu > 0, self.name, f"needs nu > 0, not {self.nu:g}")

    def logsf(self, t: ArrayLike) -> Array:
        return -self.nu * np.log1p(as_array(t) / self.a)

    def sf(self, t: ArrayLike) -> Array:
        return np.exp(self.logsf(t))

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(self.logsf(t))

    def logpdf(self, t: ArrayLike) -> Array:
        return math.log(self.nu / self.a) - (self.nu + 1) * np.log1p(as_array(t) / self.a)

    def ppf(self, p: ArrayLike) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            return self.a * np.expm1(-np.log1p(-as_array(p)) / self.nu)

    def _power_integral(self, power: float, t: Array) -> Array:
        """Integral of (1 + x)^(power - 1) from 0 to t/a."""
        log = np.log1p(t / self.a)
        with np.errstate(over="ignore"):
            return log if abs(power) < 1e-12 else np.expm1(power * log) / power

    def restricted_mean(self, t: ArrayLike) -> Array:
        return self.a * self._power_integral(1 - self.nu, as_array(t))

    def restricted_square(self, t: ArrayLike) -> Array:
        t = as_array(t)
        with np.errstate(invalid="ignore", over="ignore"):
            closed = 2 * self.a**2 * (self._power_integral(2 - self.nu, t) - self._power_integral(1 - self.nu, t))
        if self.nu <= 2:
            closed = np.where(np.isinf(t), np.inf, closed)
        # The difference loses its digits near 0; there the first two terms of the series are exact enough.
        x = t / self.a
        return np.where(x * max(1.0, self.nu) < 1e-5, t * t * (1 - 2 * self.nu * x / 3), closed)

    def mean(self) -> float:
        return self.a / (self.nu - 1) if self.nu > 1 else math.inf

    def shape(self, rho: float) -> Shape:
        return "decreasing"


class Weibull(LatencyLaw, frozen=True):
    """S(t) = exp(-(t / scale)^shape): shape below 1 has a heavy tail, 1 is exponential, above 1 a light one."""

    name: ClassVar[str] = "weibull"
    k: float
    scale: float

    def __post_init__(self) -> None:
        require_finite(self)
        require(self.k > 0, self.name, f"needs shape > 0, not {self.k:g}")
        require(self.scale > 0, self.name, f"needs scale > 0, not {self.scale:g}")

    def params(self) -> dict[str, float]:
        return {"shape": self.k, "scale": self.scale}

    def _x(self, t: ArrayLike) -> Array:
        with np.errstate(over="ignore"):
            return as_array((as_array(t) / self.scale) ** self.k)

    def sf(self, t: ArrayLike) -> Array:
        return np.exp(-self._x(t))

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(-self._x(t))

    def logsf(self, t: ArrayLike) -> Array:
        return -self._x(t)

    def logpdf(self, t: ArrayLike) -> Array:
        t = as_array(t)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            power = (self.k - 1) * np.log(t / self.scale) if self.k != 1 else np.zeros_like(t)
            return math.log(self.k / self.scale) + power - self._x(t)

    def log_hazard(self, t: ArrayLike) -> Array:
        # Far out, log f - log S would be the difference of two huge numbers.
        with np.errstate(divide="ignore"):
            power = (self.k - 1) * (np.log(as_array(t)) - math.log(self.scale))
        return as_array(math.log(self.k / self.scale) + power)

    def ppf(self, p: ArrayLike) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            return as_array(self.scale * (-np.log1p(-as_array(p))) ** (1 / self.k))

    def _moment(self, order: int, t: ArrayLike) -> Array:
        part = special.gammainc(order / self.k, self._x(t))
        log_whole = order * math.log(self.scale) + special.gammaln(1 + order / self.k)
        with np.errstate(divide="ignore", over="ignore"):
            # An incomplete gamma that underflows leaves min(R, t) = t, up to the last digit.
            return np.where(part > 0, np.exp(log_whole + np.log(part)), as_array(t) ** order)

    def restricted_mean(self, t: ArrayLike) -> Array:
        return self._moment(1, t)

    def restricted_square(self, t: ArrayLike) -> Array:
        return self._moment(2, t)

    def mean(self) -> float:
        return float(self.scale * special.gamma(1 + 1 / self.k))

    def shape(self, rho: float) -> Shape:
        if self.k < 1:
            return "decreasing"
        if self.k == 1:
            return "constant" if rho == 0 else "decreasing"
        return "increasing" if rho == 0 else "hump"


CLOSED_FORMS: dict[str, type[LatencyLaw]] = {
    law.name: law for law in (Uniform, Gaussian, Exponential, LogNormal, Pareto, Weibull)
}


def closed_form(name: str, **params: Any) -> LatencyLaw:
    """The law of that name; Weibull's shape is stored as `k`, because `shape` is a method of every law."""
    if name == "weibull" and "shape" in params:
        params["k"] = params.pop("shape")
    return CLOSED_FORMS[name](**params)
