"""Scenarios: read, changed key by key, checked whole, before anything runs. Touches the scenario's files.

The library's scenarios are the TOML files in `scenarios/`; a scenario of one's own is a path to such a file.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct

from windfall.core.events import Settings
from windfall.core.sites.checks import check_site
from windfall.core.sites.instances import ReviewRules, SiteRules
from windfall.drivers.simulated import PlanTook, ToldPlan
from windfall.errors import BadInput
from windfall.planning.contract import BAG, FLEET, WORKFLOW
from windfall.planning.registry import PLANNERS, known_planner
from windfall.policy import compile_policies
from windfall.resources import needs_of
from windfall.sim.clouds.cloud import Cloud, read_cloud
from windfall.sim.inputs import flows, schema, traces
from windfall.sim.inputs.laws import RandomLaw
from windfall.units import show_duration

LIBRARY = Path(__file__).parent / "scenarios"
ON_DEMAND_IDLE_S = 60.0
"""Seconds without work after which a worker that was asked for ends, as live ones do."""


class Pool(Struct, frozen=True, kw_only=True):
    """Where hosts come from; keys as in `schema.POOL`."""

    name: str
    hosts: int
    on_demand: bool
    per_minute: float
    slots: int
    prefetch: int | None
    round_trip_s: float
    speed: RandomLaw
    memory_mb: int
    resources: dict[str, float]
    arrive: RandomLaw
    wait: RandomLaw
    refusals: float
    refusal_pause_s: float
    stay: RandomLaw
    leaves: str
    identity: str
    notice: float
    idle_s: float
    presence: RandomLaw
    presence_of: str
    errors: float
    faulty: float
    faulty_errors: float
    black_holes: float
    black_hole_after_s: float
    stragglers: float
    straggler_factor: RandomLaw
    report: str
    heartbeat_s: float
    long_poll: bool
    poll_s: float
    poll_max_s: float
    price_usd: float
    cycle_s: float
    series: str
    tags: dict[str, Any]
    ticks: traces.Series | None = None


class Site(Struct, frozen=True, kw_only=True):
    """Hosts that somebody owns; keys as in `schema.SITE`."""

    name: str
    hosts: int
    vcpu: int
    speed: RandomLaw
    instance_vcpu: int
    limit: int
    per_minute: float
    price_usd: float
    cost: str
    grace_s: float
    ends: RandomLaw
    idle_s: float
    heartbeat_s: float
    every: RandomLaw
    run: RandomLaw
    request_vcpu: int
    request_bid: float
    market: bool
    reserve: float
    bid: float
    consolidate_s: float
    power: float
    review_s: float
    cycle_s: float

    @property
    def rules(self) -> SiteRules:
        moves_lose_s = None if self.consolidate_s == inf else self.consolidate_s
        review = ReviewRules(self.market, self.reserve, self.bid, moves_lose_s, self.power, self.review_s, self.cycle_s)
        return SiteRules(
            self.name, {"vcpu": float(self.instance_vcpu)}, self.limit, self.grace_s, self.cost, self.idle_s,
            self.price_usd, self.per_minute, review=review,
        )  # fmt: skip


class Bag(Struct, frozen=True, kw_only=True):
    """A bag of tasks to be submitted; keys as in `schema.BAG`."""

    name: str
    tasks: int
    run: RandomLaw
    trace: str
    workflow: str
    shape: str
    error: RandomLaw
    submit_s: float
    copies: int
    every: RandomLaw
    arrivals: str
    priority: float
    priority_step: float
    deadline_s: float
    cpus: int
    nodes: int
    memory_mb: int
    resources: dict[str, float]
    max_failures: int
    max_losses: int
    policy: dict[str, Any]
    replication: str
    max_replicas: int
    planner: str
    fleet: str
    clouds: tuple[str, ...]
    budget_usd: float
    confidence: float
    task_class: str
    told: str
    estimate_s: float
    checkpoint_mb: float
    checkpoint_every_s: float
    checkpoint_auto: bool
    run_times_s: tuple[float, ...] = ()
    memory_bytes_of: tuple[int, ...] = ()
    longest_of: float = 1.0
    """Of a sample: its longest task is as long as that of a bag with this many times as many tasks."""
    """Classes by task, where they differ."""
    classes_of: tuple[str, ...] = ()
    cpus_of: tuple[int, ...] = ()
    nodes_of: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    """Edges of a workflow: (parent, child)."""
    estimates_of: tuple[float | None, ...] = ()
    """What planners are told of each task, where that is known and is not `told`."""
    arrivals_s: tuple[float, ...] = ()
    unfinished: tuple[tuple[int, int, float], ...] = ()
    """(task, attempt, seconds): attempts of a replayed log that were cut short take at least as long, at speed 1."""
    sent: tuple[tuple[int, int, int, float], ...] = ()
    """(task, attempt, machine, seconds): when a replayed log handed out attempts; they begin no sooner there."""
    at_waking: tuple[tuple[int, int, float], ...] = ()
    """(task, attempt, seconds): attempts of a replayed log, and how soon after their machine woke their result came."""
    told_spread: float | None = None
    """How much run times vary, as its user says; None: nothing is said."""
    cancelled_s: float | None = None
    """When what is left of it is cancelled, as in a replayed log."""


class SharedFleet(Struct, frozen=True, kw_only=True):
    """Machines that the bags share which name it; keys as in `schema.FLEET`."""

    name: str
    planner: str
    clouds: tuple[str, ...]
    budget_usd: float


class Gap(Struct, frozen=True):
    """A time in which the server cannot be reached."""

    at_s: float
    lasts_s: float


class Drain(Struct, frozen=True):
    """Hosts of a pool that are told to finish what they have and end; keys as in `schema.DRAIN`."""

    pool: str
    hosts: int
    at_s: float
    lasts_s: float


class Scenario(Struct, frozen=True, kw_only=True):
    """A world and the work in it."""

    name: str
    about: str
    until_s: float
    settings: Settings
    planning_s: float
    pools: tuple[Pool, ...]
    clouds: tuple[Cloud, ...]
    bags: tuple[Bag, ...]
    outages: tuple[Gap, ...]
    restarts: tuple[Gap, ...]
    drains: tuple[Drain, ...] = ()
    sites: tuple[Site, ...] = ()
    fleets: tuple[SharedFleet, ...] = ()
    plans_took: tuple[PlanTook, ...] = ()
    """How the first plans go, one after the other, as in a replayed log; later ones take `planning_s`."""
    told_plans: tuple[ToldPlan, ...] = ()
    """Plans of a replayed log, taken as they were."""

    @property
    def pool_names(self) -> list[str]:
        """Names of all pools, clouds and sites, in this order."""
        return _names(self.pools, self.clouds, self.sites)


def _names(pools: Sequence[Pool], clouds: Sequence[Cloud], sites: Sequence[Site]) -> list[str]:
    return [*(pool.name for pool in pools), *(cloud.name for cloud in clouds), *(site.name for site in sites)]


def library() -> list[str]:
    return sorted(path.stem for path in LIBRARY.glob("*.toml"))


def find(name: str) -> Path:
    """A scenario's file, by its name in the library or by its path."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    shipped = LIBRARY / f"{name}.toml"
    if shipped.is_file():
        return shipped
    near = get_close_matches(name, library(), n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(library())}, or name a .toml file"
    raise BadInput(f"there is no scenario '{name}'", hint=hint, code="bad-scenario")


