"""When to give a silent job up (Timeouts): latencies in, a law and its best timeout out. Pure; numpy and scipy only."""

from windfall.timeouts.best import Best, Limited, best_limited, best_timeout
from windfall.timeouts.laws import (
    CLOSED_FORMS,
    Exponential,
    Gaussian,
    Law,
    LogNormal,
    Pareto,
    Uniform,
    Weibull,
    closed_form,
)
from windfall.timeouts.numeric import EGEE_LIKE, Blend, ScipyLaw
from windfall.timeouts.process import Process

__all__ = [
    "CLOSED_FORMS",
    "EGEE_LIKE",
    "Best",
    "Blend",
    "Exponential",
    "Gaussian",
    "Law",
    "Limited",
    "LogNormal",
    "Pareto",
    "Process",
    "ScipyLaw",
    "Uniform",
    "Weibull",
    "best_limited",
    "best_timeout",
    "closed_form",
]
