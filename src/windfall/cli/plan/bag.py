"""`windfall plan JOB.TOML`: what a bag will cost and when it will be done, by simulating its planner. Touches: files
named, the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from difflib import get_close_matches
from math import ceil, inf, isfinite, isinf
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from windfall.bags.settings import Settings
from windfall.bags.submission import Request, Submission, read_job
from windfall.cli.plan.data import measured_job, with_fetching, with_task_fetching
from windfall.cli.plan.licences import licensed, of_machines
from windfall.cli.plan.run_times import class_numbers, run_times, spread_of
from windfall.cli.show.output import note, plural, print_json, wrote
from windfall.errors import BadInput, Missed
from windfall.resources import largest
from windfall.units import parse_deadline, parse_duration, parse_money, show_duration, show_usd

if TYPE_CHECKING:
    from windfall.api.market import LearnedOffer
    from windfall.cli.plan.simulating import Found
    from windfall.planning.offers import Offer
    from windfall.sim.clouds.market import Supply
    from windfall.sim.studies.forecast import Forecast, Question
    from windfall.sim.studies.fronts import Variant

WORKER_START_S = 0.6
"""Seconds from the boot of an emulated machine until its worker, a Python process, asks for work."""
MOST_SLOTS, MOST_FREE_SLOTS = 1024, 100_000
"""Slots of a free host and of all free hosts that are simulated."""
FRONT = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""A picture without --what-if shows these multiples of the deadline."""


class Asked(Struct, kw_only=True):
    """What was typed."""

    job: str
    offers_file: str | None = None
    pools_file: str | None = None
    pools: tuple[str, ...] = ()
    deadline: str | None = None
    what_if: str | None = None
    confidence: float | None = None
    planner: str | None = None
    market: str = "any"
    seeds: int | None = None
    first_seed: int = 1
    estimate: str | None = None
    spread: float | None = None
    like: str | None = None
    traces: tuple[str, ...] = ()
    budget: str | None = None
    free_hosts: str | None = None
    as_json: bool = False
    plot: str | None = None
    whole: bool = False
    """Of a job on a server: all of it, from its start, instead of what is left."""
    place: Any = None


class Ready(Struct):
    """A question that can be simulated, what to compare it with, and what had to be assumed."""

    name: str
    question: Question
    deadline_s: float
    others: list[Variant]
    """What --what-if asks for, one's own deadline and confidence included."""
    assumed: list[str]
    warnings: list[str]

    @property
    def own(self) -> Variant:
        from windfall.sim.studies.fronts import Variant

        return Variant(self.deadline_s, self.question.confidence)

    @property
    def variants(self) -> list[Variant]:
        """One's own first: it is the answer, the others are comparison."""
        return list(dict.fromkeys([self.own, *self.others]))


def plan_bag(asked: Asked) -> None:
    """Read, simulate, show. Missed (exit code 4): the deadline is impossible, or kept too seldom."""
    from windfall.cli.plan import screen
    from windfall.cli.plan.simulating import simulate
    from windfall.sim.studies.forecast import earliest_s

    ready = prepare(asked)
    for warning in ready.warnings:
        note(f"windfall: {warning}")
    soonest_s = earliest_s(ready.question)
    if isinf(soonest_s):
        raise BadInput(
            f"{asked.job}: some task fits on no machine on offer",
            hint="offer one with the memory and resources that it needs, and a limit above 0",
        )
    simulated = simulate(asked, ready, soonest_s)
    found, yours = simulated.of, simulated.of[ready.own]
    told = screen.document(ready, soonest_s, found, simulated.nearest, simulated.surer)
    if asked.as_json:
        print_json(told)
    elif any(found.values()):
        for line in screen.lines(told, yours, time.time()):
            click.echo(line)
    if asked.plot and any(found.values()):
        from windfall.figures.front import plan_picture
        from windfall.figures.saved import save
        from windfall.sim.studies.fronts import front

        same = [variant for variant in found if variant.confidence == ready.own.confidence]
        rows = front({variant: found[variant] for variant in same})
        by_deadline = {row.variant.deadline_s: row.made for row in rows}
        save(plan_picture(ready.name, ready.deadline_s, soonest_s, by_deadline), asked.plot)
        wrote(asked.plot)
    _judge(ready, soonest_s, yours, simulated)


