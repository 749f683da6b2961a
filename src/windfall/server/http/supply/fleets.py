"""Fleets over HTTP: created, listed, paused, drained, deleted, and what they cost. Decides nothing."""

from __future__ import annotations

import math

from msgspec.structs import replace
from starlette.requests import Request

from windfall.api.renting import FleetCost, FleetFacts, FleetJob, FleetJobCost, FleetMachine, FleetRow, Fleets, OneFleet
from windfall.api.requests import FleetBody, FleetChangeBody
from windfall.bags.spec import JobSpec
from windfall.core import events as ev
from windfall.core.decisions import FleetSettled
from windfall.core.explain import sharing
from windfall.core.renting import money, shares
from windfall.core.renting.fleets import jobs_in
from windfall.core.renting.machines import after_stop_microusd, machines_of
from windfall.core.state.renting.budgets import limit_of
from windfall.core.state.renting.fleet import PENDING, REFUSED, MachineState
from windfall.core.state.renting.fleets import DELETED, DRAINING, OPEN, PAUSED, FleetRules, NamedFleet, budget_since_t
from windfall.core.state.state import State
from windfall.errors import BadInput
from windfall.server.http.bodies import typed_body
from windfall.server.http.supply.machines import check_sets
from windfall.server.queries.renting.money import bill_row
from windfall.server.service import NotFound, Service

MODES = {"pause": PAUSED, "resume": OPEN, "drain": DRAINING}
PLANNERS = ("windfall", "scs", "greedy", "gain")
"""Known here by name: the planners themselves load seconds of libraries."""


async def create(service: Service, request: Request) -> tuple[int, FleetRow]:
    body = await typed_body(request, FleetBody)
    if not body.name.strip() or not body.name.isprintable() or body.name.strip() != body.name:
        raise BadInput("a fleet needs a name of printable characters", hint="as in: windfall fleet create night")
    if body.name.isdecimal():
        raise BadInput(f"'{body.name}' is a number: jobs have numbers", hint="give the fleet a name with letters")
    check_pools(service, body.pools)
    _check_planner(body.planner)
    pools, budget = list(dict.fromkeys(body.pools)), _budget(body.budget_usd)
    rules = FleetRules(
        body.name, pools, body.planner, budget, body.budget_s, owner_shares=body.owner_shares,
        owner_caps=body.owner_caps,
    )  # fmt: skip
    settled = await _submitted(service, ev.FleetCreated(service.driver.clock(), rules), "fleet-exists")
    return 201, row(service, service.state.fleet.book.by_number[settled.number])


def _check_planner(planner: str) -> None:
    if planner and planner not in PLANNERS:
        raise BadInput(f"there is no planner '{planner}' for fleets", hint=f"one of: {', '.join(PLANNERS)}")


def _budget(budget_usd: float | None) -> int | None:
    budget = None if budget_usd is None else money.microusd(budget_usd)
    if budget == 0:
        raise BadInput("a budget below a micro-dollar rents nothing", hint="leave it out for no limit")
    return budget


async def change(service: Service, request: Request) -> tuple[int, FleetRow]:
    """Other rules for a fleet, from the next plan on."""
    fleet = found(service, request.path_params["fleet"])
    body = await typed_body(request, FleetChangeBody)
    if body.no_budget and body.budget_usd is not None:
        raise BadInput("a fleet has a budget or none", hint="say budget_usd or no_budget")
    if body.planner is not None:
        _check_planner(body.planner)
    rules = fleet.rules
    shares_, caps = rules.owner_shares | body.owner_shares, rules.owner_caps | body.owner_caps
    changed = replace(
        rules,
        planner=rules.planner if body.planner is None else body.planner,
        budget_microusd=None if body.no_budget else _budget(body.budget_usd) or rules.budget_microusd,
        budget_s=body.budget_s or rules.budget_s,
        owner_shares={owner: share for owner, share in shares_.items() if share is not None},
        owner_caps={owner: cap for owner, cap in caps.items() if cap is not None},
    )
    event = ev.FleetChanged(service.driver.clock(), fleet.number, None, changed)
    await _submitted(service, event, "fleet-refused")
    return 200, row(service, fleet)


