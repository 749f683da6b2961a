"""Money and rented machines in words, for progress and summaries. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windfall.cli.show.output import moment, plural
from windfall.units import show_duration, show_usd

Json = dict[str, Any]
_MOMENT = re.compile(r"\buntil (\d+)\b")
_MACHINE = re.compile(r"^(\d+)(?= (?:sleeps|is|has|takes) )")


def cost_words(money: Json) -> str:
    """`cost $0.71 so far, $1.19 forecast, budget $2.00`."""
    text = f"cost {show_usd(money['spent_usd'])} so far"
    if money["forecast_usd"] is not None:
        text += f", {show_usd(money['forecast_usd'])} forecast"
    return text + budget_words(money)


def budget_words(money: Json) -> str:
    return "" if money["budget_usd"] is None else f", budget {show_usd(money['budget_usd'])}"


def over_budget_usd(money: Mapping[str, Any] | None) -> float:
    """Dollars spent beyond the budget: billed after a stop, or spent before the budget was lowered."""
    if not money or money["budget_usd"] is None:
        return 0.0
    return float(max(0.0, money["spent_usd"] - money["budget_usd"]))


def over_words(over_usd: float, money: Mapping[str, Any]) -> str:
    """Why a job has cost more than its budget: never by a billing cycle that Windfall chose to begin."""
    text = f"{show_usd(over_usd)} over its budget: "
    if after_usd := money.get("after_stop_usd"):
        return f"{text}{show_usd(after_usd)} were billed after the provider had been told to stop"
    return f"{text}spent before the budget was lowered, or while no server ran to give machines back"


def fleet_words(machines: Json) -> str:
    """`9 machines (8 spot-2, 1 od-2): 7 busy, 1 boots, 1 hibernated`."""
    there = machines["there"]
    if not there:
        return "no machine is rented now" if machines["rented"] else "no machine is rented yet"
    kinds = ", ".join(f"{row['there']} {row['offer']}" for row in machines["offers"] if row["there"])
    boots, hibernated, idle = machines["pending"], machines["hibernated"], machines["idle"]
    busy = there - boots - hibernated - idle
    parts = [(busy, "busy"), (boots, "boots" if boots == 1 else "boot"), (hibernated, "hibernated"), (idle, "idle")]
    doing = ", ".join(f"{count} {what}" for count, what in parts if count)
    return f"{plural(there, 'machine')} ({kinds}): {doing}"


def plan_words(status: Json) -> str:
    """`plan: done about 14:02:10 (27m50s to spare)`, while there is a plan that says so."""
    plan = status.get("plan") or {}
    finish_s = plan.get("finish_s")
    if finish_s is None:
        return ""
    return f"plan: done about {moment(finish_s)}{slack_words(status['deadline_s'], finish_s)}"


def slack_words(deadline_s: float | None, finish_s: float) -> str:
    if deadline_s is None:
        return ""
    spare_s = deadline_s - finish_s
    return f" ({show_duration(spare_s)} to spare)" if spare_s >= 0 else f" ({show_duration(-spare_s)} late)"


def trouble_words(status: Json) -> str:
    """What of the plan could not be done, if anything."""
    money, plan = status.get("money") or {}, status.get("plan") or {}
    if money.get("held_by_budget"):
        return f"stopped by its budget: {plan['refused'][0]}"
    if plan.get("error"):
        return str(plan["error"])
    if refusal := (money.get("machines") or {}).get("last_refusal"):
        return str(refusal)
    return f"not done: {plan['refused'][0]}" if plan.get("refused") else ""


def outcome(status: Json) -> Json | None:
    """Predicted against actual, of a job that rented machines; the `money` of `windfall run --json`."""
    money, plan = status.get("money"), status.get("plan")
    if not money or not plan:
        return None
    return {
        "cost_usd": money["spent_usd"],
        "predicted_cost_usd": money["first_forecast_usd"],
        "budget_usd": money["budget_usd"],
        "held_by_budget": money["held_by_budget"],
        "finish_s": status["finished_s"],
        "predicted_finish_s": plan["first_finish_s"],
        "planner": plan["planner"],
        "plans": plan["plans"],
        "machines": [{key: row[key] for key in ("offer", "market", "rented")} for row in money["machines"]["offers"]],
    }


def outcome_lines(status: Json) -> list[str]:
    """Cost and finish against their prediction, in words; for a job that has not ended, `standing_lines`."""
    told = outcome(status)
    if told is None:
        return []
    if told["finish_s"] is None and not told["held_by_budget"]:
        return standing_lines(status)
    predicted_usd, predicted_s = told["predicted_cost_usd"], told["predicted_finish_s"]
    cost = f"  cost {show_usd(told['cost_usd'])}"
    cost += f" (predicted {show_usd(predicted_usd)})" if predicted_usd is not None else ""
    cost += budget_words(told)
    kinds = ", ".join(f"{row['rented']} {row['offer']}" for row in told["machines"])
    cost += f"   {plural(sum(row['rented'] for row in told['machines']), 'machine')} ({kinds})" if kinds else ""
    lines = [f"{cost}   {plural(told['plans'], 'plan')} by {told['planner']}"]
    if told["finish_s"] is not None:
        done = f"  {'done' if status['state'] == 'done' else 'ended'} at {moment(told['finish_s'])}"
        done += f" (predicted {moment(predicted_s)})" if predicted_s is not None else ""
        lines.append(done + _against_deadline(status["deadline_s"], told["finish_s"]))
    elif told["held_by_budget"]:
        lines.append(f"  stopped by its budget: {status['plan']['refused'][0]}")
    if over_usd := over_budget_usd(status["money"]):
        lines.append(f"  {over_words(over_usd, status['money'])}")
    return lines


def standing_lines(status: Json) -> list[str]:
    """A job that has not ended: cost and forecast, machines, expected finish, and refusals."""
    money = status["money"]
    parts = [cost_words(money), fleet_words(money["machines"]), plan_words(status)]
    trouble = trouble_words(status)
    return ["  " + "   ".join(part for part in parts if part), *([f"  {trouble}"] if trouble else [])]


def _against_deadline(deadline_s: float | None, finish_s: float) -> str:
    if deadline_s is None or finish_s > deadline_s:
        return ""
    return f", {show_duration(deadline_s - finish_s)} before the deadline"


def reason_words(text: str, when: Callable[[float], str] = lambda t: f"until {moment(t)}") -> str:
    """A planner's reason as a person reads it: a planner knows machines by number and times by the engine's clock."""
    text = _MACHINE.sub(lambda found: f"m{found[1]}", text)
    return _MOMENT.sub(lambda found: when(float(found[1])), text)


def refusals(texts: Iterable[str]) -> list[str]:
    """What was refused, equal refusals together; without the tasks of a machine that was refused itself."""
    counts = Counter(text for text in texts if not text.startswith("assign to new-"))
    return [text if count == 1 else f"{count} x {text}" for text, count in counts.items()]
