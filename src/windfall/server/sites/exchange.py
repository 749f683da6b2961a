"""`POST /v1/site/exchange`: what an agent has started and ended in, what its host shall run out. Decides nothing.

Answers list all orders of the host each time, so a repeated exchange changes nothing, and an answer that was lost is
made good by the next one (docs/reference/protocol.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from windfall.bounds import (
    MAX_ATTRIBUTES,
    MAX_NAME_CHARS,
    MAX_RESULTS,
    Ago,
    Count,
    Exit,
    Integer,
    Name,
    Number,
    Text,
)
from windfall.core.decisions import SiteSettled
from windfall.core.events import SiteHostReported
from windfall.core.records import Record
from windfall.core.sites.instances import LEAVING, PLACED, Instance, InstanceEnd, SiteState
from windfall.core.sites.site import GIVEN_UP, OVERTAKEN
from windfall.core.state.hosts.hosts import GONE
from windfall.errors import BadInput
from windfall.placement.model import LARGEST_AMOUNT
from windfall.server.host_secrets import newly_known
from windfall.server.http.bodies import limited_body
from windfall.server.http.workers.exchange import UsedId, check_room, check_shown, open_frame
from windfall.server.limits import DEFAULTS, Limits
from windfall.server.service import Service
from windfall.store.contract import Batch, OutputRow
from windfall.wire import HOST_SECRET, frames
from windfall.wire.messages import CAUSES

Json = dict[str, Any]
EndRow = tuple[Number, str, Exit | None, Ago, Ago | None, Count, Count, Count, Text]
"""[instance, cause, exit, ended_ago_s, run_s or null, rss_bytes, n_stdout, n_stderr, text]."""
MAX_RESOURCES = 64
SITE_JOB = 0
"""Outputs of a site's requests are kept beside those of tasks, as those of a job that does not exist."""

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class Ask(Struct):
    """The header of a request."""

    v: Integer
    site: Name
    host: str
    boot: Name
    n: Integer
    capacity: dict[str, float] | None = None
    tags: Annotated[list[Name], Meta(max_length=MAX_ATTRIBUTES)] | None = None
    started: Annotated[list[tuple[Number, Ago]], Meta(max_length=MAX_RESULTS)] = []
    ended: Annotated[list[EndRow], Meta(max_length=MAX_RESULTS)] = []
    version: str = ""
    wait_s: Ago = 0.0
    leaving: Text | None = None


class TurnedAway(UsedId):
    """The agent cannot be taken as it is; it ends and says why."""

    code = "turned-away"


_decode = msgspec.json.Decoder(Ask).decode


async def exchange(service: Service, request: Request) -> Response:
    """One exchange: the frame of the request in, the frame of the answer out."""
    ask, attachments = read(await limited_body(request), service.intake.limits)
    owned = the_site(service, ask)
    known = owned.hosts.get(ask.host)
    secret, is_there = request.headers.get(HOST_SECRET, ""), known is not None and known.state != GONE
    check_shown(ask.v, secret)
    before = ("", "") if known is None else (known.secret, known.boot)
    shown = newly_known(*before, is_there, ask.host, secret, ask.boot)
    if known is None:
        check_room(service)
    outputs = take_outputs(service, owned, ask, attachments)
    if shown and before[0]:
        outputs, ask.ended = [], []  # another agent has taken the name: none of the instances under it is its own
    event = reported(ask, owned.rules.name, service.driver.clock(), shown)
    record = (await service.driver.submit([event], lambda made: Batch(outputs=_kept(made, outputs))))[0]
    assert isinstance(record.decided, SiteSettled)
    if record.decided.refused == OVERTAKEN:
        raise TurnedAway(
            f"report {ask.n} of '{ask.host}' is older than the last one: another agent goes by this name",
            hint="give one of them another --name",
        )
    reset = record.decided.refused == GIVEN_UP
    if ask.wait_s > 0 and not ask.leaving and not reset:
        await service.change(lambda: version_of(owned.on(ask.host)) != ask.version, ask.wait_s)
        await _tell(service, owned, ask)
    answer = {
        "v": ask.v,
        "n": ask.n,
        "site": owned.rules.name,
        # Those that were not told by a record are told by the next answer: no host runs what the log may not hold.
        "orders": [] if reset else [order(owned, one) for one in owned.on(ask.host) if one.told],
        "version": version_of(one for one in owned.on(ask.host) if one.told),
        "reset": reset,
        "next_s": service.state.settings.lease_s / 3,
    }
    return Response(frames.join(_encode(answer), []), media_type=frames.CONTENT_TYPE)


async def _tell(service: Service, owned: SiteState, ask: Ask) -> None:
    """Recorded once more if something was placed here meanwhile: it counts as told from now on."""
    if all(one.told for one in owned.on(ask.host)):
        return
    again = SiteHostReported(service.driver.clock(), owned.rules.name, ask.host, ask.boot, ask.n)
    decided = (await service.driver.submit([again]))[0].decided
    if isinstance(decided, SiteSettled) and decided.refused == OVERTAKEN:
        raise TurnedAway(f"report {ask.n} of '{ask.host}' was overtaken by a newer one")


