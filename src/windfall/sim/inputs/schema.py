"""The keys of a scenario file: kind, default and meaning of each, and how a value is read. Pure.

`docs/reference/scenario.md` is printed from these tables (`sim.inputs.reference`); a test keeps the two the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

from msgspec import Struct

from windfall import resources
from windfall.errors import BadInput
from windfall.sim.inputs.laws import LAWS, RandomLaw, fixed, impossible, seen
from windfall.units import parse_duration


class Required:
    """Stands for the default of a required key."""


REQUIRED = Required()


class Field(Struct, frozen=True):
    name: str
    kind: str
    meaning: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    formerly: str = ""
    """What it was called before; files that say so are read as well."""

    @property
    def attribute(self) -> str:
        """The name in the code: with its unit, and not `class`, which is a keyword."""
        if self.name == "class":
            return "task_class"
        return f"{self.name}_s" if self.kind == "duration" else self.name


KINDS = {
    "text": 'text in quotes, as in "campus"',
    "duration": 'a time with its unit, as in "90s", "35m", "2h30m", "14d", or "never"',
    "count": "a whole number, zero or more",
    "count or rule": 'a whole number, zero or more, or "worker"',
    "number": "a number, zero or more",
    "share": "a number from 0 to 1",
    "choice": "one of the words named",
    "path": 'a file beside the scenario, or "data:..." below WINDFALL_DATA',
    "time law": 'a time with its unit, as in "90s" or "6h", or { law = "exponential", mean = "6h" }',
    "number law": 'a number, or { law = "lognormal", median = 1.0, sigma = 0.3 }',
    "table": "a table of names and values",
    "amounts": "a table of names and amounts, as in { gpus = 0.5 }",
    "units": "a table of names and whole numbers, as in { gpus = 2 }",
    "flag": "true or false",
    "names": 'names in brackets, as in ["east", "west"]',
    "times": 'a list of times, as in ["2s", "40s"]',
    "lives": 'lists of times: boot ("never": refused), how long it ran, slept, ran ..., as in [["40s", "10m", "3m"]]',
    "steps": 'pairs of a time and a number, as in [["0s", 0.03], ["20m", 0.05]]',
}

SERVER = (
    Field("lease", "duration", "silence after which a host's attempts are unknown; after twice as long, lost", "60s"),
    Field("tail_enter", "number", "a bag enters its tail below this number of unsent tasks per live slot", 1.0),
    Field("tail_leave", "number", "and leaves it above this number; 0: never", 0.0),
    Field("max_replicas", "count", "most replicas of a task at a time, by policy or without", 3),
    Field("resources", "amounts", "resources that are counted for the whole server: { licence = 3 }", {}),
    Field(
        "replication",
        "choice",
        "replicas of bags that do not say it: made for idle slots, or queued by rank",
        "idle-slots",
        ("idle-slots", "queued"),
    ),
    Field("replication_cycle", "duration", "time between two looks for replicas that are queued", "60s"),
    Field("failover_pool", "text", "the pool for tasks that fail or vanish again and again", ""),
    Field(
        "spread_bundles",
        "flag",
        "near the end of a bag hosts hold an equal share, and idle hosts get what has not begun elsewhere",
        True,
    ),
    Field("planning", "duration", "how long a planner takes to make a plan", "0s"),
)

POOL = (
    Field("name", "text", "name of the pool, as policies see it (Host.Pool)"),
    Field("hosts", "count", "how many hosts there are; with `on_demand`: queued and running workers, at most"),
    Field("on_demand", "flag", "workers come only when the server asks the pool for them, each as a new host", False),
    Field("per_minute", "number", "with `on_demand`: workers that the server asks for in a minute, at most", 60.0),
    Field("slots", "count", "attempts that a host runs at once", 1),
    Field("prefetch", "count or rule", 'tasks held ready beyond those that run; "worker": as a worker does', "worker"),
    Field("round_trip", "duration", "time from a request of a host to the tasks of its answer", "0s"),
    Field("speed", "number law", "speed of a host against the reference, drawn once per host", 1.0),
    Field("memory_mb", "count", "memory of a host; 0: not told", 0),
    Field("arrive", "time law", "when a host is first requested, from the start", "0s"),
    Field("wait", "time law", "batch queue or boot before each stay of a host", "0s"),
    Field("refusals", "share", "share of requests for a host that the provider refuses for lack of capacity", 0.0),
    Field("refusal_pause", "duration", "time from a refusal to the next request", "5m"),
    Field("stay", "time law", "how long it stays before it is reclaimed", "never"),
    Field(
        "leaves", "choice", "what happens to its work then: it is lost, or it continues when the host is back", "kill",
        ("kill", "suspend"),
    ),
    Field(
        "identity", "choice", "what comes after a stay: the same host, or a new one", "same",
        ("same", "new"),
    ),
    Field("notice", "share", "share of killed hosts that report it; the others fall silent", 0.0),
    Field("idle", "duration", "time without work after which a host ends and queues again; with `on_demand` it ends, "
          "after 60s unless set", "never"),
    Field("presence", "number law", "share of the time in which a host works on tasks (0.01 to 1)", 1.0),
    Field("presence_of", "choice", "whether that is drawn per host or per attempt", "host", ("host", "attempt")),
    Field("errors", "share", "share of attempts that fail by the host's fault", 0.0),
    Field("faulty", "share", "share of hosts that fail more often", 0.0),
    Field("faulty_errors", "share", "and how often those fail", 0.5),
    Field("black_holes", "share", "share of hosts that fail every task at once (black holes)", 0.0),
    Field("black_hole_after", "duration", "time until they fail it", "5s"),
    Field("stragglers", "share", "share of attempts that take longer than they should", 0.0),
    Field("straggler_factor", "number law", "and how many times as long", 5.0),
    Field("report", "choice", "when results are sent: each at once, or when all fetched tasks are done", "each",
          ("each", "batch")),
    Field("heartbeat", "duration", "longest silence of a working host; never: it reports only results", "20s"),
    Field("long_poll", "flag", "whether hosts hear at once of work, if they have none, and of what they shall cancel, "
          "as live workers do; false: when they ask again, as BOINC clients do", True),
    Field("poll", "duration", "time until a host without work asks again; doubled each time", "10s"),
    Field("poll_max", "duration", "and how late at most", "10m"),
    Field("price_usd", "number", "price of a host for one billing cycle", 0.0),
    Field("cycle", "duration", "billing cycle; every begun one counts", "1s"),
    Field("series", "path", "availability series instead of `stay`: counts by tick, the hosts share the largest", ""),
    Field("tags", "table", "tags of the hosts, as policies see them", {}),
    Field("resources", "units", "units of resources that a host has: { gpus = 2 }", {}),
)  # fmt: skip

BAG = (
    Field("name", "text", "name of the bag"),
    Field("tasks", "count", "how many tasks; with a trace, how many of it (0: all)", 0),
    Field("run", "time law", "run time of a task on a host of speed 1", "0s"),
    Field("trace", "path", "run times from a file instead: CSV with a column run_s, or SWF (also .gz); copies go on "
          "in it where the one before ended", ""),
    Field("workflow", "path", "a workflow instead of a bag: WfFormat 1.5 or workflow.toml with run times", ""),
    Field(
        "shape", "choice", "a workflow of `tasks` tasks with a simple shape: a chain, a fork and a join, layers", "bag",
        ("bag", "pipeline", "parallel", "hybrid"),
    ),
    Field("error", "number law", "true run time divided by the named one", 1.0),
    Field("submit", "duration", "when it is submitted", "0s"),
    Field("copies", "count", "how many bags of this kind; named name-1, name-2 ...", 1),
    Field("every", "time law", "time between two copies", "0s"),
    Field("arrivals", "path", "when copies are submitted, from a file instead: CSV with a column submit_s, or SWF", ""),
    Field("priority", "number", "rank of the bag where its policy sets none", 0.0),
    Field("priority_step", "number", "added to the priority from copy to copy", 0.0),
    Field("deadline", "duration", "when it should be done, from its submission", "never"),
    Field("cpus", "count", "slots that a task takes", 1),
    Field("nodes", "count", "whole hosts of one pool that a task takes at once; 0: slots of one host", 0),
    Field("memory_mb", "count", "memory that a task needs", 0),
    Field("resources", "amounts", "units of resources that a task needs: { gpus = 1, licence = 1 }", {}),
    Field("max_failures", "count", "attempts that a task itself may fail", 3),
    Field("max_losses", "count", "attempts of a task that may vanish with their hosts", 20),
    Field("policy", "table", "ClassAd policies: JobRequirements, Rank, Concurrency ...", {}),
    Field(
        "replication", "choice", "its replicas: made for idle slots, or queued by rank; empty: as the server says", "",
        ("", "idle-slots", "queued"),
    ),
    Field("max_replicas", "count", "replicas of a task at a time; 0: as the server says", 0),
    Field("planner", "text", "the planner that rents machines for it: windfall, hads, greedy ...; empty: none", ""),
    Field("fleet", "text", "the fleet that serves it, instead of a planner of its own", ""),
    Field("clouds", "names", "clouds to rent from; empty: all", []),
    Field("budget_usd", "number", "most that may be spent on machines; 0: unlimited", 0.0),
    Field("confidence", "share", "wanted chance that the whole bag is done in time", 0.95),
    Field("class", "text", "class of its tasks: offers may have a speed for it", ""),
    Field(
        "told", "choice",
        "what planners are told of run times: nothing (they learn), the mean, or each (always for workflows)", "mean",
        ("nothing", "mean", "each"),
    ),
    Field("estimate", "duration", "the mean that planners are told, if it is not the true one; 0s: the true one", "0s"),
    Field("checkpoint_mb", "number", "size of a task's checkpoint; 0: no checkpoints", 0.0),
    Field("checkpoint_every", "duration", "how often it saves one", "10m"),
    Field("checkpoint_auto", "flag", "it saves as often as the engine suggests, by what was learned", False),
)  # fmt: skip

CLOUD = (
    Field("name", "text", "name of the cloud, and of the pool of its machines"),
    Field("heartbeat", "duration", "longest silence of a machine that works", "20s"),
    Field("poll", "duration", "time until a machine without work asks again; doubled each time", "10s"),
    Field("poll_max", "duration", "and how late at most", "1m"),
    Field("limit", "count", "most machines at a time, of all offers together; hibernated ones do not count; 0: any", 0),
    Field(
        "warm_up", "duration", "time from the first request of a machine for tasks to the start of the first one", "0s"
    ),
)

OFFER = (
    Field("name", "text", "name of the offer: a machine type, a market, a zone"),
    Field("market", "choice", "whether the provider may reclaim it", "on-demand", ("on-demand", "spot")),
    Field("price_usd", "number", "price of one billing cycle", 0.0),
    Field("cycle", "duration", "billing cycle; every begun one counts", "1h"),
    Field("minimum", "duration", "billed in any case", "0s"),
    Field("bills_boot", "flag", "whether the boot is billed", True),
    Field("free_if_taken", "flag", "whether the last, partial cycle is free when the provider reclaims it", True),
    Field("free_if_taken_within", "duration", "a machine that is reclaimed before costs nothing at all", "0s"),
    Field("cores", "count", "tasks of one core that it runs at once", 1),
    Field("memory_gb", "number", "its memory; 0: unlimited", 0.0),
    Field("resources", "units", "units of resources that it has: { gpus = 1 }", {}),
    Field("speed", "number", "speed against the reference", 1.0),
    Field("speeds", "table", "speed by class of task, where it differs: { blast = 1.4 }", {}),
    Field("limit", "count", "most machines at a time; 0: unlimited", 0),
    Field("boot", "time law", "from the order to the first task; planners count on its 95 % quantile", "2m"),
    Field("refusals", "share", "share of orders that are refused for lack of capacity", 0.0),
    Field("when_taken", "choice", "what becomes of it then", "terminate", ("terminate", "stop", "hibernate")),
    Field("notice", "duration", "time between notice and interruption; 0s: no notice", "0s"),
    Field("interruptions_per_h", "number", "interruptions of a machine, as a Poisson process", 0.0),
    Field("life", "time law", "age at which it is interrupted", "never"),
    Field("series", "path", "availability series: counts by tick, the machines up to `limit` share the largest", ""),
    Field("up", "time law", "without a series: how long there is capacity, for all machines at once", "never"),
    Field("down", "time law", "and how long there is none after that", "0s"),
    Field(
        "hibernated", "time law", "how long a machine stays stopped or hibernated, while there is capacity", "never",
        formerly="asleep",
    ),
    Field("once", "flag", "each machine is interrupted once at most", False),
    Field("lives", "lives", "what became of its orders in a log, one after the other, instead of any law", []),
    Field("orders", "times", "how long each of these orders took to be taken; billed from then on", []),
    Field("ends", "times", "how long each of these took to end once it was given back; billed until then", []),
    Field("news", "lives", "how long after each interruption of each of these the server knew of it", []),
    Field("price_steps", "steps", "prices of a cycle from each moment on, as in a log, instead of a file", []),
    Field("prices", "path", "price series (CSV: timestamp, usd_per_hour) instead of `price_usd`", ""),
    Field("prices_of", "text", 'its zone and type there, as in "us-east-1a/m5.xlarge"', ""),
    Field("told", "flag", "whether planners are told how often it is interrupted, or have to learn it", False),
)  # fmt: skip

SITE = (
    Field("name", "text", "name of the site, and of the pool of its preemptible instances"),
    Field("hosts", "count", "how many hosts its owners have"),
    Field("vcpu", "count", "vCPUs of a host", 4),
    Field("speed", "number law", "speed of a host against the reference, drawn once per host", 1.0),
    Field("instance_vcpu", "count", "vCPUs of a preemptible instance: a worker with as many slots", 1),
    Field("limit", "count", "preemptible instances, at most", 1000),
    Field("per_minute", "number", "preemptible instances that the server asks for in a minute, at most", 600.0),
    Field("price_usd", "number", "price of an hour of an instance, as the overlay compares pools", 0.0),
    Field(
        "cost", "choice", "what the choice of victims minimises", "work", ("work", "period", "count", "revenue"),
    ),
    Field("grace", "duration", "time that a preemptible instance has to end", "10s"),
    Field("ends", "time law", "how long it takes to end; beyond `grace` it is killed and reports nothing", "1s"),
    Field("idle", "duration", "time without work after which a preemptible instance ends", "60s"),
    Field("heartbeat", "duration", "longest silence of a preemptible instance that works", "20s"),
    Field("every", "time law", "time between two requests of owners for a normal instance", "never"),
    Field("run", "time law", "how long a normal instance runs", "1h"),
    Field("request_vcpu", "count", "vCPUs of a normal instance", 1),
    Field("request_bid", "number", "what owners bid for an hour in the market; 0: their requests are normal", 0.0),
    Field("market", "flag", "preemptible instances bid for room, and those that bid less than the price end", False),
    Field("reserve", "number", "least price of an hour of one vCPU", 0.0),
    Field("bid", "number", "what a worker bids for an hour", 0.0),
    Field("consolidate", "duration", "hosts are emptied where that loses at most this much work", "never"),
    Field("power", "number", "what an hour of a host costs: instances that do not pay for their share end", 0.0),
    Field("review", "duration", "time between two reviews of market, hosts and what does not pay", "60s"),
    Field("cycle", "duration", "billing cycle of a preemptible instance, from its start", "1h"),
)  # fmt: skip

OUTAGE = (
    Field("at", "duration", "when the network fails"),
    Field("lasts", "duration", "for how long; hosts continue their tasks"),
)

RESTART = (
    Field("at", "duration", "when the server goes down"),
    Field("lasts", "duration", "until it is back with its saved state", "30s"),
)

DRAIN = (
    Field("pool", "text", "the pool whose hosts are drained: each finishes what it has and ends"),
    Field("hosts", "count", "how many of those that are there, the first ones by number; 0: all", 0),
    Field("at", "duration", "when"),
    Field("lasts", "duration", "time until they are started again; hosts of an `on_demand` pool are not", "never"),
)

FLEET = (
    Field("name", "text", "name of the fleet: bags name it to share its machines"),
    Field("planner", "text", "the planner of its machines: windfall, scs, greedy or gain", "windfall"),
    Field("clouds", "names", "clouds to rent from; empty: all", []),
    Field("budget_usd", "number", "most that its machines may cost in each hour; 0: unlimited", 0.0),
)

TOP = (
    Field("name", "text", "name of the scenario"),
    Field("about", "text", "what it shows, in a line", ""),
    Field("until", "duration", "when to stop a run that does not end", "365d"),
)

# Tables of the file: name -> (its keys, whether there may be several).
SECTIONS: dict[str, tuple[tuple[Field, ...], bool]] = {
    "server": (SERVER, False),
    "pool": (POOL, True),
    "cloud": (CLOUD, True),
    "site": (SITE, True),
    "bag": (BAG, True),
    "outage": (OUTAGE, True),
    "restart": (RESTART, True),
    "drain": (DRAIN, True),
    "fleet": (FLEET, True),
}


def read_table(raw: Mapping[str, Any], fields: tuple[Field, ...], where: str) -> dict[str, Any]:
    """The values of one table by their names in the code. BadInput names the place, the key and the allowed values."""
    known = {field.name: field for field in fields}
    for field in fields:
        if field.formerly in raw and field.name not in raw:
            raw = {field.name if key == field.formerly else key: value for key, value in raw.items()}
    for key in raw:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(known)}"
            raise BadInput(f"{where}: there is no key '{key}'", hint=hint, code="bad-scenario")
    values = {}
    for field in fields:
        place = f"{where}.{field.name}"
        if field.name in raw:
            values[field.attribute] = READERS[field.kind](raw[field.name], place, field)
        elif isinstance(field.default, Required):
            raise BadInput(f"{where}: the key '{field.name}' is missing", hint=_allowed(field), code="bad-scenario")
        else:
            values[field.attribute] = READERS[field.kind](field.default, place, field)
    return values


def _allowed(field: Field) -> str:
    words = " or ".join(f'"{choice}"' for choice in field.choices)
    return f"{field.name} is {words or KINDS[field.kind]}: {field.meaning}"


def _refuse(value: Any, place: str, field: Field) -> BadInput:
    return BadInput(f"{place}: {value!r} cannot be", hint=_allowed(field), code="bad-scenario")


def _text(value: Any, place: str, field: Field) -> str:
    if not isinstance(value, str):
        raise _refuse(value, place, field)
    return value


def _duration(value: Any, place: str, field: Field) -> float:
    """Seconds of a duration. Plain numbers are refused: a missing unit is a likely mistake."""
    if not isinstance(value, str) or value.strip().replace(".", "").isdigit():
        raise _refuse(value, place, field)
    if value == "never":
        return inf
    try:
        return parse_duration(value)
    except BadInput:
        raise _refuse(value, place, field) from None


def _number(value: Any, place: str, field: Field) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise _refuse(value, place, field)
    return float(value)


def _count(value: Any, place: str, field: Field) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refuse(value, place, field)
    return value


def _share(value: Any, place: str, field: Field) -> float:
    number = _number(value, place, field)
    if number > 1:
        raise _refuse(value, place, field)
    return number


def _choice(value: Any, place: str, field: Field) -> str:
    if value not in field.choices:
        raise _refuse(value, place, field)
    return str(value)


def _flag(value: Any, place: str, field: Field) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value, place, field)
    return value


def _names(value: Any, place: str, field: Field) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _refuse(value, place, field)
    return tuple(value)


def _table(value: Any, place: str, field: Field) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(value, place, field)
    return value


def _amounts(value: Any, place: str, field: Field) -> dict[str, float]:
    return _resources(value, place, field, resources.check)


def _units(value: Any, place: str, field: Field) -> dict[str, float]:
    return _resources(value, place, field, resources.check_whole)


def _resources(
    value: Any, place: str, field: Field, check: Callable[[dict[str, float], str], None]
) -> dict[str, float]:
    amounts = _table(value, place, field)
    if not all(isinstance(amount, int | float) and not isinstance(amount, bool) for amount in amounts.values()):
        raise _refuse(value, place, field)
    check(amounts, place)
    return amounts


def _law(value: Any, place: str, field: Field, read: Callable[[Any, str, Field], float]) -> RandomLaw:
    if isinstance(value, RandomLaw):
        return value
    if not isinstance(value, dict):
        single = read(value, place, field)
        return RandomLaw("never") if single == inf else fixed(single)
    kind = value.get("law")
    if kind == "seen":
        numbers = value.get("values")
        if not isinstance(numbers, list) or not numbers or set(value) != {"law", "values"}:
            raise BadInput(f"{place}: a seen law needs a list of values", hint='{ law = "seen", values = [1, 2] }')
        return seen([read(item, place, field) for item in numbers])
    if not isinstance(kind, str) or kind not in LAWS:
        raise BadInput(
            f"{place}: there is no law {kind!r}", hint=f"the laws are {', '.join([*LAWS, 'seen'])}", code="bad-scenario"
        )
    shape = LAWS[kind].parameters
    given = set(value) - {"law"}
    if given != set(shape):
        wrong = ", ".join(sorted(given ^ set(shape)))
        raise BadInput(
            f"{place}: the law {kind} takes {', '.join(shape) or 'nothing'}; missing or unknown: {wrong}",
            hint=LAWS[kind].meaning, code="bad-scenario",
        )  # fmt: skip
    parameters = {
        name: read(value[name], f"{place}.{name}", field)
        if has_unit
        else _number(value[name], f"{place}.{name}", field)
        for name, has_unit in shape.items()
    }
    if reason := impossible(kind, parameters):
        raise BadInput(f"{place}: {reason}", hint=f"{kind}: {LAWS[kind].meaning}", code="bad-scenario")
    return RandomLaw(kind, parameters)


def _times(value: Any, place: str, field: Field) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise _refuse(value, place, field)
    found = tuple(_duration(part, place, field) for part in value)
    if inf in found:
        raise _refuse(value, place, field)
    return found


def _lives(value: Any, place: str, field: Field) -> tuple[tuple[float, ...], ...]:
    if not isinstance(value, list) or not all(isinstance(life, list) and life for life in value):
        raise _refuse(value, place, field)
    return tuple(tuple(_duration(part, place, field) for part in life) for life in value)


def _steps(value: Any, place: str, field: Field) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list) or not all(isinstance(step, list) and len(step) == 2 for step in value):
        raise _refuse(value, place, field)
    steps = tuple((_duration(at, place, field), _number(price, place, field)) for at, price in value)
    times = [at for at, _ in steps]
    if times and (times[0] or times != sorted(set(times)) or times[-1] == inf):
        raise BadInput(f"{place}: the times must begin at 0s and grow", hint=KINDS["steps"], code="bad-scenario")
    return steps


READERS: dict[str, Callable[[Any, str, Field], Any]] = {
    "text": _text,
    "path": _text,
    "duration": _duration,
    "count": _count,
    "count or rule": lambda value, place, field: None if value == "worker" else _count(value, place, field),
    "number": _number,
    "share": _share,
    "choice": _choice,
    "table": _table,
    "amounts": _amounts,
    "units": _units,
    "flag": _flag,
    "names": _names,
    "times": _times,
    "lives": _lives,
    "steps": _steps,
    "time law": lambda value, place, field: _law(value, place, field, _duration),
    "number law": lambda value, place, field: _law(value, place, field, _number),
}
