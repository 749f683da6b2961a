"""A real Slurm of one node for tests (tools/one_node_slurm.py), and the names by which its commands find it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.pools.pool_worlds import World, kind_of_pool
from windfall.pools.batch.pool import BatchPool
from windfall.pools.batch.settings import SlurmSettings
from windfall.pools.batch.systems import SLURM
from windfall.pools.kinds import Place, PoolConfig

_TOOL = Path(__file__).parents[3] / "tools" / "one_node_slurm.py"


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("one_node_slurm", _TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["one_node_slurm"] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def cluster(folder: Path, cpus: int = 8) -> Iterator[Any]:
    """A cluster with partitions `main`, `spare` (preempted by it) and `physics` (for that account alone).

    `SLURM_CONF` is set while it runs. Skips where there is no Slurm, or no root to run it.
    """
    tool = _tool()
    absent = tool.missing()
    if absent or os.getuid() != 0:
        reason = f"{', '.join(absent)} missing: sh tools/system.sh installs it" if absent else "slurmd needs root"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    made = tool.Cluster(folder, cpus)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(made.conf)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


@kind_of_pool("slurm")
@contextmanager
def slurm(directory: Path, url: str) -> Iterator[World]:
    settings = SlurmSettings(walltime="5m", python=sys.executable)

    def open_(place: Place, **fields: Any) -> BatchPool:
        return BatchPool(SLURM, PoolConfig("p", "slurm", settings=settings, **fields), place)

    with cluster(directory / "slurm"):
        yield World(open_, directory, url)