def check_pools(service: Service, pools: list[str]) -> None:
    """Refuse pools that rent nothing here."""
    renting = service.rented.pools if service.rented is not None else {}
    for pool in pools:
        if pool not in renting:
            names = ", ".join(renting)
            hint = f"those that do: {names}" if names else "name the file that describes it: --pools pools.toml"
            raise BadInput(f"there is no pool '{pool}' that rents machines", hint=hint, code="no-such-pool")


async def _submitted(service: Service, event: ev.FleetCreated | ev.FleetChanged, code: str) -> FleetSettled:
    (record,) = await service.driver.submit([event])
    settled = record.decided
    assert isinstance(settled, FleetSettled)
    if settled.refused:
        hint = (
            "see them: windfall fleet list"
            if code == "fleet-exists"
            else "wait for them: windfall wait JOB; or cancel them: windfall cancel JOB"
        )
        raise BadInput(settled.refused, hint=hint, code=code)
    return settled


def found(service: Service, name: str) -> NamedFleet:
    number = service.state.fleet.book.by_name.get(name)
    if number is None:
        known = ", ".join(service.state.fleet.book.by_name)
        hint = f"there are: {known}" if known else "create one: windfall fleet create NAME --pool POOL"
        raise NotFound(f"there is no fleet '{name}'", hint=hint, code="no-such-fleet")
    return service.state.fleet.book.by_number[number]


async def fleets(service: Service, request: Request) -> tuple[int, Fleets]:
    book = service.state.fleet.book
    return 200, {"fleets": [row(service, book.by_number[number]) for number in book.by_name.values()]}


def row(service: Service, fleet: NamedFleet) -> FleetRow:
    """One fleet: what it is told, what it has, what it costs. A public contract: docs/reference/cli.md."""
    state = service.state
    jobs, machines = len(state.fleet.book.active[fleet.number]), len(state.fleet.there_of.get(fleet.number, {}))
    return {**_facts(service, fleet), "jobs": jobs, "machines": machines}


def _facts(service: Service, fleet: NamedFleet) -> FleetFacts:
    state, now, rules = service.state, service.driver.clock(), fleet.rules
    there = list(state.fleet.there_of.get(fleet.number, {}).values())
    charged = shares.charged(state, fleet.number, now)
    limit, until_t = limit_of(state, fleet.number, now)
    spent = sum(charged.values())
    return {
        "fleet": rules.name,
        "number": fleet.number,
        "mode": fleet.mode,
        "pools": list(rules.pools),
        "planner": rules.planner or "windfall",
        "created_s": fleet.created_t,
        "jobs_ever": fleet.forgotten_jobs + sum(number == fleet.number for number in state.fleet.book.of_job.values()),
        "pending": sum(machine.phase == PENDING for machine in there),
        "idle": sum(machine.idle and machine.phase != PENDING for machine in there),
        "spent_usd": money.usd(spent),
        "idle_usd": money.usd(charged.get(shares.FLEET, 0)),
        "budget_usd": None if rules.budget_microusd is None else money.usd(rules.budget_microusd),
        "budget_s": None if rules.budget_microusd is None else rules.budget_s,
        "budget_left_usd": None if limit is None else money.usd(max(0, limit - spent)),
        "budget_since_s": None if limit is None else budget_since_t(fleet, now),
        "budget_until_s": None if math.isinf(until_t) else until_t,
        "shares_pools_with": _beside(service, fleet),
        "owner_shares": rules.owner_shares,
        "owner_caps": rules.owner_caps,
    }


def _beside(service: Service, fleet: NamedFleet) -> list[str]:
    """Other fleets that rent from the same pools: the limits of their offers are shared."""
    book, mine = service.state.fleet.book, set(fleet.rules.pools)
    others = (book.by_number[number] for number in book.by_name.values() if number != fleet.number)
    return [other.rules.name for other in others if mine & set(other.rules.pools)]


async def one(service: Service, request: Request) -> tuple[int, OneFleet]:
    """A fleet with its unfinished jobs, its machines and which jobs share them, and its last plan."""
    fleet = found(service, request.path_params["fleet"])
    await service.driver.settled()
    state, now = service.state, service.driver.clock()
    planned = state.fleet.plans[fleet.number]
    plan = planned.plan
    return 200, {
        **row(service, fleet),
        "unfinished": [_job(service, number) for number in jobs_in(state, fleet.number)[:1000]],
        "there": [_machine(service, machine, now) for machine in state.fleet.there_of.get(fleet.number, {}).values()],
        "plans": planned.plans,
        "because": [] if plan is None else plan.because,
        "refused": planned.refused,
        "error": planned.error,
        "look_again_s": None if math.isinf(planned.replan_t) else planned.replan_t,
    }


