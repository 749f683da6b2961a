"""How `windfall plan` shows what the runs of a bag have in common: a document, and a screen made of it. Pure."""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Any

from windfall.cli.show.money import reason_words
from windfall.cli.show.output import plural
from windfall.units import show_deadline, show_duration, show_usd

if TYPE_CHECKING:
    from windfall.cli.plan.bag import Ready
    from windfall.planning.contract import Plan
    from windfall.sim.studies.forecast import Forecast, Range
    from windfall.sim.studies.fronts import Row, Variant

Json = dict[str, Any]
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MOST_REASONS = 3


def document(
    ready: Ready, soonest_s: float, found: dict[Variant, Forecast | None], nearest: Forecast | None = None,
    surer: tuple[float, Forecast] | None = None,
) -> Json:  # fmt: skip
    """What `windfall plan JOB.TOML --json` prints. A public contract: docs/reference/cli.md."""
    from windfall.sim.studies.fronts import front

    question, made = ready.question, found[ready.own]
    compared = {variant: found[variant] for variant in ready.others}
    return {
        "name": ready.name,
        "tasks": question.tasks,
        "planner": question.planner,
        "confidence": question.confidence,
        "budget_usd": question.budget_usd,
        "earliest_s": soonest_s,
        "estimate_s": fmean(question.seen_s or question.estimates_s),
        **outlook(ready.deadline_s, made, soonest_s),
        "machines": _machines(made),
        "first_plan": _first_plan(made),
        "assumed": ready.assumed,
        "warnings": ready.warnings,
        "what_if": [_compared(row, soonest_s) for row in front(compared)],
        "nearest": None if nearest is None else outlook(nearest.deadline_s, nearest, soonest_s),
        "surer": None if surer is None else outlook(ready.deadline_s, surer[1], soonest_s) | {"confidence": surer[0]},
    }


def _compared(row: Row, soonest_s: float) -> Json:
    """One row of --what-if; `planned_for`: the deadline and the confidence whose plan it follows, the cheapest."""
    plan = row.planned_for
    return outlook(row.variant.deadline_s, row.made, soonest_s) | {
        "confidence": row.variant.confidence,
        "planned_for": {"deadline_s": plan.deadline_s, "confidence": plan.confidence},
    }


def outlook(deadline_s: float, made: Forecast | None, soonest_s: float) -> Json:
    """One deadline. `low` to `high` holds the next run with the chance `interval`; of `met`, its 95 % interval.

    A possible one without runs was not simulated: not yet, or Ctrl-C came before.
    """
    if made is None:
        return {
            "deadline_s": deadline_s,
            "possible": deadline_s >= soonest_s,
            "runs": 0,
            "interval": None,
            "cost_usd": None,
            "finish_s": None,
            "met": None,
        }
    share = made.met_share
    return {
        "deadline_s": deadline_s,
        "possible": True,
        "runs": len(made.runs),
        "interval": made.holds,
        "cost_usd": _shown(made.cost_usd),
        "finish_s": _shown(made.finish_s),
        "met": {"runs": made.met, "share": share.mean, "low": share.low, "high": share.high},
    }


def _shown(range: Range | None) -> Json | None:
    return None if range is None else range.told()


def _machines(made: Forecast | None) -> Json | None:
    if made is None:
        return None
    times, counts = made.machines_over_time()
    return {
        "rented": fmean(run.rented for run in made.runs),
        "at_once": made.most_at_once(),
        "interrupted": fmean(run.interrupted for run in made.runs),
        "tasks_lost": fmean(run.lost for run in made.runs),
        "t_s": times,
        "by_market": counts,
    }


def _first_plan(made: Forecast | None) -> Json | None:
    """What the planner would do now, and why."""
    run = made.runs[0] if made is not None and made.runs else None
    if run is None or run.first is None:
        return None
    plan = run.first
    return {
        "start": starts(plan),
        "because": plan.because,
        "predicted_cost_usd": plan.predicted_cost_usd,
        "predicted_finish_s": plan.predicted_finish_t,
        "rejected": [{"what": rejected.what, "cost_usd": rejected.cost_usd} for rejected in plan.rejected],
        "stepped_in": run.stepped_in,
    }


