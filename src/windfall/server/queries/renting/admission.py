"""Whether a fleet would keep the deadline of one more job, and what that would cost. Decides nothing."""

from __future__ import annotations

import asyncio
import math

import msgspec
from starlette.requests import Request

from windfall.api.asking import Admission, AdmissionFigures, Verdict
from windfall.bags import outline as outlines
from windfall.bags.outline import Outline, OutlinedTasks
from windfall.bags.spec import JobSpec
from windfall.core.renting import views
from windfall.core.renting.runtimes import unit_of
from windfall.planning.estimates import MAX_SAMPLES
from windfall.server.http import scoped
from windfall.server.http.bodies import typed_body
from windfall.server.http.problems import TooLate, TooSlow
from windfall.server.http.supply.fleets import found
from windfall.server.queries.renting.asking import asked_process
from windfall.server.service import Service
from windfall.units import show_duration, show_rate, show_usd

PATIENCE_S, LIMIT_S = 20.0, 30.0
"""Seconds that a question waits for those before it, and those that its answer may take."""
PROCESS = "windfall.server.queries.renting.admission_process"


async def ask(service: Service, request: Request) -> tuple[int, Admission]:
    """Whether a job would be in time beside the others of a fleet, and what it would cost. Nothing is submitted."""
    name = request.path_params["fleet"]
    found(service, name)
    body = await typed_body(request, Outline)
    return 200, await judged(service, name, body, user=scoped.user_of(request))


async def judged(service: Service, fleet: str, outline: Outline, confidence: float = 0.95, user: str = "") -> Admission:
    """The answer of the planner: `holds`, `says` and the figures.

    `user`: the only one whose jobs are seen. It is the owner then, and other jobs are counted and not named.
    """
    outlines.check(outline)
    if user:
        outline = msgspec.structs.replace(outline, owner=user)
    number = found(service, fleet).number
    try:
        async with asyncio.timeout(PATIENCE_S):
            await service.simulating.acquire()
    except TimeoutError:
        raise TooSlow("other questions are being answered", hint="try again in some seconds") from None
    try:
        told = await asked_process(PROCESS, _question(service, number, outline, confidence), LIMIT_S)
    finally:
        service.simulating.release()
    verdict: Verdict = told["verdict"]
    late = verdict["late_others"]
    answer: AdmissionFigures = {
        **verdict, "fleet": fleet, "deadline_s": outline.deadline_s, "tasks": outline.count,
        "late_others": [] if user else late, "others_late": len(late), "stream": told["stream"],
    }  # fmt: skip
    budget_s = service.state.fleet.book.by_number[number].rules.budget_s
    return {**answer, "says": in_words(answer, budget_s, views.rents_nothing(service.state, number))}


def outline_of(service: Service, spec: JobSpec) -> Outline | None:
    """One more job of a class of workflows; None if its run times are not estimated."""
    bag = service.state.bags.get(spec.like)
    if bag is None or bag.shape is None or not 0 < bag.total <= outlines.MOST_TASKS or not spec.deadline_s:
        return None
    groups = []
    for task in range(bag.total):
        rules = bag.classes[bag.class_of(task)]
        seconds = unit_of(bag, task) if bag.progress.estimates else rules.estimate_s
        if seconds is None:
            return None
        needs = {name: amount / 1000 for name, amount in rules.needs}
        groups.append(OutlinedTasks(seconds, 1, rules.cpus, rules.memory_bytes, rules.name, needs))
    after = {task: list(map(int, parents)) for task, parents in enumerate(bag.shape.parent_rows()) if parents}
    return Outline(spec.deadline_s, groups, after, recorded=bool(bag.progress.estimates), owner=spec.owner)


def _question(service: Service, number: int, outline: Outline, confidence: float) -> bytes:
    from windfall.server.queries.renting.admission_process import Asked

    state = service.state
    learned = {}
    for name in {group.task_class for group in outline.tasks if group.task_class}:
        key = f"{name} (of its estimate)" if outline.recorded else name
        if key in state.learned.run_times:
            learned[name] = state.learned.run_times[key].seconds[-MAX_SAMPLES:]
    shown = views.view(state, number, service.driver.clock(), math.inf)
    if shown.backlog:
        waiting = len(state.fleet.book.active[number])
        raise TooSlow(f"{waiting:,} jobs wait in the fleet: too many to lay them out", hint="submit without asking")
    return msgspec.msgpack.encode(Asked(shown, outline, confidence, learned, list(state.settings.resources)))


def in_words(told: AdmissionFigures, budget_s: float, closed: str = "") -> list[str]:
    """Nothing if the deadline is kept within the budget; else what is wrong, and what would help.

    `closed`: why the fleet rents nothing, if it does not.
    """
    fleet, deadline = told["fleet"], show_duration(told["deadline_s"])
    if told["fits_nowhere"] and closed:
        return [f"{closed} and rents no machine", f"open it again: windfall fleet resume {fleet}"]
    if told["fits_nowhere"]:
        return [f"fleet '{fleet}' rents no machine on which all tasks fit", "try: fewer --cpus, or less --memory"]
    said = []
    if not told["met"]:
        said.append(f"fleet '{fleet}' would not keep a deadline {deadline} from now beside its other jobs")
    elif told["others_late"]:
        said.append(f"fleet '{fleet}' would be late with {told['others_late']} of its other jobs")
    if told["over_budget_usd"] > 0:
        short = show_usd(told["over_budget_usd"])
        said.append(
            f"the budget of fleet '{fleet}' does not suffice for a deadline {deadline} from now: {short} are missing"
        )
    if told["earliest_s"] is not None:
        said.append(f"the earliest deadline that it would keep is {show_duration(told['earliest_s'])} from now")
    if told["without_limits_usd"] is not None:
        more = show_usd(told["without_limits_usd"])
        said.append(f"with larger limits of its offers it would be kept, for {more} more")
    if told["budget_usd"] is not None:
        rate, more = show_rate(told["budget_usd"], budget_s), show_usd(told["extra_usd"])
        said.append(f"a budget of {rate} would suffice; the job would cost {more}")
    return said


async def refuse_late(
    service: Service, fleet: str, outline: Outline, confidence: float, rejects: bool, user: str
) -> Admission | None:
    """The answer for a job that is being submitted; if it `rejects` and the fleet is not in time, TooLate.

    A job that is taken in any case is not kept waiting by a fleet that cannot say: None.
    """
    try:
        told = await judged(service, fleet, outline, confidence, user)
    except TooSlow:
        if rejects:
            raise
        return None
    if rejects and not told["holds"]:
        said = told["says"]
        raise TooLate(
            f"{said[0]}; nothing was submitted",
            hint="; ".join([*said[1:], "or accept that it is late"]),
            admission=told,
        )
    return told
