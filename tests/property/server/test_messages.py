"""Messages of every kind, right or spoilt in one place, against a real server without sockets: its log replays."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server.asgi import InProcess
from windfall.core.matching.policy import POLICIES
from windfall.wire import HOST_SECRET, VERSION, frames
from windfall.wire.messages import BAD_TASK, CAUSES

# --- what is odd: at the edges of what bytes, columns, floats and readers of JSON hold, or of another type ------------

EDGES = [-1, 255, 256, 65_535, 65_536, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30]
FLOATS = [0.0, 0.5, -0.0, 1e9, 1e10, 1e300, -1e300, 5e-324]
NAMES = ["a", "b", "Memory", "true", "", "a b", "x" * 201, "\x00", "é", "job-1", "last", "7"]
names = st.sampled_from(NAMES)
odd = st.one_of(
    st.none(), st.booleans(), names, st.integers(0, 4), st.sampled_from(EDGES), st.sampled_from(FLOATS),
    st.sampled_from(["99999999P", [], {}, [[]]]),
)  # fmt: skip
deep = st.recursive(odd, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2))


@st.composite
def spoilt(draw: st.DrawFn, good: st.SearchStrategy[Any]) -> Any:
    """A message that is right, or one with something odd in one place."""
    body = json.loads(json.dumps(draw(good)))
    at = body
    while at and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(at))) if isinstance(at, dict) else draw(st.integers(0, len(at) - 1))
        if not isinstance(at[key], (dict, list)) or not at[key] or not draw(st.integers(0, 2)):
            at[key] = draw(deep)
            break
        at = at[key]
    return body


# --- what is right ----------------------------------------------------------------------------------------------------

SHA = "0" * 64
small = st.integers(0, 3)
seconds = st.sampled_from([0.0, 0.5, 3.0, 1e9])
hosts = st.sampled_from(["h", "i"])
tags = st.dictionaries(st.sampled_from(["a", "b", "Memory", "true", "a b"]), st.sampled_from(["x", 1, 2.5, True]))
ads = st.fixed_dictionaries(
    {},
    optional={
        "name": hosts, "cpus": small, "memory_mb": st.sampled_from([0, 1, 4096, 1 << 26]), "pool": st.just("p"),
        "speed": st.sampled_from([0.0, 1.0, 1e6]), "tags": tags, "lifetime_s": seconds, "machine": small, "odd": small,
    },
)  # fmt: skip
outputs = st.lists(st.tuples(st.sampled_from(["a", "b/c"]), st.just(SHA), small, st.just(0o644)), max_size=2)
more = st.none() | st.fixed_dictionaries({}, optional={"outputs": outputs, "text": names, "dropped": st.just([1, 2])})
zero = st.just(0)
causes = st.sampled_from([cause for cause in CAUSES if cause != BAD_TASK])
results = st.lists(
    st.tuples(
        st.just(1), small, st.integers(1, 2), causes, small, seconds, seconds, seconds, small, zero, zero, zero, more
    ),
    max_size=3,
)
keys = st.lists(st.tuples(st.just(1), small, small), max_size=3)
exchanges = st.fixed_dictionaries(
    {"host": hosts, "boot": st.sampled_from(["b", "b", "b", "c"]), "want": small, "slots": small},
    optional={
        "ad": ads, "results": results, "held": small, "holds": keys, "leaving": st.just("idle"), "room": small,
        "again": st.booleans(),
        "started": st.lists(st.tuples(small, small, small, seconds), max_size=2),
        "live": st.lists(st.tuples(small, small, small, small, zero, small, zero), max_size=2),
        "checkpoints": st.lists(st.tuples(st.just(1), small, small, st.just(SHA), small, seconds), max_size=2),
    },
)  # fmt: skip
ends = st.tuples(small.filter(bool), causes, small, seconds, st.none() | seconds, small, zero, zero, names)
amounts = st.dictionaries(st.sampled_from(["vcpu", "ram_mb"]), st.sampled_from([1, 2, 1e12]), min_size=1)
site_exchanges = st.fixed_dictionaries(
    {"site": st.just("lab"), "host": hosts, "boot": st.just("b")},
    optional={
        "capacity": amounts, "tags": st.just(["gpu"]), "leaving": st.just("bye"),
        "started": st.lists(st.tuples(small.filter(bool), seconds), max_size=2), "ended": st.lists(ends, max_size=2),
    },
)  # fmt: skip
EXPRESSIONS = [
    "Host.Memory + Host.a", "1", "1/0", "Host.Tag_b", "BOT.x", "1e300", "-5", "Host.RemainingLifetime > 5", "true",
    "Host.Speed * 1e308 * 10", 'real("INF")', "Host.Cpus =?= undefined", "Host.Tag_a", "Now",
]  # fmt: skip
policies = st.dictionaries(st.sampled_from(POLICIES), st.sampled_from(EXPRESSIONS), max_size=2)
tries = st.integers(1, 1000)
fields = {
    "priority": small, "wall_s": seconds.filter(bool), "max_failures": tries, "max_losses": tries,
    "max_failed_tasks": small, "deadline_s": seconds.filter(bool), "policies": policies,
    "attributes": st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["a", 1, 2.5, True]), max_size=2),
}  # fmt: skip
memory = st.sampled_from(["2G", "2G*attempt", 4096])
changes = st.fixed_dictionaries({}, optional=fields | {"paused": st.booleans(), "budget_usd": small, "memory": memory})
sources = st.fixed_dictionaries({"kind": st.just("range"), "first": st.just(1), "last": st.just(4)})
specs = st.fixed_dictionaries(
    {"name": st.just("bag"), "command": st.just(["echo", "{}"]), "source": sources},
    optional=fields | {
        "memory": st.just({"bytes": 1 << 46, "per_attempt": True}), "cpus": st.sampled_from([0.5, 1, 65_536]),
        "budget_microusd": small, "tags": st.just({"a": "b"}), "grace_s": seconds, "outputs": st.just(["out"]),
        "env": st.just({"A": "b"}), "estimate_s": seconds.filter(bool), "checkpoint_s": seconds.filter(bool),
        "streaming": st.booleans(), "key": names, "classes": st.just([{"max_losses": 3, "cpus": 2}]),
    },
)  # fmt: skip
submissions = st.fixed_dictionaries({"spec": specs, "count": st.just(4), "seal": st.booleans()})
tasks = st.none() | st.lists(small, max_size=4)
cancels = st.fixed_dictionaries({"tasks": tasks}, optional={"reason": names})
retries = st.fixed_dictionaries({"tasks": tasks}, optional={"cancelled": st.booleans(), "memory": memory})
requests = st.fixed_dictionaries(
    {"resources": amounts, "command": st.just(["true"])},
    optional={"for_s": seconds, "queue": st.booleans(), "tags": st.just(["gpu"]), "grace_s": seconds, "key": names},
)
blocks = st.fixed_dictionaries({}, optional={"for_s": seconds, "reason": names})
tokens = st.fixed_dictionaries({"role": st.just("read")}, optional={"name": names})
KINDS = [
    ("exchange", exchanges), ("exchange", exchanges), ("exchange", exchanges), ("site/exchange", site_exchanges),
    ("jobs", submissions), ("jobs/1/change", changes), ("jobs/1/cancel", cancels), ("jobs/1/retry", retries),
    ("site/requests", requests), ("hosts/h/block", blocks), ("hosts/h/unblock", blocks), ("tokens", tokens),
]  # fmt: skip
messages = st.one_of(*[st.tuples(st.just(path), spoilt(good)) for path, good in KINDS])
READ = ("jobs", "jobs/1", "jobs/1/tasks", "jobs/1/groups", "jobs/1/explain", "hosts", "sites/lab", "events", "pools")


def framed(header: bytes) -> bytes:
    return frames.join(header, [])


def send(server: InProcess, path: str, body: Any, numbered: dict[str, int]) -> int:
    data = json.dumps(body).encode()
    if path.endswith("exchange"):
        if isinstance(body, dict):
            name = f"{path} {body['host']} {body['boot']}"
            # Some are repeated under their number, and say something else.
            again = body.get("again") is True and name in numbered
            body = {key: value for key, value in body.items() if key != "again"}
            numbered[name] = numbered.get(name, 0) + (not again)
            first = {"capacity": {"vcpu": 2}} if path == "site/exchange" and numbered[name] == 1 else {}
            data = json.dumps({"v": VERSION, "n": numbered[name], **first, **body}).encode()
        data = framed(data)
    headers = {"authorization": f"Bearer {server.token}", HOST_SECRET.lower(): "of all of them"}
    return server.run(server.full("POST", f"/v1/{path}", data, headers))[0]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(messages, min_size=5, max_size=30), policies)
def test_no_message_breaks_the_server_or_its_log(batch, policy):
    with InProcess("memory:") as server:
        server.submit(4, max_failures=1000)
        server.post("/v1/jobs/1/change", {"policies": policy})
        assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201
        numbered: dict[str, int] = {}
        for path, body in batch:
            status = send(server, path, body, numbered)
            assert status < 500 and status != 422, (path, body, status)
        for path in READ:
            assert server.get(f"/v1/{path}")[0] == 200
        assert server.call("GET", "/v1/jobs/1/results")[0] == 200
        server.check()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(framed)), min_size=10, max_size=20))
def test_no_bytes_break_the_server_or_its_log(bodies):
    with InProcess("memory:") as server:
        server.submit()
        for body in bodies:
            for path in ("exchange", "site/exchange", "jobs", "jobs/1/tasks", "jobs/1/change", "jobs/1/cancel"):
                assert server.call("POST", f"/v1/{path}", body)[0] < 500
        server.check()
