"""Fields of a [[pool]] of kind `slurm`, `pbs` or `lsf`. Pure data."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from windfall.errors import BadInput
from windfall.pools.kinds import PoolConfig
from windfall.units import parse_bytes, parse_duration

Words = list[str]


class BatchSettings(Struct, forbid_unknown_fields=True):
    """What every batch system has."""

    walltime: str | float = "1h"
    """Time after which the batch system ends a worker."""
    notice: str | float | None = None
    """Time before the walltime at which a worker hands its tasks back; default: a tenth of it, at most a minute."""
    account: str = ""
    cores: int = 1
    """Cores of each slot."""
    memory: str = ""
    """Memory of each slot, as in "2G"."""
    native: Words = []
    """More options of the submit command, one directive each: ["--qos=low", "--exclusive"]."""
    folder: str = ""
    """Folder that the nodes share with the server; default: in the server's state."""
    server: str = ""
    """Address of the server as the nodes see it; default: the one on which it listens."""
    python: str = "python3"
    """The Python (3.8 or newer) of the nodes."""
    arrays: bool = True
    """Whether workers that are asked for together are submitted as one job array."""
    interval: str | float = "5s"
    """Time between two queries of the queue, at least; it grows while nothing changes."""
    time_limit: str | float = "60s"
    """A command that takes longer is ended and has failed."""

    @property
    def where(self) -> str:
        """Partition or queue; empty: the default one."""
        return ""

    @property
    def directives(self) -> Words:
        return self.native


class SlurmSettings(BatchSettings):
    partition: str = ""
    constraint: str = ""
    """Features that a node must have, as in --constraint."""

    @property
    def where(self) -> str:
        return self.partition

    @property
    def directives(self) -> Words:
        return [*([f'--constraint="{self.constraint}"'] if self.constraint else []), *self.native]


class QueueSettings(BatchSettings):
    """PBS and LSF."""

    queue: str = ""

    @property
    def where(self) -> str:
        return self.queue


def walltime_s(settings: BatchSettings) -> int:
    return ceil(parse_duration(settings.walltime, "walltime"))


def notice_s(settings: BatchSettings, seconds: int) -> int:
    return min(60, seconds // 10) if settings.notice is None else ceil(parse_duration(settings.notice, "notice"))


def check(pool: PoolConfig, where: str) -> None:
    """BadInput says which field is wrong."""
    settings: BatchSettings = pool.settings
    seconds = walltime_s(settings)
    if seconds < 60:
        raise BadInput(
            f"{where}: walltime = {settings.walltime}", hint="at least a minute: batch systems count in these"
        )
    if notice_s(settings, seconds) > seconds / 2:
        raise BadInput(f"{where}: notice = {settings.notice}", hint="at most half of the walltime")
    if not 1 <= settings.cores <= 4096:
        raise BadInput(f"{where}: cores = {settings.cores}", hint="it is a number from 1 to 4096")
    if settings.memory:
        parse_bytes(settings.memory, "memory")
    for name, text in (("account", settings.account), ("partition or queue", settings.where)):
        if any(sign in text for sign in '"\n'):
            raise BadInput(f"{where}: {name} = {text!r}", hint="a name in one line, without quotes")
    if bad := next((option for option in settings.directives if "\n" in option or not option.startswith("-")), None):
        raise BadInput(f"{where}: native: {bad!r} is not an option", hint='as in native = ["--qos=low", "--exclusive"]')
    for name in ("interval", "time_limit"):
        if parse_duration(getattr(settings, name), name) < 0.1:
            raise BadInput(f"{where}: {name} = {getattr(settings, name)}", hint="at least 0.1 seconds")
