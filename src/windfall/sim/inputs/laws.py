"""Random laws in scenario files: `{ law = "lognormal", median = "10m", sigma = 0.5 }`. Pure.

A law is given by its quantile function, which maps u in (0, 1) to a value. Values are rounded to six decimals, so that
differences between machines in the last bit of a logarithm do not reach the log of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf, isfinite, log
from statistics import NormalDist

from msgspec import Struct

Quantile = Callable[[float], float]
_normal = NormalDist().inv_cdf
_TO_INTEGER = 1.5 * 2.0**52
"""Floats of this size are whole: added and taken away again, it rounds what is small beside it to an integer."""
NEXT_TO_NOTHING = 2.0**-53
"""The least u above zero, and the largest below one is as far from it: draws have 53 bits."""


class LawKind(Struct, frozen=True):
    """One kind of law: its parameters (True: in the unit of the value, False: a plain number) and its quantile."""

    parameters: dict[str, bool]
    quantile: Callable[..., Quantile]
    meaning: str


def rounded(value: float) -> float:
    """`round(value, 6)`, in a quarter of its time: it is called twice for every attempt of a simulation."""
    scaled = value * 1e6
    if 0.0 < scaled < 1e12:
        nearest = scaled + _TO_INTEGER - _TO_INTEGER
        off = scaled - nearest
        # The product is wrong by a ten-thousandth at most. Away from a half it names the right integer, and the
        # quotient is the float that lies nearest to the decimal.
        if off * off < 0.249:
            return nearest / 1e6
    return round(value, 6)


def _fixed(value: float) -> Quantile:
    return lambda u: value


def _uniform(low: float, high: float) -> Quantile:
    return lambda u: rounded(low + (high - low) * u)


def _exponential(mean: float) -> Quantile:
    return lambda u: rounded(-mean * log(1.0 - u))


def _lognormal(median: float, sigma: float) -> Quantile:
    return lambda u: rounded(median * exp(sigma * _normal(u)))


def _weibull(scale: float, shape: float) -> Quantile:
    return lambda u: rounded(scale * (-log(1.0 - u)) ** (1.0 / shape))


def _pareto(least: float, shape: float) -> Quantile:
    return lambda u: rounded(least * (1.0 - u) ** (-1.0 / shape))


def _power(low: float, high: float, shape: float) -> Quantile:
    return lambda u: rounded(low + (high - low) * u**shape)


def _normal_law(mean: float, deviation: float) -> Quantile:
    least = 0.05 * mean
    return lambda u: rounded(max(least, mean + deviation * _normal(u)))


def _never() -> Quantile:
    return lambda u: inf


LAWS: dict[str, LawKind] = {
    "fixed": LawKind({"value": True}, _fixed, "always the same; a bare value means this"),
    "uniform": LawKind({"low": True, "high": True}, _uniform, "equally likely between low and high"),
    "exponential": LawKind({"mean": True}, _exponential, "memoryless, as preemptions and failures often are"),
    "lognormal": LawKind({"median": True, "sigma": False}, _lognormal, "most near the median, some far above"),
    "weibull": LawKind(
        {"scale": True, "shape": False}, _weibull, "shape below 1: falling hazard rate; above 1: rising"
    ),
    "pareto": LawKind({"least": True, "shape": False}, _pareto, "heavy tail above `least`"),
    "power": LawKind(
        {"low": True, "high": True, "shape": False}, _power, "low + (high - low) * u^shape: shape above 1 leans low"
    ),
    "normal": LawKind(
        {"mean": True, "deviation": True}, _normal_law, "symmetric around the mean; a twentieth of it at least"
    ),
    "never": LawKind({}, _never, "it does not happen"),
}


class RandomLaw(Struct, frozen=True):
    """A law with its parameters; `values`: recorded values (sorted) instead of a formula."""

    kind: str
    parameters: dict[str, float] = {}
    values: tuple[float, ...] = ()

    def quantile(self) -> Quantile:
        """The function from u to a value, made once and called often."""
        if self.kind == "seen":
            return _seen(self.values)
        return LAWS[self.kind].quantile(**self.parameters)


NEVER = RandomLaw("never")


def fixed(value: float) -> RandomLaw:
    return RandomLaw("fixed", {"value": value})


def seen(values: Sequence[float]) -> RandomLaw:
    return RandomLaw("seen", values=tuple(sorted(values)))


def _seen(values: tuple[float, ...]) -> Quantile:
    """Linear interpolation between recorded values."""
    last = len(values) - 1

    def at(u: float) -> float:
        place = u * last
        below = int(place)
        if below >= last:
            return values[last]
        return rounded(values[below] + (values[below + 1] - values[below]) * (place - below))

    return at


def impossible(kind: str, parameters: dict[str, float]) -> str:
    """Why the parameters are invalid; empty if they are valid."""
    if kind in ("uniform", "power") and not parameters["low"] <= parameters["high"]:
        return f"low ({parameters['low']:g}) is above high ({parameters['high']:g})"
    for name in ("mean", "median", "scale", "least", "shape"):
        if name in parameters and not parameters[name] > 0:
            return f"{name} must be above zero"
    if "sigma" in parameters and parameters["sigma"] < 0:
        return "sigma must not be below zero"
    if any(value < 0 for name, value in parameters.items() if name in ("low", "value")):
        return "a value below zero cannot be"
    return "" if kind == "never" or _is_finite(LAWS[kind].quantile, parameters) else "its values have no end"


def _is_finite(quantile: Callable[..., Quantile], parameters: dict[str, float]) -> bool:
    """Whether the least and the largest value that is ever drawn are numbers."""
    try:
        at = quantile(**parameters)
        return isfinite(at(NEXT_TO_NOTHING)) and isfinite(at(1.0 - NEXT_TO_NOTHING))
    except OverflowError:
        return False
