"""Figures of latencies and timeouts, for `windfall timeout --plot` and the laboratory. Touches: the files it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from windfall.figures.canvas import new_figure, save
from windfall.timeouts.best import Best
from windfall.timeouts.fitting.report import Report
from windfall.timeouts.fitting.sample import survival
from windfall.timeouts.laws.empirical import empirical_process
from windfall.timeouts.process import Process
from windfall.units import show_duration


def plot_fit(report: Report, run_s: float, submit_cost_s: float, path: str) -> Path:
    """What was seen beside the two best laws, and the curve the timeout was read from."""
    figure, (left, right) = new_figure(1, 2, width=11, height=4.4)
    steps = survival(report.sample)
    left.step(steps.times, 1 - steps.survive, where="post", color="black", label="seen (Kaplan-Meier)")
    positive = steps.times[steps.times > 0]
    grid = np.geomspace(positive[0], max(positive[-1], positive[0] * 1.01), 400)
    for answer in report.laws[:2]:
        fit = answer.fit
        label = f"{fit.law.name} (p = {fit.p_value:.2g})"
        left.plot(grid, (1 - fit.rho) * fit.law.cdf(grid), "--", label=label)
    left.set(xscale="log", xlabel="latency (s)", ylabel="share that came back", ylim=(0, 1.02))
    left.legend(loc="lower right")
    process = empirical_process(steps, run_s, submit_cost_s)
    right.plot(grid + run_s, process.expected(grid), color="black", label="independent submissions (equation 6)")
    if report.conditioned is not None and report.conditioned.replay is not None:
        replayed = np.array(report.conditioned.replay.curve)
        right.plot(replayed[:, 0], replayed[:, 1], "o-", color="tab:orange", label="the log replayed")
    finish_curve(right, report.best)
    return save(figure, path)


def plot_curve(process: Process, best: Best, timeouts: Any, path: str) -> Path:
    figure, axes = new_figure()
    axes.plot(timeouts, process.expected(timeouts - process.run_s), color="black", label="expected time")
    if process.rho == 0 and np.isfinite(process.expected_without()):
        axes.axhline(process.expected_without(), color="grey", ls=":", label="no timeout")
    elif np.isfinite(process.law.mean()):
        line = process.law.mean() + process.overhead_s / (1 - process.rho)
        slope = process.rho / (1 - process.rho)
        axes.plot(timeouts, line + slope * (timeouts - process.run_s), color="grey", ls=":", label="asymptote")
    finish_curve(axes, best)
    return save(figure, path)


def finish_curve(axes: Any, best: Best) -> None:
    """Scale to what matters: around the best value, not up to where the curve goes to infinity."""
    if best.timeout_s is not None:
        axes.axvline(best.timeout_s, color="tab:red", lw=1, label=f"best: {show_duration(best.timeout_s, fine=True)}")
    top = max(3 * best.expected_s, 1.15 * (best.no_timeout_s or 0.0))
    if top > 0:
        axes.set_ylim(0, top)
    axes.set(xscale="log", xlabel="timeout (s)", ylabel="expected time of a job (s)")
    axes.legend(loc="upper right")
