"""Kinds `slurm`, `pbs` and `lsf`. Touches nothing; pools that are opened do."""

from __future__ import annotations

from functools import partial

from windfall.pools.batch.pool import BatchPool
from windfall.pools.batch.settings import QueueSettings, SlurmSettings, check
from windfall.pools.batch.submit import need_package
from windfall.pools.batch.systems import LSF, PBS, SLURM
from windfall.pools.kinds import WORKERS, Kind, PoolConfig


def _check(pool: PoolConfig, where: str) -> None:
    check(pool, where)
    need_package(where)


SLURM_KIND = Kind(gives=WORKERS, settings=SlurmSettings, open=partial(BatchPool, SLURM), check=_check, limit=10)
PBS_KIND = Kind(gives=WORKERS, settings=QueueSettings, open=partial(BatchPool, PBS), check=_check, limit=10)
LSF_KIND = Kind(gives=WORKERS, settings=QueueSettings, open=partial(BatchPool, LSF), check=_check, limit=10)
