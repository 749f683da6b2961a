"""Bags over workers that are jobs of a real Slurm of one node, through everything that Slurm does to jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm import cluster
from windfall.client import Client
from windfall.pools.config import read_pools
from windfall.server import embedded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Any]:
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stays_behind(slurm) -> Iterator[None]:
    yield
    left = jobs(slurm)
    slurm.said("scancel", "--user", "root", "--full", "--signal", "KILL")
    slurm.said("scancel", "--user", "root")
    until(lambda: not jobs(slurm))
    assert left == []


def jobs(slurm: Any) -> list[list[str]]:
    """Id, state and name of every job that waits or runs."""
    return [line.split("|") for line in slurm.said("squeue", "-h", "-o", "%i|%T|%j").splitlines()]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


@contextmanager
def served(tmp_path: Path, **fields: Any) -> Iterator[Client]:
    """A server with one pool `cluster` of kind slurm."""
    lines = {"name": "cluster", "kind": "slurm", "limit": 2, "slots": 2, "walltime": "10m", "interval": "0.5s"}
    lines |= {"python": sys.executable} | fields
    file = tmp_path / "pools.toml"
    file.write_text("\n".join(["[[pool]]", *(f"{key} = {_toml(value)}" for key, value in lines.items())]))
    with (
        embedded.start(tmp_path / "state", pools=read_pools(file)) as server,
        Client(server.url, server.token) as client,
    ):
        yield client


def _toml(value: Any) -> str:
    return str(value) if isinstance(value, int | list) else f'"{value}"'


def test_a_bag_over_slurm_workers_comes_to_its_end_and_leaves_nothing_behind(tmp_path, slurm):
    with served(tmp_path) as client:
        job = client.submit(["sh", "-c", "sleep 0.05; echo {}"], range(60), name="bag")
        assert job.wait(120)["tasks"]["done"] == 60
        assert {task.stdout.strip() for task in job.results()} == {str(n) for n in range(60)}
        assert {row["pool"] for row in client.hosts()} == {"cluster"}
        assert all(name.startswith("windfall+") for _, _, name in jobs(slurm))
