"""Hands jobs to a batch system through psij-python. Touches its submit command and one folder.

psij-python knows how each system is told about queue, account, cores, memory and walltime, how the submit command is
called and where in its answer the id stands. Polling is left to the pool: it asks once for all jobs of all workers, and
must learn the names of jobs, too.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from windfall.errors import BadInput
from windfall.pools.batch import script
from windfall.pools.batch.systems import System
from windfall.pools.contract import INVALID, TRANSIENT, PoolError
from windfall.pools.starting.calls import call
from windfall.pools.starting.shipped import one_line

PACKAGE = "psij-python"


class Request(Struct, frozen=True):
    """One job or one job array, as psij-python and the script on the node need it."""

    name: str
    folder: Path
    """Of the worker; of an array, what the folders of its elements begin with: their numbers follow."""
    cores: int
    walltime_s: int
    notice_s: int = 0
    queue: str = ""
    account: str = ""
    memory_bytes: int | None = None
    """Of all slots together."""
    native: Sequence[str] = ()
    elements: tuple[int, int] | None = None
    """First and last number of an array."""


class Answer(Struct, frozen=True):
    """The id of a job; or why it was not taken, in the words of the batch system."""

    id: str = ""
    error: PoolError | None = None
    unsure: bool = False
    """The submit command heard no answer, or was ended by us: the job may have been taken."""


class Refused(Exception):
    """The submit command has failed; `unsure` if nobody knows whether the job was taken."""

    def __init__(self, said: str, unsure: bool) -> None:
        super().__init__(said)
        self.unsure = unsure


class Submitter:
    """Submits jobs to one batch system."""

    def __init__(self, system: System, folder: Path, limit_s: float) -> None:
        self._system, self._limit_s = system, limit_s
        config = import_module("psij.executors.batch.batch_scheduler_executor").BatchSchedulerExecutorConfig
        self._executor = _executor_class(system)(config(work_directory=folder), limit_s)

    def submit(self, request: Request, dry: bool = False) -> Answer:
        """Submit a job; `dry`: only ask whether it would be taken."""
        psij = import_module("psij")
        job = psij.Job(self._spec(psij, request))
        try:
            self._executor.submit_to(job, request, dry)
        except Refused as error:
            kind = TRANSIENT if error.unsure else self._system.kind_of(str(error))
            return Answer(error=PoolError(str(error), kind), unsure=error.unsure)
        except psij.SubmitException as error:
            return Answer(error=PoolError(one_line(str(error)), self._system.kind_of(str(error))))
        except (psij.InvalidJobException, TypeError) as error:
            return Answer(error=PoolError(one_line(str(error)), INVALID))
        except OSError as error:
            return Answer(error=PoolError(f"{request.folder}: {error.strerror or error}", TRANSIENT))
        return Answer(str(job.native_id))

    def _spec(self, psij: Any, request: Request) -> Any:
        many = self._system.cores_are_processes
        resources = psij.ResourceSpecV1(
            node_count=1,
            processes_per_node=request.cores if many else 1,
            cpu_cores_per_process=None if many else request.cores,
            memory=request.memory_bytes,
        )
        attributes = psij.JobAttributes(
            duration=timedelta(seconds=request.walltime_s),
            queue_name=request.queue or None,
            account=request.account or None,
            custom_attributes=self._names(request),
        )
        directory = request.folder if request.elements is None else request.folder.parent
        return psij.JobSpec(
            executable="worker.sh", directory=directory, resources=resources, attributes=attributes,
            inherit_environment=True,
        )  # fmt: skip

    def _names(self, request: Request) -> dict[str, object]:
        """The name as an attribute of psij-python, unless our own directive of an array says it."""
        arrays = self._system.arrays
        ours = request.elements is not None and arrays is not None and "{name}" in arrays.directive
        return {} if ours else {self._system.name_option: request.name}


def _executor_class(system: System) -> Any:
    """The executor of psij-python with our script, a time limit, and no polling of its own."""
    module, _, name = system.executor.partition(":")
    base: Any = getattr(import_module(module), name)

    class Executor(base):  # type: ignore[misc]
        _NAME_ = system.name

        def __init__(self, config: Any, limit_s: float) -> None:
            super().__init__(None, config)
            self._limit_s = limit_s
            self._request: Request | None = None
            self._dry = False

        def submit_to(self, job: Any, request: Request, dry: bool) -> None:
            self._request, self._dry = request, dry
            try:
                self.submit(job)
            finally:
                (self.work_directory / f"{job.id}.job").unlink(missing_ok=True)

        def generate_submit_script(self, job: Any, context: dict[str, object], submit_file: Any) -> None:
            request = self._request
            assert request is not None
            theirs = io.StringIO()
            super().generate_submit_script(job, context, theirs)
            ours = script.extra_directives(
                system, request.name, request.folder, request.notice_s, request.native, request.elements
            )
            directives = [*script.directives_of(theirs.getvalue(), system), *ours]
            written = script.written(
                system,
                directives,
                request.folder,
                request.walltime_s,
                request.notice_s,
                request.elements is not None,
            )
            submit_file.write(written)

        def get_submit_command(self, job: Any, submit_file_path: Path) -> list[str]:
            program, *words = super().get_submit_command(job, submit_file_path)
            return [program, *(system.dry_run if self._dry else ()), *words]

        def job_id_from_submit_output(self, out: str) -> str:
            return "" if self._dry else str(super().job_id_from_submit_output(out))

        def _run_command(self, cmd: list[str]) -> str:
            called = call(cmd, b"", self._limit_s, env=system.env)
            if called.trouble or called.code:
                said = one_line(called.stderr) or called.trouble or f"{cmd[0]}: exit code {called.code}"
                raise Refused(said, called.timed_out or system.is_unsure(said))
            return called.stdout.decode(errors="replace")

        def _start_queue_poll_thread(self) -> Any:
            return _NoPolling()

    return Executor


class _NoPolling:
    """Stands in for the thread that would ask the batch system every few seconds."""

    def register_job(self, job: Any) -> None:
        pass


def need_package(where: str) -> None:
    """BadInput if psij-python is not installed."""
    try:
        import_module("psij")
    except ImportError as error:
        hint = "install it: pip install 'windfall[batch]'"
        raise BadInput(f"{where}: the package {PACKAGE} is needed ({error})", hint=hint) from None
