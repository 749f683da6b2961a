"""Kinds `slurm`, `pbs` and `lsf`. Touches nothing; pools that are opened do."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from windfall.pools.batch.pool import BatchPool
from windfall.pools.batch.settings import QueueSettings, SlurmSettings, check
from windfall.pools.batch.submit import need_package
from windfall.pools.batch.systems import LSF, PBS, SLURM, System
from windfall.pools.kinds import WORKERS, Kind, PoolConfig


def _check(pool: PoolConfig, where: str) -> None:
    check(pool, where)
    need_package(where)


def _kind(system: System, settings: type[Struct]) -> Kind:
    """A queue may be long: few jobs wait in it at once, and each is as large as the work that waits."""
    opened = partial(BatchPool, system)
    return Kind(gives=WORKERS, settings=settings, open=opened, check=_check, limit=10, backlog=5, least_slots=1)


SLURM_KIND = _kind(SLURM, SlurmSettings)
PBS_KIND = _kind(PBS, QueueSettings)
LSF_KIND = _kind(LSF, QueueSettings)
