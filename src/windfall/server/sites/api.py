"""Sites over HTTP: make one, look at it, ask for a command to be run, cancel, read what it wrote. Decides nothing."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from windfall.api.sites import InstanceRow, Note, OneSite, Requests, SiteHost, SiteRow, Sites
from windfall.bags.spec import check_texts
from windfall.bounds import MAX_ATTRIBUTES, MAX_INSTANCE_BYTES, Amount, Count, FileName, Name, Seconds, Text
from windfall.core.decisions import SiteSettled
from windfall.core.events import InstanceCancelled, InstanceRequested
from windfall.core.sites.checks import check_amounts, check_site
from windfall.core.sites.instances import ENDED, LEAVING, OPEN, REFUSED, WAITING, Instance, SiteRules, SiteState, Wish
from windfall.core.sites.review import evictions_per_h
from windfall.core.sites.scratch import COSTS
from windfall.core.sites.site import room, why_now
from windfall.errors import BadInput
from windfall.placement.explain import shown_cost
from windfall.pools.config import is_name
from windfall.pools.site import review_rules
from windfall.server.http.bodies import typed_body
from windfall.server.limits import TooLarge
from windfall.server.queries.jobs import NO_OUTPUT, Packed, frame, from_query
from windfall.server.service import NotFound, Service, decimal
from windfall.server.sites.exchange import output_key
from windfall.units import parse_duration

OVER = frozenset({ENDED, REFUSED})
_unpack = msgspec.msgpack.Decoder(Packed).decode


class SiteBody(Struct, forbid_unknown_fields=True):
    """`POST /v1/sites`."""

    name: Name
    instance: dict[Name, float]
    limit: Count = 1000
    grace: Name | Seconds = "10s"
    cost: Name = "work"
    idle_exit: Name | Seconds = "1m"
    price_usd: Amount = 0.0
    weighers: dict[Name, float] = {}
    only_tags: Annotated[list[Name], Meta(max_length=MAX_ATTRIBUTES)] = []
    market: bool = False
    reserve_usd: Amount = 0.0
    bid_usd: Amount = 0.0
    consolidate: Name | Seconds | None = None
    power_usd: Amount = 0.0
    review: Name | Seconds = "1m"
    cycle: Name | Seconds = "1h"


class SiteChangeBody(Struct, forbid_unknown_fields=True):
    """`POST /v1/sites/SITE/change`: what is left out stays. Of `instance` only the resources that are named change."""

    instance: dict[Name, float] = {}
    limit: Count | UnsetType = UNSET
    grace: Name | Seconds | UnsetType = UNSET
    cost: Name | UnsetType = UNSET
    idle_exit: Name | Seconds | UnsetType = UNSET
    price_usd: Amount | UnsetType = UNSET
    weighers: dict[Name, float] | UnsetType = UNSET
    only_tags: Annotated[list[Name], Meta(max_length=MAX_ATTRIBUTES)] | UnsetType = UNSET
    market: bool | UnsetType = UNSET
    reserve_usd: Amount | UnsetType = UNSET
    bid_usd: Amount | UnsetType = UNSET
    consolidate: Name | Seconds | UnsetType | None = UNSET
    power_usd: Amount | UnsetType = UNSET
    review: Name | Seconds | UnsetType = UNSET
    cycle: Name | Seconds | UnsetType = UNSET


class RequestBody(Struct, forbid_unknown_fields=True):
    """`POST /v1/site/requests`."""

    resources: dict[Name, float]
    command: list[str]
    site: Name = ""
    for_s: Seconds | None = None
    queue: bool = True
    tags: Annotated[list[Name], Meta(max_length=MAX_ATTRIBUTES)] = []
    env: dict[str, str] = {}
    cwd: FileName | None = None
    grace_s: Seconds = 10.0
    key: Name = ""
    bid_usd: Amount | None = None


class CancelRequestBody(Struct):
    """`POST /v1/site/requests/REQUEST/cancel`."""

    reason: Text | None = None


# --- sites ----------------------------------------------------------------------------------------------------------


async def create(service: Service, request: Request) -> tuple[int, SiteRow]:
    body = await typed_body(request, SiteBody)
    if not is_name(body.name):
        raise BadInput(f"'{body.name}' is not a name", hint="letters, digits, '.', '_' and '-', at most 60")
    pool = service.state.supply.pools.get(body.name)
    if pool is not None and pool.rules.kind != "site":
        raise BadInput(f"a pool of kind {pool.rules.kind} is called '{body.name}'", hint="choose another name")
    rules = SiteRules(
        body.name, body.instance, body.limit, parse_duration(body.grace, "grace"), body.cost,
        parse_duration(body.idle_exit, "idle_exit"), body.price_usd, weighers=body.weighers, only_tags=body.only_tags,
        review=review_rules(
            body.market, body.reserve_usd, body.bid_usd, body.consolidate, body.power_usd, body.review,
            body.cycle,
        ),
    )  # fmt: skip
    check_site(rules, f"site '{body.name}'")
    await service.owned.create(rules)
    return 201, site_row(service, service.state.sites[body.name])


async def change(service: Service, request: Request) -> tuple[int, SiteRow]:
    """Other rules for a site, as far as they are named."""
    owned = find_site(service, request.path_params["site"])
    body = await typed_body(request, SiteChangeBody)
    said = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    rules = owned.rules
    plain = {name: said[name] for name in ("limit", "cost", "price_usd", "weighers", "only_tags") if name in said}
    times = {f"{name}_s": parse_duration(said[name], name) for name in ("grace", "idle_exit") if name in said}
    review = msgspec.structs.asdict(rules.review)
    review |= {"consolidate": rules.review.consolidate_s, "review": rules.review.every_s, "cycle": rules.review.cycle_s}
    if body.market is False:
        review |= {"reserve_usd": 0.0, "bid_usd": 0.0}  # they belong to the market
    review |= said
    changed = replace(
        rules,
        instance=rules.instance | body.instance,
        review=review_rules(
            review["market"], review["reserve_usd"], review["bid_usd"], review["consolidate"], review["power_usd"],
            review["review"], review["cycle"],
        ),
        **plain,
        **times,
    )  # fmt: skip
    check_site(changed, f"site '{rules.name}'")
    await service.owned.create(changed)
    return 200, site_row(service, service.state.sites[rules.name])


async def sites(service: Service, request: Request) -> tuple[int, Sites]:
    return 200, {"sites": [site_row(service, owned) for owned in service.state.sites.values()]}


async def one_site(service: Service, request: Request) -> tuple[int, OneSite]:
    owned = find_site(service, request.path_params["site"])
    now = service.driver.clock()
    hosts: list[SiteHost] = []
    for host in owned.hosts.values():
        here = owned.on(host.name)
        used = {name: sum(one.resources.get(name, 0) for one in here) for name in host.capacity}
        hosts.append(
            {
                "host": host.name,
                "state": host.state,
                "capacity": host.capacity,
                "used": used,
                "tags": host.tags,
                "seen_s_ago": max(0.0, now - host.seen_t),
                "left": host.left,
                "instances": [instance_row(owned, one) for one in here],
            }
        )
    notes: list[Note] = [{"t": t, "text": text} for t, text in owned.notes]
    evictions = evictions_per_h(owned, now)
    return 200, {**site_row(service, owned), "hosts": hosts, "notes": notes, "evictions_per_h": evictions}


def find_site(service: Service, name: str) -> SiteState:
    """A site by name; without one, the only one."""
    owned = service.state.sites
    if not name and len(owned) == 1:
        return next(iter(owned.values()))
    if name in owned:
        return owned[name]
    if not owned:
        hint = "make one: windfall site create lab --instance-vcpu 1 --instance-ram 1000"
        raise NotFound("there is no site", hint=hint, code="no-such-site")
    what = f"there is no site '{name}'" if name else f"there are {len(owned)} sites: name one"
    raise NotFound(what, hint=f"the sites are: {', '.join(owned)}", code="no-such-site")


def site_row(service: Service, owned: SiteState) -> SiteRow:
    rules, instances = owned.rules, owned.instances.values()
    here = [one for one in instances if one.state in OPEN]
    return {
        "site": rules.name,
        "hosts_live": sum(host.state == "live" for host in owned.hosts.values()),
        "instance": rules.instance,
        "slots": rules.slots,
        "limit": rules.limit,
        "grace_s": rules.grace_s,
        "cost": rules.cost,
        "idle_exit_s": rules.idle_exit_s,
        "price_usd": rules.price_usd,
        "weighers": rules.weighers,
        "only_tags": rules.only_tags,
        "market": rules.review.market,
        "reserve_usd": rules.review.reserve_usd,
        "bid_usd": rules.review.bid_usd,
        "consolidate_s": rules.review.consolidate_s,
        "power_usd": rules.review.power_usd,
        "review_s": rules.review.every_s,
        "cycle_s": rules.review.cycle_s,
        "market_price_usd": owned.price_usd,
        "preemptible": sum(one.preemptible for one in here),
        "normal": sum(not one.preemptible for one in here),
        "leaving": sum(one.state == LEAVING for one in here),
        "waiting": len(owned.waiting()),
        "room": room(owned),
    }


# --- requests -------------------------------------------------------------------------------------------------------


async def ask(service: Service, request: Request) -> tuple[int, InstanceRow]:
    body = await typed_body(request, RequestBody)
    owned = find_site(service, body.site)
    check_amounts(body.resources, "resources")
    if not body.command:
        raise BadInput("the command is empty", hint="as in: windfall site request --vcpu 4 -- ./serve --port 8000")
    if body.bid_usd is not None and not owned.rules.review.market:
        hint = f"switch it on: windfall site change {owned.rules.name} --market"
        raise BadInput(f"site '{owned.rules.name}' has no market to bid in", hint=hint)
    check_texts([*body.command, *body.env, *body.env.values(), body.cwd or ""], "the request")
    size = sum(len(text.encode()) for text in (*body.command, *body.env, *body.env.values()))
    if size > MAX_INSTANCE_BYTES:
        hint = f"at most {MAX_INSTANCE_BYTES:,}: give it a file by its path instead"
        raise TooLarge(f"command and environment have {size:,} bytes", limit=MAX_INSTANCE_BYTES, hint=hint)
    wish = Wish(
        body.resources,
        body.command,
        body.for_s or None,
        body.queue,
        body.tags,
        body.env,
        body.cwd,
        body.grace_s,
        body.key,
        body.bid_usd,
    )
    record = (await service.driver.submit([InstanceRequested(service.driver.clock(), owned.rules.name, wish)]))[0]
    assert isinstance(record.decided, SiteSettled)
    return 201, instance_row(owned, owned.instances[record.decided.number])


async def requests(service: Service, request: Request) -> tuple[int, Requests]:
    named = request.query_params.get("site") or ""
    wanted = request.query_params.get("state")
    chosen = [find_site(service, named)] if named else list(service.state.sites.values())
    rows = [
        instance_row(owned, one)
        for owned in chosen
        for one in reversed(owned.instances.values())
        if not one.is_worker and (not wanted or one.state == wanted)
    ]
    return 200, {"requests": rows}


async def one_request(service: Service, request: Request) -> tuple[int, InstanceRow]:
    """One request; `wait_s` waits for another state than `state`, or for its end."""
    owned, one = find_request(service, request.path_params["request"])
    wait_s = from_query(request, "wait_s", 0.0)
    if wait_s > 0:
        before = request.query_params.get("state")
        await service.change(lambda: one.state in OVER or (before is not None and one.state != before), wait_s)
    await service.driver.settled()
    row = instance_row(owned, one)
    if one.state == WAITING:
        row["why"] = why_now(service.state, owned, service.driver.engine.policies.sites, one, service.driver.clock())
    return 200, row


async def cancel(service: Service, request: Request) -> tuple[int, InstanceRow]:
    owned, one = find_request(service, request.path_params["request"])
    body = await typed_body(request, CancelRequestBody)
    event = InstanceCancelled(service.driver.clock(), owned.rules.name, one.number, body.reason or "")
    if one.state not in OVER:
        await service.driver.submit([event])
    return 200, instance_row(owned, one)


async def output(service: Service, request: Request) -> Response:
    """*Frame*: what a request that has ended wrote."""
    owned, one = find_request(service, request.path_params["request"])
    data = await asyncio.to_thread(service.store.output, *output_key(service, owned, one.number))
    stdout, stderr, _, _ = _unpack(data) if data else NO_OUTPUT
    header = {"request": owned.name_of(one.number), "ended": one.state in OVER}
    return frame(header | {"n_stdout": len(stdout), "n_stderr": len(stderr)}, [stdout, stderr])


def find_request(service: Service, reference: str) -> tuple[SiteState, Instance]:
    """A request by name (`lab-17`), by number where there is one site, or `last`."""
    name, _, text = reference.rpartition("-")
    if reference == "last":
        found = [(owned, one) for owned in service.state.sites.values() for one in owned.instances.values() if one.wish]
        if found:
            return max(found, key=lambda pair: pair[1].asked_t)
    elif (number := decimal(text)) is not None:
        owned = find_site(service, name)
        one = owned.instances.get(number)
        if one is not None and one.wish is not None:
            return owned, one
    raise NotFound(
        f"there is no request '{reference}'", hint="see them: windfall site requests", code="no-such-request"
    )


def instance_row(owned: SiteState, one: Instance) -> InstanceRow:
    cost = COSTS[owned.rules.cost]
    row: InstanceRow = {
        "name": owned.name_of(one.number),
        "site": owned.rules.name,
        "preemptible": one.preemptible,
        "state": one.state,
        "host": one.host or None,
        "resources": one.resources,
        "asked_s": one.asked_t,
        "placed_s": one.placed_t,
        "started_s": one.started_t,
        "ended_s": one.ended_t,
        "cause": one.cause or None,
        "exit_code": one.exit,
        "text": one.text,
    }
    if one.wish is None:
        evicted_by = one.evicted_by
        return {**row, "evicted_by": None if evicted_by is None else owned.name_of(evicted_by)}
    return {
        **row,
        "command": one.wish.argv,
        "for_s": one.wish.wall_s,
        "queue": one.wish.queue,
        "bid_usd": one.wish.bid_usd,
        "tags": one.wish.tags,
        "victims": [owned.name_of(victim) for victim in one.victims],
        "cost": shown_cost(cost, one.cost),
        "cost_unit": cost.unit,
        "grace_s": owned.rules.grace_s if one.victims else 0.0,
        "why": one.why,
        "rss_bytes": one.rss_bytes,
    }