def _job(service: Service, number: int) -> FleetJob:
    bag = service.state.bags[number]
    deadline_s = bag.rules.deadline_s
    return {
        "job": number,
        "name": bag.rules.name,
        "state": bag.state,
        "owner": bag.rules.owner,
        "total": bag.total,
        "unfinished": bag.counts[0] + bag.counts[1],
        "deadline_s": None if deadline_s is None else bag.submitted_t + deadline_s,
    }


def _machine(service: Service, machine: MachineState, now: float) -> FleetMachine:
    """A machine, what each job has used of it, and why they share it."""
    told = sharing.of_machine(service.state, machine, now)
    return {**bill_row(machine, now), "jobs": told["jobs"], "because": told["because"]}


async def switch(service: Service, request: Request) -> tuple[int, FleetRow]:
    fleet, action = found(service, request.path_params["fleet"]), request.path_params["action"]
    if action not in MODES:
        raise NotFound(f"a fleet cannot be told to '{action}'", hint="pause, resume, drain")
    await _submitted(service, ev.FleetChanged(service.driver.clock(), fleet.number, MODES[action]), "fleet-refused")
    return 200, row(service, fleet)


async def delete(service: Service, request: Request) -> tuple[int, FleetRow]:
    fleet = found(service, request.path_params["fleet"])
    await _submitted(service, ev.FleetChanged(service.driver.clock(), fleet.number, DELETED), "fleet-in-use")
    return 200, row(service, fleet)


async def cost(service: Service, request: Request) -> tuple[int, FleetCost]:
    """The exact bill of a fleet: by machine, and by job with what was idle; both add up to the same sum."""
    fleet = found(service, request.path_params["fleet"])
    await service.driver.settled()
    state, now = service.state, service.driver.clock()
    machines = [bill_row(machine, now) for machine in machines_of(state, fleet.number) if machine.cause != REFUSED]
    charged = shares.charged(state, fleet.number, now)
    jobs = [_job_cost(state, job, part) for job, part in sorted(charged.items()) if job != shares.FLEET]
    return 200, {
        **_facts(service, fleet),
        "jobs": jobs,
        "machines": machines,
        "spent_microusd": sum(row["cost_microusd"] for row in machines),
        "idle_microusd": charged.get(shares.FLEET, 0),
        "after_stop_microusd": after_stop_microusd(state, fleet.number, now),
    }


def _job_cost(state: State, job: int, microusd: int) -> FleetJobCost:
    bag, paid = state.bags.get(job), state.fleet.ledger.jobs.get(job)
    name = bag.rules.name if bag is not None else "" if paid is None else paid.name
    return {
        "job": job, "name": name, "state": "forgotten" if bag is None else bag.state, "cost_microusd": microusd,
        "cost_usd": money.usd(microusd),
    }  # fmt: skip


def check_fleet(service: Service, spec: JobSpec, is_workflow: bool = False) -> None:
    """Refuse a job whose fleet would not take it."""
    if not spec.fleet:
        return
    fleet = found(service, spec.fleet)
    check_sets(service, spec, fleet.rules.pools, is_workflow)
    if fleet.mode == DRAINING:
        raise BadInput(
            f"fleet '{spec.fleet}' is being drained and takes no jobs",
            hint=f"open it again: windfall fleet resume {spec.fleet}", code="fleet-drained",
        )  # fmt: skip
    if spec.deadline_s is None:
        raise BadInput(f"a job in fleet '{spec.fleet}' needs a deadline", hint="as in: --deadline 2h")
    for name, value in (("pools", spec.pools), ("planner", spec.planner), ("budget", spec.budget_microusd)):
        if value:
            raise BadInput(
                f"'{name}' is said by fleet '{spec.fleet}' for all its jobs", hint=f"leave {name} out, or the fleet"
            )


__all__ = ["change", "check_fleet", "cost", "create", "delete", "fleets", "one", "switch"]