def load_document(name: str) -> tuple[dict[str, Any], Path]:
    """The parsed file, and its path."""
    path = find(name)
    try:
        return tomllib.loads(path.read_text()), path
    except OSError as error:
        raise BadInput(
            f"cannot read {path}: {error.strerror}", hint="windfall simulate --list names the ready ones"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no TOML: {error}", hint="see docs/reference/scenario.md") from None


def change(document: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """The document with `pool.osg.hosts=100`, `bag.run=10m` or `server.lease=30s` set. `*` stands for all names."""
    document = copy.deepcopy(document)
    for text in changes:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"'{text}' sets nothing", hint="write key=value, as in pool.osg.hosts=100")
        _set(document, key.strip().split("."), _value(value.strip()), key)
    return document


def _value(text: str) -> Any:
    """A TOML value, else plain text, so that text need not be quoted twice in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(document: dict[str, Any], steps: list[str], value: Any, key: str) -> None:
    section = document.get(steps[0])
    if not isinstance(section, list):
        here = document
        for step in steps[:-1]:
            here = here.setdefault(step, {})
            if not isinstance(here, dict):
                raise BadInput(f"'{key}' leads nowhere", hint="keys are as in docs/reference/scenario.md")
        here[steps[-1]] = value
        return
    names = [entry.get("name") for entry in section]
    if len(steps) > 2 and steps[1] in (*names, "*"):
        chosen = [entry for entry in section if steps[1] in (entry.get("name"), "*")]
        rest = steps[2:]
    elif len(section) == 1:
        chosen, rest = section, steps[1:]
    else:
        listed = ", ".join(f"{steps[0]}.{name}" for name in [*names, "*"])
        raise BadInput(f"'{key}' does not say which {steps[0]}", hint=f"one of {listed}")
    for entry in chosen:
        _set(entry, rest, value, key)


def check(document: dict[str, Any], where: Path, data: Path | None = None) -> Scenario:
    """The scenario of a document. BadInput names the file, the key and the allowed values."""
    name = where.stem if where.parent == LIBRARY else str(where)
    for key in document:
        if key not in schema.SECTIONS and key not in {field.name for field in schema.TOP}:
            known = [*(field.name for field in schema.TOP), *schema.SECTIONS]
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"a scenario has {', '.join(known)}"
            raise BadInput(f"{name}: there is no key '{key}'", hint=hint, code="bad-scenario")
    plain = {key: value for key, value in document.items() if key not in schema.SECTIONS}
    top = schema.read_table({"name": where.stem} | plain, schema.TOP, name)
    pools = [_pool(raw, place, where, data) for raw, place in _entries(document, "pool", name)]
    clouds = [read_cloud(raw, place, where, data) for raw, place in _entries(document, "cloud", name)]
    sites = [_site(raw, place) for raw, place in _entries(document, "site", name)]
    bags = [_bag(raw, place, where, data) for raw, place in _entries(document, "bag", name)]
    if not (pools or clouds or sites) or not bags:
        missing = "bag" if pools or clouds or sites else "pool]], no [[cloud]] and no [[site"
        raise BadInput(
            f"{name}: there is no [[{missing}]]", hint="a scenario needs hosts and work", code="bad-scenario"
        )
    fleets = [_fleet(raw, place, clouds) for raw, place in _entries(document, "fleet", name)]
    for kind, names in (
        ("pool, cloud or site", _names(pools, clouds, sites)),
        ("bag", [bag.name for bag in bags]),
        ("fleet", [fleet.name for fleet in fleets]),
    ):
        twice = next((entry for entry in names if names.count(entry) > 1), None)
        if twice:
            raise BadInput(f"{name}: two {kind}s are called '{twice}'", hint="names are unique", code="bad-scenario")
    for bag in bags:
        _check_planner(bag, clouds, bool(pools or sites), f"{name}, bag {bag.name}")
        _check_fleet(bag, fleets, f"{name}, bag {bag.name}")
    gaps = {
        kind: tuple(
            Gap(**schema.read_table(raw, schema.SECTIONS[kind][0], place))
            for raw, place in _entries(document, kind, name)
        )
        for kind in ("outage", "restart")
    }
    drains = [_drain(raw, place, pools) for raw, place in _entries(document, "drain", name)]
    settings, planning_s = _settings(document, name)
    for kind, hosts in (("pool", pools), ("cloud", clouds), ("site", sites)):
        for each in hosts:
            _check_heartbeat(each.heartbeat_s, settings.lease_s, f"{name}, {kind} {each.name}")
    return Scenario(
        **top, settings=settings, planning_s=planning_s, pools=tuple(pools), clouds=tuple(clouds), bags=tuple(bags),
        outages=gaps["outage"], restarts=gaps["restart"], drains=tuple(drains), sites=tuple(sites),
        fleets=tuple(fleets),
    )  # fmt: skip


def _entries(document: dict[str, Any], kind: str, name: str) -> list[tuple[dict[str, Any], str]]:
    entries = document.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput(f"{name}: {kind} is no list of tables", hint=f"write [[{kind}]]", code="bad-scenario")
    return [(entry, f"{name}, {kind} {entry.get('name', number)}") for number, entry in enumerate(entries, 1)]


def _settings(document: dict[str, Any], name: str) -> tuple[Settings, float]:
    raw = document.get("server", {})
    if not isinstance(raw, dict):
        raise BadInput(f"{name}: server is no table", hint="write [server]", code="bad-scenario")
    values = schema.read_table(raw, schema.SERVER, f"{name}, server")
    if not values["lease_s"] > 0:
        raise BadInput(f"{name}, server.lease: a lease lasts for some time", hint='as in "60s"', code="bad-scenario")
    planning_s = values.pop("planning_s")
    values |= {"tail_leave": values["tail_leave"] or None, "resources": dict(needs_of(values["resources"]))}
    return Settings(**values), planning_s


def _check_heartbeat(heartbeat_s: float, lease_s: float, place: str) -> None:
    """A host that is silent for longer than its lease loses its attempts though it works."""
    if lease_s < inf and heartbeat_s >= lease_s:
        silence = "never" if heartbeat_s == inf else show_duration(heartbeat_s)
        raise BadInput(
            f"{place}.heartbeat: {silence} is not below the lease of {show_duration(lease_s)} (server.lease): hosts at "
            "work would be taken for lost",
            hint=f'heartbeat = "{lease_s / 3:g}s", or a longer server.lease', code="bad-scenario",
        )  # fmt: skip


def _pool(raw: dict[str, Any], place: str, where: Path, data: Path | None) -> Pool:
    values = schema.read_table(raw, schema.POOL, place)
    for key in ("slots", "hosts"):
        if not values[key]:
            raise BadInput(f"{place}.{key}: at least one is needed", hint=f"{key} = 1", code="bad-scenario")
    if values["poll_s"] <= 0 or values["heartbeat_s"] <= 0:
        raise BadInput(f"{place}: poll and heartbeat must be above zero", hint='"10s"', code="bad-scenario")
    if values["on_demand"]:
        if not values["per_minute"]:
            raise BadInput(f"{place}.per_minute: nothing could be asked for", hint="60", code="bad-scenario")
        values |= {"identity": "new", "idle_s": values["idle_s"] if "idle" in raw else ON_DEMAND_IDLE_S}
    ticks = traces.availability(values["series"], f"{place}.series", where, data) if values["series"] else None
    return Pool(**values, ticks=ticks)


def _site(raw: dict[str, Any], place: str) -> Site:
    site = Site(**schema.read_table(raw, schema.SITE, place))
    for key, count in (("hosts", site.hosts), ("vcpu", site.vcpu), ("instance_vcpu", site.instance_vcpu)):
        if not count:
            raise BadInput(f"{place}.{key}: at least one is needed", hint=f"{key} = 1", code="bad-scenario")
    for key, size in (("instance_vcpu", site.instance_vcpu), ("request_vcpu", site.request_vcpu)):
        if size > site.vcpu:
            raise BadInput(f"{place}.{key}: a host has {site.vcpu}", hint=f"{key} = {site.vcpu}", code="bad-scenario")
    if site.request_bid and not site.market:
        raise BadInput(f"{place}.request_bid: there is no market", hint="market = true", code="bad-scenario")
    check_site(site.rules, place)
    return site


def _drain(raw: dict[str, Any], place: str, pools: list[Pool]) -> Drain:
    drain = Drain(**schema.read_table(raw, schema.DRAIN, place))
    names = [pool.name for pool in pools]
    if drain.pool not in names:
        raise BadInput(f"{place}.pool: there is no pool '{drain.pool}'", hint=f"one of {', '.join(names)}")
    return drain


def _bag(raw: dict[str, Any], place: str, where: Path, data: Path | None) -> Bag:
    values = schema.read_table(raw, schema.BAG, place)
    more = _tasks(values, raw, place, where, data)
    if not values["tasks"] or not values["copies"]:
        raise BadInput(f"{place}: a bag has tasks", hint="tasks = 1000", code="bad-scenario")
    if values["shape"] != "bag":
        more["edges"] = flows.of_shape(values["shape"], values["tasks"], place)
    if more.get("edges") and "told" not in raw:
        values["told"] = "each"
    if values["arrivals"]:
        more["arrivals_s"] = traces.arrivals(values["arrivals"], f"{place}.arrivals", where, data)
        values["copies"] = min(values["copies"] if "copies" in raw else inf, len(more["arrivals_s"]))
    try:
        compile_policies(values["policy"])
    except BadInput as error:
        raise BadInput(f"{place}.policy: {error.message}", hint=error.hint, code=error.code) from None
    return Bag(**values, **more)


def _tasks(values: dict[str, Any], raw: dict[str, Any], place: str, where: Path, data: Path | None) -> dict[str, Any]:
    """The tasks from a trace or workflow file. Sets the number of tasks in `values` to theirs."""
    if sum(key in raw for key in ("workflow", "trace", "run")) != 1 and not ("run" in raw and "trace" in raw):
        said = [key for key in ("run", "trace", "workflow") if key in raw]
        text = f"{' and '.join(said)} are both given" if said else "the key 'run' is missing"
        raise BadInput(f"{place}: {text}", hint='run = "10m", or a trace, or a workflow', code="bad-scenario")
    if values["workflow"]:
        if values["shape"] != "bag":
            raise BadInput(f"{place}.shape: the workflow has one already", hint="leave it out", code="bad-scenario")
        flow = flows.from_file(values["workflow"], f"{place}.workflow", where, data)
        values["tasks"] = flow.tasks
        return {
            "run_times_s": flow.run_times_s, "classes_of": flow.classes, "cpus_of": flow.cpus,
            "memory_bytes_of": flow.memory_bytes, "nodes_of": flow.nodes, "edges": flow.edges,
        }  # fmt: skip
    if not values["trace"]:
        return {}
    run_times = traces.run_times(values["trace"], f"{place}.trace", where, data)
    values["tasks"] = min(values["tasks"] or len(run_times), len(run_times))
    return {"run_times_s": run_times}


def _check_planner(bag: Bag, clouds: list[Cloud], has_pools: bool, place: str) -> None:
    """A bag that rents needs a known planner, a deadline and a cloud; one that does not rent needs hosts."""
    names = [cloud.name for cloud in clouds]
    if (bag.planner or bag.fleet) and (bag.run.kind == "never" or inf in bag.run.values):
        hint = 'as in run = "10m"'
        raise BadInput(f"{place}.run: tasks that machines are rented for have to end", hint=hint, code="bad-scenario")
    if not bag.planner:
        if not has_pools and not bag.fleet:
            hint = "the clouds rent nothing by themselves; planner = " + " or ".join(f'"{name}"' for name in PLANNERS)
            raise BadInput(
                f"{place}.planner: it has no hosts and no planner that rents machines", hint=hint, code="bad-scenario"
            )
        return
    try:
        known_planner(bag.planner, WORKFLOW if bag.edges else BAG)
    except BadInput as fault:
        raise BadInput(f"{place}.planner: {fault.message}", hint=fault.hint, code="bad-scenario") from None
    if bag.deadline_s == inf:
        raise BadInput(f"{place}.deadline: a planner needs one", hint='deadline = "6h"', code="bad-scenario")
    if unknown := next((cloud for cloud in bag.clouds if cloud not in names), None):
        raise BadInput(f"{place}.clouds: there is no cloud '{unknown}'", hint=f"one of {', '.join(names)}")
    if not names:
        raise BadInput(f"{place}.planner: there is no [[cloud]] to rent from", hint="add one", code="bad-scenario")


def _fleet(raw: dict[str, Any], place: str, clouds: list[Cloud]) -> SharedFleet:
    fleet = SharedFleet(**schema.read_table(raw, schema.FLEET, place))
    names = [cloud.name for cloud in clouds]
    try:
        known_planner(fleet.planner, FLEET)
    except BadInput as fault:
        raise BadInput(f"{place}.planner: {fault.message}", hint=fault.hint, code="bad-scenario") from None
    if not names:
        raise BadInput(f"{place}: there is no [[cloud]] to rent from", hint="add one", code="bad-scenario")
    if unknown := next((cloud for cloud in fleet.clouds if cloud not in names), None):
        raise BadInput(f"{place}.clouds: there is no cloud '{unknown}'", hint=f"one of {', '.join(names)}")
    return fleet


def _check_fleet(bag: Bag, fleets: list[SharedFleet], place: str) -> None:
    """A bag in a fleet needs a deadline, and neither a planner nor clouds nor a budget of its own."""
    if not bag.fleet:
        return
    names = [fleet.name for fleet in fleets]
    if bag.fleet not in names:
        hint = f"one of {', '.join(names)}" if names else "add a [[fleet]]"
        raise BadInput(f"{place}.fleet: there is no fleet '{bag.fleet}'", hint=hint, code="bad-scenario")
    if bag.planner or bag.clouds or bag.budget_usd:
        hint = "leave out planner, clouds and budget_usd"
        raise BadInput(f"{place}: its fleet says how machines are rented", hint=hint, code="bad-scenario")
    if bag.deadline_s == inf:
        raise BadInput(f"{place}.deadline: a fleet needs one", hint='deadline = "6h"', code="bad-scenario")


def read(name: str, changes: list[str] | None = None, data: Path | None = None) -> Scenario:
    """A scenario by its name or path, with changes, checked."""
    document, path = load_document(name)
    return check(change(document, changes or []), path, data)