def _judge(ready: Ready, soonest_s: float, made: Forecast | None, simulated: Found) -> None:
    question, nearest, surer = ready.question, simulated.nearest, simulated.surer
    if made is None:
        raise Missed(
            f"a deadline {show_duration(ready.deadline_s)} from now is impossible: "
            f"the earliest possible one is {show_duration(soonest_s)} from now",
            hint=f"all machines on offer together take that long; try: --deadline {ceil(soonest_s)}s",
        )
    share = made.met / len(made.runs)
    if share >= question.confidence:
        return
    late = [run.finish_s for run in made.runs if run.finish_s is None or run.finish_s > ready.deadline_s]
    finish = made.finish_s
    if (short := sum(finish_s is None for finish_s in late)) and question.budget_usd is not None:
        raise Missed(
            f"a budget of {show_usd(question.budget_usd)} is not enough in {short} of {len(made.runs)} runs, "
            f"and {question.confidence:.0%} in time are asked for",
            hint=_larger_budget(simulated.unlimited),
        )
    if nearest is not None:
        hint = (
            f"the nearest deadline found that is kept as often as asked is {show_duration(nearest.deadline_s)} from "
            f"now, for about {show_usd(nearest.cost_usd.mean)}; try: --deadline {ceil(nearest.deadline_s)}s"
        )
    elif finish is not None and isfinite(finish.high):
        hint = (
            f"of ten runs nine are done by {show_duration(finish.high)}; try: --what-if deadline={ceil(finish.high)}s"
        )
    else:
        done = "no run was done at all" if finish is None else "some runs never end"
        hint = f"{done}; try: a later --deadline, or offers with larger limits"
    if surer is not None:
        confidence, runs = surer
        hint = (
            f"planned for {100 * confidence:g}% it is in time in {runs.met} of {len(runs.runs)} runs, for about "
            f"{show_usd(runs.cost_usd.mean)}; try: --confidence {confidence:g}; otherwise {hint}"
        )
    raise Missed(
        f"planner {question.planner} is in time in {made.met} of {len(made.runs)} runs ({share:.0%}), "
        f"and {question.confidence:.0%} are asked for",
        hint=hint,
    )


