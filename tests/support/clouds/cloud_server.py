"""A real server with emulated clouds: start it, submit to it, wait for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.clouds.providers import sweep
from tests.support.server.cluster import Cluster, cluster
from windfall.client import Job

DEADLINE_S = 120


SCALE = 120


POOL = """
[[pool]]
name = "{name}"
kind = "emulated"
time_scale = {scale}
seed = {seed}
notice = "{notice}"
limit = 6

[[pool.offer]]
name = "spot"
market = "spot"
cores = 2
price_usd = 0.031
cycle_s = 1800
lag_s = 60
when_taken = "hibernate"
law = {{ {law} }}

[[pool.offer]]
name = "steady"
cores = 2
price_usd = 0.104
cycle_s = 900
lag_s = 60
"""


def pool(name: str = "cloud", seed: int = 0, law: str = "", notice: str = "0s", scale: float = SCALE) -> str:
    return POOL.format(name=name, seed=seed, law=law, notice=notice, scale=scale)


@contextlib.contextmanager
def served(directory: Path, *pools: str) -> Iterator[Cluster]:
    """A server with these pools; afterwards no machine is left, whatever happened."""
    (directory / "pools.toml").write_text("".join(pools))
    with cluster(directory) as made:
        try:
            made.start_server("--pools", str(directory / "pools.toml"))
            yield made
        finally:
            made.stop_server()
            sweep(made.state)


def submit(
    made: Cluster, count: int, seconds: float = 1.0, pool: str = "cloud", gate: Path | None = None, **settings: object
) -> Job:
    """Tasks of 0.5 to 1.5 times this many seconds; each prints its number. None ends before there is a file `gate`."""
    rows = [{"n": str(n), "s": f"{seconds * (0.5 + n % 5 / 4):g}"} for n in range(count)]
    said = {"deadline": DEADLINE_S, "pools": [pool], "estimate": seconds, **settings}
    wait = f"while [ ! -e '{gate}' ]; do sleep 0.1; done; " if gate is not None else ""
    return made.client().submit(["sh", "-c", f"{wait}sleep {{s}}; echo {{n}}"], rows, **said)


def until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def machines(made: Cluster, **query: object) -> list[dict]:
    return made.client().machines(**query)["machines"]


def busy(made: Cluster, pool: str = "cloud") -> str:
    """The number of a machine of this pool on which tasks run, once there is one."""
    found: list[dict] = []
    until(lambda: found.extend(row for row in machines(made, there=True, pool=pool) if row["running"]) or found)
    return str(found[0]["machine"])
