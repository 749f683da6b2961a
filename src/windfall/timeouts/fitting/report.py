"""The report on a file of latencies and its best timeout that `windfall timeout fit` prints. Pure."""

from __future__ import annotations

from msgspec import Struct

from windfall.errors import BadInput
from windfall.timeouts.best import Best, best_timeout
from windfall.timeouts.fitting.dependence import Caution, Conditioned, Observations, Replay, condition, warnings_of
from windfall.timeouts.fitting.estimate import Fit, fit_laws
from windfall.timeouts.fitting.sample import Sample, Share, make_sample, outlier_share, survival
from windfall.timeouts.laws.empirical import best_of_sample, empirical_process
from windfall.timeouts.process import Process

FEW = 30


class LawAnswer(Struct, frozen=True):
    """A fitted law and the timeout it would advise."""

    fit: Fit
    best: Best


class Report(Struct, frozen=True):
    """`best` is the advice; `formula` is the bare minimum of equation 6 on the raw steps, for comparison."""

    best: Best
    basis: str
    sample: Sample
    rho: Share
    laws: list[LawAnswer]
    formula: Best
    warnings: list[Caution]
    conditioned: Conditioned | None


def analyse(
    observations: Observations,
    run_s: float = 0.0,
    submit_cost_s: float = 0.0,
    quantile: float | None = None,
    outlier_after_s: float | None = None,
) -> Report:
    sample = make_sample(observations.values, observations.censored, outlier_after_s)
    best = best_of_sample(sample, run_s, submit_cost_s, quantile)
    rho = outlier_share(sample)
    formula = best_timeout(empirical_process(survival(sample), run_s, submit_cost_s), quantile)
    dependence = warnings_of(observations)
    conditioned = condition(observations, run_s, submit_cost_s) if dependence else None
    laws = _laws(sample, run_s, submit_cost_s, quantile)
    cautions = dependence + _other_cautions(sample, rho, laws, conditioned)
    basis = "sample"
    if conditioned is not None and conditioned.replay is not None and quantile is None:
        best, basis = _replayed_best(conditioned.replay), "replay"
    return Report(best, basis, sample, rho, laws, formula, cautions, conditioned)


def _laws(sample: Sample, run_s: float, submit_cost_s: float, quantile: float | None) -> list[LawAnswer]:
    try:
        fits = fit_laws(sample)
    except BadInput:
        # One distinct value: the sample itself still has an answer, a law does not.
        return []
    return [LawAnswer(fit, best_timeout(Process(fit.law, fit.rho, run_s, submit_cost_s), quantile)) for fit in fits]


def _replayed_best(replay: Replay) -> Best:
    return Best(
        kind="none" if replay.timeout_s is None else "finite",
        timeout_s=replay.timeout_s,
        expected_s=replay.expected_s,
        no_timeout_s=replay.no_timeout_s,
        speedup=replay.no_timeout_s / replay.expected_s if replay.expected_s > 0 else None,
        notes=("found by replaying the log: a job given up starts when the one submitted to its pool before it did",),
    )


def _other_cautions(
    sample: Sample, rho: Share, laws: list[LawAnswer], conditioned: Conditioned | None
) -> list[Caution]:
    found = []
    if sample.came_back < FEW:
        found.append(Caution("few", f"only {sample.came_back} latencies: take this timeout for a guess"))
    if rho.value == 0 and sample.count >= 2:
        text = f"no outlier was seen, but up to {rho.high:.2%} may be lost (95 %): set a generous timeout anyway"
        found.append(Caution("no-outlier-seen", text))
    longest = float(sample.times[sample.events > 0].max())
    if rho.value > 0 and sample.times[sample.censored > 0].max() < 1.5 * longest:
        text = "the cut-off lies close to the longest latency seen, so rho may count slow jobs as lost"
        found.append(Caution("short-follow-up", text))
    if laws and laws[0].fit.p_value < 0.05:
        name, p = laws[0].fit.law.name, laws[0].fit.p_value
        found.append(Caution("no-law-fits", f"no law fits well; the best, {name}, has p = {p:.2g}"))
    if conditioned is not None and conditioned.replay is None:
        text = "without the times of submission the log cannot be replayed: take this timeout as unfounded"
        found.append(Caution("not-conditioned", text))
    if conditioned is not None and conditioned.groups:
        still = sum(group.count for group in conditioned.groups if group.neighbours > 0.2)
        total = sum(group.count for group in conditioned.groups)
        if still > total / 2:
            text = (
                f"within the same pool and load, {still / total:.0%} of the jobs still wait like their neighbours: "
                "resubmission would not draw a new latency there"
            )
            found.append(Caution("still-dependent", text))
    return found