def read(body: bytes, limits: Limits = DEFAULTS) -> tuple[Ask, memoryview]:
    """The request, checked as far as its form goes."""
    ask, attachments = open_frame(body, _decode, limits, "an exchange of a site", "agent")
    if not ask.host or len(ask.host) > MAX_NAME_CHARS or not ask.host.isprintable() or ask.n < 1:
        raise BadInput(f"a host's id has 1 to {MAX_NAME_CHARS} printable characters, n is 1 or more")
    if ask.capacity is not None:
        bad = {name: amount for name, amount in ask.capacity.items() if not _is_amount(name, amount)}
        if bad or not ask.capacity or len(ask.capacity) > MAX_RESOURCES:
            raise TurnedAway(f"'{ask.host}' offers {bad or ask.capacity}", hint="amounts are positive numbers")
    unknown = [row[1] for row in ask.ended if row[1] not in CAUSES]
    if unknown:
        raise BadInput(f"an instance ended with the unknown cause '{unknown[0]}'")
    return ask, attachments


def _is_amount(name: str, amount: float) -> bool:
    return 0 < len(name) <= MAX_NAME_CHARS and isfinite(amount) and 0 <= amount <= LARGEST_AMOUNT


def the_site(service: Service, ask: Ask) -> SiteState:
    """The site that an agent names, or the only one there is."""
    sites = service.state.sites
    if ask.site in sites:
        return sites[ask.site]
    if not ask.site and len(sites) == 1:
        return next(iter(sites.values()))
    what = f"there is no site '{ask.site}'" if ask.site else f"there are {len(sites)} sites: name one with --site"
    raise TurnedAway(
        what,
        hint=f"the sites are: {', '.join(sites)}" if sites else "make one: windfall site create lab --instance-vcpu 1",
        code="no-such-site",
    )


def take_outputs(service: Service, owned: SiteState, ask: Ask, attachments: memoryview) -> list[OutputRow]:
    """What commands of this host have written, packed for the store."""
    at, rows = 0, []
    for number, _, _, _, _, _, n_out, n_err, _ in ask.ended:
        parts = (bytes(attachments[at : at + n_out]), bytes(attachments[at + n_out : at + n_out + n_err]))
        at += n_out + n_err
        here = owned.instances.get(number)
        if (n_out or n_err) and here is not None and here.host == ask.host and _is_its_own(owned, here):
            rows.append(OutputRow(*output_key(service, owned, number), _pack([*parts, b"", None])))
    if at != len(attachments):
        raise BadInput(f"the attachments have {len(attachments)} bytes, their lengths add up to {at}")
    return rows


def _is_its_own(owned: SiteState, instance: Instance) -> bool:
    """Whether the agent that is there now has run it: it was not over when this agent came."""
    host = owned.hosts.get(instance.host)
    return instance.ended_t is None or (host is not None and instance.ended_t > host.joined_t)


def output_key(service: Service, owned: SiteState, number: int) -> tuple[int, int, int]:
    return SITE_JOB, number, 1 + list(service.state.sites).index(owned.rules.name)


def _kept(records: list[Record], outputs: list[OutputRow]) -> list[OutputRow]:
    decided = records[0].decided
    taken = isinstance(decided, SiteSettled) and not decided.repeat and not decided.refused
    return outputs if taken else []


def reported(ask: Ask, name: str, now: float, secret: str = "") -> SiteHostReported:
    """The request as an event on the server's clock. `secret`: the hash of one that is newly shown."""
    started = [(number, now - max(0.0, ago_s)) for number, ago_s in ask.started]
    ended = []
    for number, cause, code, ago_s, run_s, rss, _, _, text in ask.ended:
        end = now - max(0.0, ago_s)
        start = None if run_s is None else end - max(0.0, run_s)
        ended.append(InstanceEnd(number, cause, code, start, end, text, rss))
    return SiteHostReported(
        now, name, ask.host, ask.boot, ask.n, ask.capacity, ask.tags, started, ended, ask.leaving, secret
    )


def version_of(instances: Iterable[Instance]) -> str:
    """Changes when the orders of a host do."""
    return " ".join(f"{one.number}{'-' if one.state == LEAVING else '+'}" for one in instances)


def order(owned: SiteState, one: Instance) -> Json:
    """What the agent shall do about one instance."""
    rules = owned.rules
    if one.state == LEAVING:
        grace_s = rules.grace_s if one.wish is None else one.wish.grace_s
        return {"id": one.number, "do": "end", "cause": one.cause, "why": one.text, "grace_s": grace_s}
    if one.state != PLACED:
        return {"id": one.number, "do": "keep"}
    common: Json = {
        "id": one.number,
        "do": "run",
        "name": owned.name_of(one.number),
        "after": one.after,
        "vcpu": one.resources.get("vcpu", 1.0),
    }
    if one.wish is None:
        return common | {
            "kind": "worker",
            "pool": rules.name,
            "slots": rules.slots,
            "memory_mb": int(one.resources.get("ram_mb", 0)),
            "idle_exit_s": rules.idle_exit_s,
            "grace_s": rules.grace_s,
            "tags": [f"site_host={one.host}", *owned.hosts[one.host].tags],
        }
    wish = one.wish
    return common | {
        "kind": "command",
        "argv": wish.argv,
        "env": wish.env,
        "cwd": wish.cwd,
        "wall_s": wish.wall_s,
        "memory_bytes": int(one.resources.get("ram_mb", 0) * (1 << 20)) or None,
        "grace_s": wish.grace_s,
    }