def starts(plan: Plan) -> list[Json]:
    """What a plan rents, by offer."""
    kinds = Counter((start.offer.name, start.offer.market) for start in plan.start)
    return [{"offer": name, "market": market, "count": count} for (name, market), count in kinds.items()]


# --- the screen -------------------------------------------------------------------------------------------------------


def lines(told: Json, made: Forecast | None, now_s: float) -> list[str]:
    """One look answers: what it costs, when it is done, how sure that is, on what, and what was assumed."""
    head = f"'{told['name']}'  {plural(told['tasks'], 'task')} of about {show_duration(told['estimate_s'])}"
    found = [
        f"{head}   deadline {show_deadline(now_s + told['deadline_s'], now_s)}   planner {told['planner']}",
        f"  asked for   {_percent(told['confidence'])} chance of being in time",
    ]
    if made is not None:
        found += [*_money_and_time(told), *_machine_lines(told), *_why(told)]
    else:
        found.append(f"  impossible: the earliest possible deadline is {show_duration(told['earliest_s'])} from now")
    if told["what_if"]:
        found += ["", *_front(told)]
    found += [f"  {'assumed' if not place else '':<12}{text}" for place, text in enumerate(told["assumed"])]
    return found


def first_lines(ready: Ready, plan: Plan | None, now_s: float) -> list[str]:
    """What is known before any run is simulated: the plan, and what its planner expects of it."""
    question = ready.question
    seconds = fmean(question.seen_s or question.estimates_s)
    head = f"'{ready.name}'  {plural(question.tasks, 'task')} of about {show_duration(seconds)}"
    found = [f"{head}   deadline {show_deadline(now_s + ready.deadline_s, now_s)}   planner {question.planner}"]
    if plan is None:
        return found
    rents = " + ".join(f"{row['count']} {row['offer']}" for row in starts(plan)) or "nothing yet"
    found.append(f"  first plan  rent {rents}")
    expects = []
    if plan.predicted_cost_usd is not None:
        expects.append(f"about {show_usd(plan.predicted_cost_usd)}")
    if plan.predicted_finish_t is not None:
        expects.append(f"done after about {show_duration(plan.predicted_finish_t)}")
    return [*found, f"  it expects  {', '.join(expects)}   (not simulated yet)"] if expects else found


def _money_and_time(told: Json) -> list[str]:
    cost, finish, met = told["cost_usd"], told["finish_s"], told["met"]
    often = _often(told["interval"])
    found = [f"  cost        {show_usd(cost['mean'])}   ({often}: {_usd_range(cost)}, by {told['runs']} simulated)"]
    if told["budget_usd"] is not None:
        found[0] += f"   budget {show_usd(told['budget_usd'])}"
    if finish is not None:
        spare_s = told["deadline_s"] - finish["mean"]
        spare = f"{show_duration(spare_s)} to spare" if spare_s >= 0 else f"{show_duration(-spare_s)} late"
        found.append(f"  done after  {show_duration(finish['mean'])}   ({often}: {_span_range(finish)})   {spare}")
    found.append(f"  in time     {met['runs']} of {told['runs']} simulated runs{_chance(met, told['confidence'])}")
    return found


def _often(share: float) -> str:
    """How often an interval holds the next run; few runs cannot promise nine of ten."""
    return "9 of 10 runs" if share >= 0.9 else f"{round(10 * share)} of 10 runs"