def _larger_budget(unlimited: Forecast | None) -> str:
    """What the same runs cost without a budget, and the budget to try."""
    if unlimited is None or not any(run.met for run in unlimited.runs):
        return "what it costs without one: the same command without --budget; try: a larger --budget"
    most_usd, runs = max(run.cost_usd for run in unlimited.runs), len(unlimited.runs)
    enough_usd = ceil(100.0 * most_usd) / 100.0
    return (
        f"without one {unlimited.met} of {runs} runs are in time, for {show_usd(unlimited.cost_usd.mean)} on average "
        f"and {show_usd(most_usd)} at most; try: --budget {enough_usd:.2f}"
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def prepare(asked: Asked) -> Ready:
    """Everything read and checked before anything is simulated. BadInput says what is missing."""
    if _is_job(asked):
        return _running(asked)
    bag = _read(asked)
    deadline_s, compared = _compared(asked, bag.spec.deadline_s)
    assumed: list[str] = []
    warnings: list[str] = []
    spec, unknown = measured_job(bag)
    warnings += unknown
    supplies = with_fetching(_supplies(asked, tuple(spec.pools), assumed, warnings), spec.data_gb, assumed)
    budget = parse_money(asked.budget, "--budget") if asked.budget else bag.spec.budget_microusd
    question = question_of(asked, bag, supplies, None if budget is None else budget / 1e6, assumed)
    run_s = fmean(question.seen_s or question.estimates_s)
    supplies = with_task_fetching(supplies, spec.task_data_gb, run_s, question.cpus, assumed)
    question = replace(question, supplies=supplies)
    of_server = bool(asked.pools) and not asked.pools_file and not asked.offers_file
    named = of_server or bool(asked.place.address or asked.place.state)
    question = licensed(question, _needs(bag), asked.place, named, assumed)
    return Ready(bag.spec.name, question, deadline_s, compared.variants(question), assumed, warnings)


def question_of(
    asked: Asked, bag: Submission, supplies: tuple[Supply, ...], budget_usd: float | None, assumed: list[str]
) -> Question:
    """What to simulate of a bag that was read, on these markets."""
    from windfall.planning.contract import BAG
    from windfall.planning.registry import known_planner
    from windfall.sim.studies.forecast import Question

    planner = known_planner(asked.planner or bag.spec.planner, BAG)
    confidence = bag.spec.confidence if asked.confidence is None else asked.confidence
    if not 0 < confidence < 1:
        raise BadInput(f"--confidence {confidence:g}: a share between 0 and 1", hint="as in: --confidence 0.99")
    estimates_s, seen_s, spread = run_times(asked, bag, assumed)
    classes = bag.spec.task_classes()
    cpus = ceil(max(classes[number].cpus for number in set(class_numbers(bag))))
    nodes = max(classes[number].nodes for number in set(class_numbers(bag)))
    return Question(
        estimates_s=estimates_s, seen_s=seen_s, spread=spread, spread_is_guessed=spread_of(asked, bag) is None,
        told_spread=spread_of(asked, bag), cpus=cpus, nodes=nodes,
        memory_bytes=_memory(bag), supplies=supplies, planner=planner, confidence=confidence, budget_usd=budget_usd,
        resources=of_machines(largest(_needs(bag)), [supply.offer for supply in supplies]),
        free_slots=_free_slots(asked, assumed),
    )  # fmt: skip


def _needs(bag: Submission) -> list[dict[str, float]]:
    """Resources that a task needs, of each class."""
    classes = bag.spec.task_classes()
    return [dict(classes[number].resources) for number in sorted(set(class_numbers(bag)))]


def _free_slots(asked: Asked, assumed: list[str]) -> tuple[int, ...]:
    """Slots of each free host: as said, or the idle ones of the server whose pools are rented from."""
    if asked.free_hosts is not None:
        return _hosts_said(asked.free_hosts)
    if not asked.pools or asked.pools_file or asked.offers_file:
        return ()
    with asked.place.open() as client:
        rents = {row["pool"] for row in client.machines()["offers"]}
        hosts = [row for row in client.hosts() if row["state"] == "live" and row["pool"] not in rents]
    slots = tuple(row["slots"] - row["held"] for row in hosts if not row["draining"] and row["slots"] > row["held"])
    if slots:
        assumed.append(_free_words(slots))
    return slots


def _free_words(slots: Sequence[int]) -> str:
    return f"{plural(len(slots), 'free host')} with {plural(sum(slots), 'idle slot')} stay and help"


def _hosts_said(text: str) -> tuple[int, ...]:
    hosts, x, slots = text.partition("x")
    numbers = [int(part) if part.isdecimal() and len(part) < 7 else -1 for part in (hosts, slots if x else "1")]
    if numbers[0] < 0 or not 0 < numbers[1] <= MOST_SLOTS or numbers[0] * numbers[1] > MOST_FREE_SLOTS:
        raise BadInput(
            f"--free-hosts {text}: a number of hosts, and of slots of each, up to {MOST_FREE_SLOTS:,} slots in all",
            hint="as in: --free-hosts 4x8",
        )
    return (numbers[1],) * numbers[0]


def _is_job(asked: Asked) -> bool:
    """Whether a job on a server is meant: no file has that name, and it does not look like one."""
    return not Path(asked.job).exists() and not Path(asked.job).suffix and "/" not in asked.job


def _running(asked: Asked) -> Ready:
    """What is left of a job on a server, simulated from now on as if nothing were rented yet."""
    from windfall.sim.studies.left import from_the_start, offers_in, question_left

    with asked.place.open() as client:
        left = client.job(asked.job).unfinished()
    if asked.whole:
        left = from_the_start(left)
    if asked.free_hosts is not None:
        left["free_slots"] = _hosts_said(asked.free_hosts)
    there = f"as if its {plural(left['machines'], 'machine')} were not there, " if left["machines"] else ""
    assumed = [] if asked.whole else [f"{there}running tasks start again"]
    if left.get("free_slots") and not left["workflow"] and asked.free_hosts is None:
        assumed.append(_free_words(left["free_slots"]))
    warnings: list[str] = []
    if asked.offers_file or asked.pools_file or asked.pools:
        supplies = _supplies(asked, (), assumed, warnings)
    elif not (supplies := offers_in(left)):
        raise BadInput(f"job {left['job']} rents no machines", hint="say what it could rent: --offers offers.toml")
    else:
        supplies = _of_market(asked, supplies, warnings)
    question = question_left(
        left, supplies, guess_s=parse_duration(asked.estimate, "--estimate") if asked.estimate else None,
        spread=asked.spread, planner=asked.planner, confidence=asked.confidence,
        budget_usd=parse_money(asked.budget, "--budget") / 1e6 if asked.budget else None,
    )  # fmt: skip
    deadline_s, compared = _compared(asked, left["deadline_in_s"])
    return Ready(left["name"], question, deadline_s, compared.variants(question), assumed, warnings)


def _read(asked: Asked) -> Submission:
    path = asked.job
    settings = Settings(estimate=asked.estimate, deadline=asked.deadline)
    if not Path(path).is_file():
        raise BadInput(
            f"there is no file {path}", hint="a job.toml, a list of tasks, or the number or name of a job is expected"
        )
    is_job_file = path.endswith(".toml")
    request = Request(settings=settings, job_file=path) if is_job_file else Request(settings=settings, tasks=path)
    return read_job(request)


class Compared(Struct):
    """What is looked at beside one's own deadline and confidence."""

    deadline_s: float
    deadlines_s: list[float]
    confidences: list[float]

    def variants(self, question: Question) -> list[Variant]:
        """In rising order, one's own included; empty if nothing is compared."""
        from windfall.sim.studies.fronts import Variant

        found = [Variant(each_s, question.confidence) for each_s in self.deadlines_s]
        found += [Variant(self.deadline_s, each) for each in self.confidences]
        own = [Variant(self.deadline_s, question.confidence)] if found else []
        return sorted({*found, *own}, key=lambda each: (each.deadline_s, each.confidence))


def _compared(asked: Asked, said_s: float | None) -> tuple[float, Compared]:
    """The deadline, and what is looked at beside it."""
    others: list[float] = []
    confidences: list[float] = []
    if asked.what_if:
        key, equals, values = asked.what_if.partition("=")
        texts = [text.strip() for text in values.split(",") if text.strip()]
        if key.strip() == "deadline" and equals and texts:
            others = [_from_now_s(text, "--what-if") for text in texts]
        elif key.strip() == "confidence" and equals and texts:
            confidences = [_confidence(text) for text in texts]
        else:
            raise BadInput(
                f"--what-if {asked.what_if}: deadlines or confidences can be compared",
                hint="as in: --what-if deadline=1h,2h,4h, or --what-if confidence=0.8,0.95,0.99",
            )
    deadline_s = _from_now_s(asked.deadline, "--deadline") if asked.deadline else said_s
    if deadline_s is None and others:
        deadline_s = others[0]
    if deadline_s is None:
        raise BadInput("a plan needs a deadline", hint='try: --deadline 2h, or deadline = "2h" in the job file')
    if deadline_s <= 0:
        raise BadInput(f"the deadline was {show_duration(-deadline_s)} ago", hint="try: --deadline 2h")
    if asked.plot and not others:
        others = [factor * deadline_s for factor in FRONT]
    return deadline_s, Compared(deadline_s, others, confidences)


def _confidence(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise BadInput(
            f"--what-if confidence={text}: a share between 0 and 1", hint="as in: --what-if confidence=0.8,0.95,0.99"
        )
    return value


def _from_now_s(text: str, option: str) -> float:
    return parse_deadline(text, time.time(), field=option).in_s


def _memory(bag: Submission) -> tuple[int, ...]:
    needs = [0 if klass.memory is None else klass.memory.of_attempt(1) for klass in bag.spec.task_classes()]
    return tuple(needs[number] for number in class_numbers(bag))


# --- what may be rented -----------------------------------------------------------------------------------------------


def _supplies(asked: Asked, pools: tuple[str, ...], assumed: list[str], warnings: list[str]) -> tuple[Supply, ...]:
    if asked.offers_file and (asked.pools_file or asked.pools):
        option = "--pools" if asked.pools_file else "--pool"
        raise BadInput(f"--offers and {option} both say what may be rented", hint="leave one of them out")
    if asked.pools_file:
        supplies = _from_pools(asked.pools_file, asked.pools or pools, assumed)
    elif asked.offers_file:
        supplies = _from_offers(asked, assumed)
    elif asked.pools:
        supplies = from_server(asked, assumed)
    else:
        raise BadInput(
            "plan needs to know what may be rented",
            hint="try: --offers examples/offers.toml (copy it and put your prices in), or --pools pools.toml",
        )
    return _of_market(asked, supplies, warnings)


def _of_market(asked: Asked, supplies: tuple[Supply, ...], warnings: list[str]) -> tuple[Supply, ...]:
    supplies = tuple(supply for supply in supplies if asked.market in ("any", supply.offer.market))
    if not supplies:
        raise BadInput(f"there is no offer of market '{asked.market}'", hint="try: --market any")
    if all(supply.offer.market == "spot" for supply in supplies):
        warnings.append("nothing on demand is offered, so no deadline can be promised: all spot may vanish at once")
    return supplies


def _from_offers(asked: Asked, assumed: list[str]) -> tuple[Supply, ...]:
    from windfall.sim.studies.forecast import supply_of
    from windfall.workflows.offers import read_offers

    assert asked.offers_file is not None
    offers = read_offers(asked.offers_file)
    series = _series(asked.traces, offers)
    unknown = [o for o in offers if o.market == "spot" and o.name not in series and o.interruptions_per_h is None]
    if unknown:
        from windfall.planning.bags.prices import USUAL_INTERRUPTIONS_PER_H

        names = ", ".join(offer.name for offer in unknown)
        assumed.append(
            f"{names}: a machine is interrupted every {60 / USUAL_INTERRUPTIONS_PER_H:g} min on average   "
            f"(nothing is known: interruptions_per_h in {asked.offers_file}, or --trace)"
        )
    unknown = [o for o in offers if o.market == "spot" and o.when_taken != "terminate" and o.resumes_per_h is None]
    if unknown := [offer for offer in unknown if offer.name not in series]:
        from windfall.planning.bags.prices import USUAL_RESUMES_PER_H

        names = ", ".join(offer.name for offer in unknown)
        assumed.append(f"{names}: it resumes {60 / USUAL_RESUMES_PER_H:g} min later on average")
    return tuple(supply_of(offer, series.get(offer.name)) for offer in offers)


def _series(traces: tuple[str, ...], offers: tuple[Offer, ...]) -> dict[str, Any]:
    """Availability by the name of a spot offer: `--trace FILE` for all of them, `--trace OFFER=FILE` for one."""
    from windfall.lab.data import root
    from windfall.sim.inputs.traces import availability

    spot = [offer.name for offer in offers if offer.market == "spot"]
    found: dict[str, Any] = {}
    for text in traces:
        name, equals, file = text.partition("=")
        if equals and name not in spot:
            near = get_close_matches(name, spot, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"spot offers are: {', '.join(spot) or 'none'}"
            raise BadInput(f"--trace {text}: there is no spot offer '{name}'", hint=hint)
        series = availability(file if equals else text, "--trace", Path("here"), root())
        found |= dict.fromkeys([name] if equals else spot, series)
    return found


def _from_pools(file: str, names: tuple[str, ...], assumed: list[str]) -> tuple[Supply, ...]:
    """The markets of the pools of a pools.toml, in real seconds, as `windfall run` would rent from them."""
    from windfall.pools.config import read_pools

    if found := supplies_of(read_pools(Path(file)), names, file, assumed):
        return found
    raise BadInput(f"{file}: no pool in it rents machines", hint='those of kind = "emulated" and "ec2" do')


def supplies_of(configured: Sequence[Any], names: tuple[str, ...], file: str, assumed: list[str]) -> tuple[Supply, ...]:
    """The markets of the pools that rent machines; of those with these names, if any are given."""
    from windfall.pools.config import rents
    from windfall.pools.emulated.config import CloudSettings

    pools = {pool.name: pool for pool in configured if rents(pool)}
    if missing := next((name for name in names if name not in pools), None):
        hint = f"those that do: {', '.join(pools) or 'none'}"
        raise BadInput(f"{file}: there is no pool '{missing}' that rents machines", hint=hint)
    chosen = names or tuple(pools)
    found: list[Supply] = []
    for name in chosen:
        if isinstance(pools[name].settings, CloudSettings):
            found += _of_emulated(pools[name], file, assumed)
        else:
            found += _of_offers(pools[name].of.offers(pools[name]) if pools[name].of.offers else (), assumed)
    return tuple(_of_pool(supply) for supply in found) if len(chosen) > 1 else tuple(found)


def _of_pool(supply: Supply) -> Supply:
    """The same under a name that tells it from those of other pools."""
    return replace(supply, offer=replace(supply.offer, name=f"{supply.offer.pool}:{supply.offer.name}"))


def _of_emulated(pool: Any, file: str, assumed: list[str]) -> list[Supply]:
    from windfall.pools.emulated.config import cloud_of

    rented = cloud_of(pool, file).rented
    both = [each.offer.name for each in rented if each.hibernations and each.terminations]
    if both:
        assumed.append(f"{', '.join(both)}: hibernated only; that it is terminated as well is not simulated")
    return [_supply(each) for each in rented]


def _of_offers(offers: Sequence[Offer], assumed: list[str]) -> list[Supply]:
    """Offers of a real cloud at the prices of now; what is not known of their interruptions is assumed."""
    from windfall.planning.bags.prices import USUAL_INTERRUPTIONS_PER_H
    from windfall.sim.studies.forecast import supply_of

    spot = [offer for offer in offers if offer.market == "spot"]
    if unknown := [offer for offer in spot if offer.interruptions_per_h is None]:
        assumed.append(
            f"spot of {unknown[0].pool}: a machine is taken every {60 / USUAL_INTERRUPTIONS_PER_H:g} min on average   "
            "(nothing is known: interruptions_per_h in pools.toml)"
        )
    if offers:
        moving = [offer for offer in offers if offer.price_moves is not None]
        moves = "move as they were seen to" if moving else "stay as they are now"
        assumed.append(f"prices of {offers[0].pool} {moves}")
    return [supply_of(offer) for offer in offers]


def from_server(asked: Asked, assumed: list[str]) -> tuple[Supply, ...]:
    """What the pools of a running server rent, at the prices of now."""
    with asked.place.open() as client:
        rows = client.machines()["offers"]
        learned = {(row["pool"], row["offer"]): row for row in client.market()}
    known = sorted({row["pool"] for row in rows})
    if missing := next((name for name in asked.pools if name not in known), None):
        hint = f"those that do: {', '.join(known)}" if known else "or name a file: --pools pools.toml"
        raise BadInput(f"the server has no pool '{missing}' that rents machines", hint=hint)
    offers = [_as_learned(offer_of_row(row), learned) for row in rows if row["pool"] in asked.pools]
    supplies = [supply for name in asked.pools for supply in _of_offers([o for o in offers if o.pool == name], assumed)]
    return tuple(_of_pool(supply) for supply in supplies) if len(asked.pools) > 1 else tuple(supplies)


def _as_learned(offer: Offer, learned: dict[tuple[str, str], LearnedOffer]) -> Offer:
    """The offer with the rates and the law of prices that the server has learned, if it has seen anything of it."""
    from windfall.planning.offers import PriceLaw

    row = learned.get((offer.pool, offer.name))
    if row is None:
        return offer
    changes: dict[str, Any] = {}
    if row["interrupted_per_h"] is not None and (row["launches"] or row["refused"] or row["sources"]):
        changes |= {"interruptions_per_h": row["interrupted_per_h"], "resumes_per_h": row["resumed_per_h"]}
    if row["price_moves"] is not None:
        changes["price_moves"] = PriceLaw(**row["price_moves"])
    return replace(offer, **changes)


def offer_of_row(row: dict[str, Any]) -> Offer:
    """The offer that a server shows."""
    from windfall.planning.offers import Offer

    fields = {key: value for key, value in row.items() if key in Offer.__struct_fields__}
    memory_gb = inf if row["memory_gb"] is None else row["memory_gb"]
    return Offer(**{**fields, "name": row["offer"], "memory_gb": memory_gb})


def _supply(rented: Any) -> Supply:
    from windfall.sim.clouds.market import Supply
    from windfall.sim.inputs.laws import NEVER, RandomLaw, fixed
    from windfall.sim.inputs.traces import Series

    offer = rented.offer
    ticks = None
    if rented.trace is not None:
        ticks = Series(rented.trace.gap_s, tuple(map(float, rented.trace.counts)))
        offer = replace(offer, limit=offer.limit or max(1, ceil(max(rented.trace.counts))))
    return Supply(
        offer=offer,
        boot=fixed(offer.lag_s + WORKER_START_S),
        refusals=rented.capacity_errors,
        interruptions_per_h=3600.0 * (rented.hibernations or rented.terminations),
        hibernated=RandomLaw("exponential", {"mean": 1.0 / rented.resumes}) if rented.resumes else NEVER,
        ticks=ticks,
    )
