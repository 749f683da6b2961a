"""Pictures of latencies and timeouts, for `windfall timeout --plot` and the laboratory. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from windfall.figures.sheet import SOFT, Line, Mark, Panel, sheet
from windfall.timeouts.best import Best
from windfall.timeouts.fitting.report import Report
from windfall.timeouts.fitting.sample import survival
from windfall.timeouts.laws.empirical import empirical_process
from windfall.timeouts.process import Process
from windfall.units import show_duration


def fit_picture(report: Report, run_s: float, submit_cost_s: float) -> str:
    """What was seen beside the two best laws, and the curve the timeout was read from."""
    steps = survival(report.sample)
    positive = steps.times[steps.times > 0]
    grid = np.geomspace(positive[0], max(positive[-1], positive[0] * 1.01), 400)
    back = (1 - steps.survive)[steps.times > 0]
    seen = Line(x=positive.tolist(), y=back.tolist(), name="seen (Kaplan-Meier)", hue=SOFT, steps=True)
    laws = [
        Line(
            x=grid.tolist(),
            y=((1 - answer.fit.rho) * answer.fit.law.cdf(grid)).tolist(),
            name=f"{answer.fit.law.name} (p = {answer.fit.p_value:.2g})",
            hue=hue,
            dashed=True,
        )
        for hue, answer in enumerate(report.laws[:2])
    ]
    left = Panel(
        lines=[seen, *laws], x_name="latency (s)", y_name="share that came back", x_log=True, y_span=(0.0, 1.02)
    )
    process = empirical_process(steps, run_s, submit_cost_s)
    curves = [_curve((grid + run_s), process.expected(grid), "independent submissions (equation 6)", 3)]
    if report.conditioned is not None and report.conditioned.replay is not None:
        replayed = np.array(report.conditioned.replay.curve)
        curves.append(_curve(replayed[:, 0], replayed[:, 1], "the log replayed", 2, dots=True))
    return sheet(
        [left, curve_panel(curves, report.best)], "Latencies and their laws, and the time of a job by timeout."
    )


def curve_picture(process: Process, best: Best, timeouts: Any) -> str:
    """The expected time of a job by its timeout."""
    curves = [_curve(timeouts, process.expected(timeouts - process.run_s), "expected time", 0)]
    if process.rho == 0 and np.isfinite(process.expected_without()):
        curves.append(_curve(timeouts, np.full(len(timeouts), process.expected_without()), "no timeout", SOFT))
    elif np.isfinite(process.law.mean()):
        line = process.law.mean() + process.overhead_s / (1 - process.rho)
        slope = process.rho / (1 - process.rho)
        curves.append(_curve(timeouts, line + slope * (timeouts - process.run_s), "asymptote", SOFT))
    return sheet([curve_panel(curves, best)], "The expected time of a job by its timeout.")


def _curve(x: Any, y: Any, name: str, hue: int, dots: bool = False) -> Line:
    return Line(x=np.asarray(x).tolist(), y=np.asarray(y).tolist(), name=name, hue=hue, dashed=hue == SOFT, dots=dots)


def curve_panel(curves: list[Line], best: Best) -> Panel:
    """Scaled to what matters: around the best value, not up to where the curve goes to infinity."""
    top = max(3 * best.expected_s, 1.15 * (best.no_timeout_s or 0.0))
    marks = (
        [Mark(best.timeout_s, f"best: {show_duration(best.timeout_s, fine=True)}")]
        if best.timeout_s is not None
        else []
    )
    return Panel(
        lines=curves,
        upright=marks,
        x_name="timeout (s)",
        y_name="expected time of a job (s)",
        x_log=True,
        y_span=(0.0, top) if top > 0 else None,
    )