def _chance(met: Json, wanted: float) -> str:
    """What the runs prove: all of a few in time is no proof of certainty."""
    if met["share"] < 1:
        return f" ({_percent(met['low'])} to {_percent(met['high'])})"
    return f" (that proves only {_percent(met['low'])}; use more --seeds)" if met["low"] < wanted else ""


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _machine_lines(told: Json) -> list[str]:
    machines, first = told["machines"], told["first_plan"]
    now = " + ".join(f"{start['count']} {start['offer']}" for start in first["start"]) if first else ""
    text = f"{now or 'none'} at first, at most {machines['at_once']} at once"
    if now and told["budget_usd"] is not None and not machines["at_once"]:
        return ["  machines    none: the budget does not pay for the first cycle of one"]
    if machines["interrupted"]:
        text += (
            f"; per run {machines['interrupted']:.3g} interruptions and {machines['tasks_lost']:.3g} restarted tasks"
        )
    found = [f"  machines    {text}"]
    most = max((count for counts in machines["by_market"].values() for count in counts), default=0.0)
    for market, counts in machines["by_market"].items():
        found.append(f"              {market:<10}{sparks(counts, most)} {max(counts):.1f}")
    return found


def sparks(values: list[float], most: float) -> str:
    """Numbers as a row of blocks; every number above 0 gets a visible block."""
    last = len(_BLOCKS) - 1
    return "".join(
        _BLOCKS[min(last, max(int(value > 0), round(value / most * last)))] if most else " " for value in values
    )


def _why(told: Json) -> list[str]:
    first = told["first_plan"]
    if first is None or (first["start"] and told["budget_usd"] is not None and not told["machines"]["at_once"]):
        return []  # a plan that the budget let nobody carry out explains nothing
    found = [f"  why         {first['stepped_in']}"] if first["stepped_in"] else []
    reasons = [reason_words(text, lambda t: f"for {show_duration(t)}") for text in first["because"][:_MOST_REASONS]]
    found += [f"  {'why' if not place else '':<12}{text}" for place, text in enumerate(reasons)]
    for place, rejected in enumerate(first["rejected"][:_MOST_REASONS]):
        found.append(f"  {'compare' if not place else '':<12}{rejected['what']}: {show_usd(rejected['cost_usd'])}")
    return found


def _front(told: Json) -> list[str]:
    """Cost against deadline, or against confidence."""
    rows = told["what_if"]
    by_deadline = len({row["confidence"] for row in rows}) == 1
    heads = f"  {'deadline' if by_deadline else 'confidence':<12}{'cost':<10}{'interval':<20}{'done after':<13}"
    found = [f"{heads}{'in time':<12}".rstrip()]
    for row in rows:
        head = show_duration(row["deadline_s"]) if by_deadline else _percent(row["confidence"])
        when = f"  {head:<12}"
        if not row["possible"]:
            found.append(f"{when}impossible before {show_duration(told['earliest_s'])}")
            continue
        if not row["runs"]:
            found.append(f"{when}not simulated")
            continue
        cost, finish, met = row["cost_usd"], row["finish_s"], row["met"]
        done = "never" if finish is None else show_duration(finish["mean"])
        shown = f"{show_usd(cost['mean']):<10}{_usd_range(cost):<20}{done:<13}{met['runs']} of {row['runs']}"
        yours = (row["deadline_s"], row["confidence"]) == (told["deadline_s"], told["confidence"])
        found.append(f"{when}{shown}{_as_planned(row)}" + ("   <- yours" if yours else ""))
    return found


def _as_planned(row: Json) -> str:
    """Which other plan is cheaper, and is a plan for this row as well."""
    plan = row["planned_for"]
    if plan["deadline_s"] < row["deadline_s"]:
        return f"   planned for {show_duration(plan['deadline_s'])}"
    return f"   planned for {_percent(plan['confidence'])}" if plan["confidence"] > row["confidence"] else ""


def _usd_range(range: Json) -> str:
    return f"{show_usd(range['low'])} to {show_usd(range['high'])}"


def _span_range(range: Json) -> str:
    return f"{show_duration(range['low'])} to {until_words(range['high'])}"


def until_words(high_s: float | None) -> str:
    """The end of an interval of finishes; None: it holds runs that never end."""
    return "never" if high_s is None else show_duration(high_s)
