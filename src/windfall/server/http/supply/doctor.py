"""`windfall pool doctor`: what a pool needs, and a worker started and ended on trial. Touches that pool, by threads."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request

from windfall.api.requests import DoctorBody
from windfall.api.small import Examined
from windfall.core.events import HostsEnded
from windfall.core.sites.instances import SiteState
from windfall.core.state.hosts.hosts import GONE
from windfall.drivers.keepers.answers import guarded
from windfall.drivers.keepers.supply import OrderedWorkers, trial_host
from windfall.planning.contract import SPOT
from windfall.pools.contract import ENDED, INVALID, Check, Order, Pool, PoolError, Seen
from windfall.server.http.bodies import typed_body
from windfall.server.service import NotFound, Service

_POLL_S = 0.25
_END_S = 20.0
_GENTLY_S = 3.0


async def doctor(service: Service, request: Request) -> tuple[int, Examined]:
    """What is wrong with a pool, and what to do about it."""
    name = request.path_params["pool"]
    body = await typed_body(request, DoctorBody)
    source = service.asked.sources.get(name) if service.asked is not None else None
    checks, waits = list[Check](), False
    if isinstance(source, OrderedWorkers):
        checks = await asyncio.to_thread(_examined, source.pool)
    elif service.rented is not None and name in service.rented.pools:
        source = OrderedWorkers(name, 1, service.rented.pools[name])
        checks = await asyncio.to_thread(_examined, source.pool)
    elif (site := service.state.sites.get(name)) is not None:
        checks = [_offered(site)]
    elif name in service.state.supply.pools:
        checks = [Check("its workers come by themselves: nothing is asked of it")]
    else:
        raise NotFound(f"there is no pool '{name}'", hint="see them: windfall pool list", code="no-such-pool")
    ok = not any(check.error for check in checks)
    if body.trial and ok and isinstance(source, OrderedWorkers):
        found = await _tried(service, source, body)
        checks += [] if found is None else [found]
        waits, ok = found is None, found is None or not found.error
    return 200, {
        "pool": name,
        "ok": ok,
        "waits": waits,
        "checks": [{"what": check.what, "error": check.error, "hint": check.hint} for check in checks],
    }


def _offered(site: SiteState) -> Check:
    """Whether a site has hosts that could run instances."""
    live = sum(host.state == "live" for host in site.hosts.values())
    if not live:
        hint = f"offer one: windfall site agent --site {site.rules.name} --server URL --token-file FILE"
        return Check("hosts are offered to the site", "no agent speaks to this server", hint)
    return Check(f"{live} host{'s' * (live != 1)} offered to the site")


def _examined(pool: Pool) -> list[Check]:
    found = guarded(pool.doctor)
    return [Check("the pool can be examined", found.error)] if isinstance(found, PoolError) else found


async def _tried(service: Service, source: OrderedWorkers, body: DoctorBody) -> Check | None:
    """Start one worker, wait until it asks this server for work, and end it; None if it is yet to come."""
    what = "a worker starts and reaches the server"
    order = _trial_order(source, body.trial)
    id = await asyncio.to_thread(source.order, order)
    if isinstance(id, PoolError):
        return Check(what, id.error, _advice(id))
    began, error = time.monotonic(), ""
    while not _has_come(service, order.host):
        row = await asyncio.to_thread(_row, source, id)
        if row is not None and row.phase == ENDED and not _has_come(service, order.host):
            error = row.about or "it ended without a word before it reached the server"
            break
        if time.monotonic() > began + body.wait_s:
            if not body.last:
                return None
            error = "it was started and has not come in time"
            break
        await asyncio.sleep(max(_POLL_S, min(1.0, source.interval_s / 4)))
    left = await asyncio.to_thread(_end, source, id)
    if error:
        return Check(what, error, "see that its host reaches the server, and what it says when it is started by hand")
    if left:
        return Check("a worker ends when it is stopped", f"{order.host} is still there", "end it by hand")
    if _has_come(service, order.host):
        # It may have had no time to say goodbye: without this it would count as a worker until its lease runs out.
        ended = HostsEnded(service.driver.clock(), source.name, [(order.host, "it was started on trial")])
        await service.driver.submit([ended])
    return Check(f"{what}, and ends when it is stopped")


def _trial_order(source: OrderedWorkers, word: str) -> Order:
    """Of a pool that rents machines: the cheapest offer, on demand if it has one, for no plan (machine 0)."""
    host, offers = trial_host(source.name, word), source.pool.offers
    if not offers:
        return Order(host, 1)
    offer = min(offers, key=lambda offer: (offer.market == SPOT, offer.price_usd / offer.cycle_s, offer.name))
    return Order(host, 1, 0, offer)


def _advice(error: PoolError) -> str:
    if error.kind == INVALID:
        return "the same request will never succeed: correct the settings in pools.toml"
    return f"the provider calls this a {error.kind} error"


def _has_come(service: Service, name: str) -> bool:
    host = service.state.host(name)
    return host is not None and host.state != GONE


def _row(source: OrderedWorkers, id: str) -> Seen | None:
    rows = source.rows()
    return None if isinstance(rows, PoolError) else next((row for row in rows if row.id == id), None)


def _end(source: OrderedWorkers, id: str) -> bool:
    """Stop a worker until it is gone: gently first, for it may have got a task. True if it is still there."""
    began = time.monotonic()
    while time.monotonic() < began + _END_S:
        source.end_id(id, gently=time.monotonic() < began + _GENTLY_S)
        time.sleep(_POLL_S)
        row = _row(source, id)
        if row is None or row.phase == ENDED:
            return False
    return True
