"""One class for each system that `windfall bench peers` measures. Touches processes and the network's loopback.

A system starts with `slots` tasks at once on this machine and does n calls of a Python function that does nothing, or n
processes of `true`, from the first submission to the last result. Settings are those of the system's own quick start;
what a user would have to know first is not tuned, ours included.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from windfall.bench.harness import live

TRUE = shutil.which("true") or "/bin/true"


def nothing() -> None:
    """What a call does."""


def spawn() -> int:
    """What a system of Python calls does for a process."""
    return subprocess.call([TRUE])


class System(ABC):
    """A system that has started, and does work until it is closed."""

    name: ClassVar[str]
    install: ClassVar[str]
    """How to get it; shown if it is not here."""
    module: ClassVar[str] = ""
    """What has to be importable; empty for a program."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.open = ExitStack()

    @classmethod
    def is_here(cls) -> bool:
        return find_spec(cls.module) is not None

    @abstractmethod
    def start(self) -> None:
        """Return when work can be given to it."""

    @abstractmethod
    def spawn(self, n: int) -> None:
        """Run n processes of `true`."""

    def close(self) -> None:
        self.open.close()


class Caller(System):
    """A system that does Python calls, too."""

    slow_calls: ClassVar[int] = 1
    """How many times fewer calls make a round of the same length."""

    def call(self, n: int) -> None:
        self.calls_of(nothing, n)

    def spawn(self, n: int) -> None:
        self.calls_of(spawn, n)

    @abstractmethod
    def calls_of(self, function: Callable[[], object], n: int) -> None:
        """Call the function n times."""


class Windfall(Caller):
    name, install, module = "windfall", "", "windfall"

    def start(self) -> None:
        running = self.open.enter_context(live(self.slots))
        self.client = self.open.enter_context(running.client())
        self.executor = self.client.executor()
        self.open.callback(self.executor.shutdown)

    def calls_of(self, function: Callable[[], object], n: int) -> None:
        for future in [self.executor.submit(function) for _ in range(n)]:
            future.result()

    def spawn(self, n: int) -> None:
        self.client.submit([TRUE], params=range(n), cwd="/").wait()


class ProcessPool(Caller):
    """The standard library: neither durable nor distributed, so the floor of calls."""

    name, install, module = "ProcessPoolExecutor", "", "concurrent.futures"

    def start(self) -> None:
        self.pool = self.open.enter_context(ProcessPoolExecutor(self.slots))

    def calls_of(self, function: Callable[[], object], n: int) -> None:
        for future in [self.pool.submit(function) for _ in range(n)]:
            future.result()


class Ray(Caller):
    name, install, module = "Ray", "pip install ray", "ray"

    def start(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray: Any = importlib.import_module("ray")
        self.ray.init(num_cpus=self.slots, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        self.open.callback(self.ray.shutdown)

    def calls_of(self, function: Callable[[], object], n: int) -> None:
        remote = self.ray.remote(function)
        self.ray.get([remote.remote() for _ in range(n)])


class Dask(Caller):
    name, install, module = "Dask", "pip install distributed", "distributed"

    def start(self) -> None:
        distributed: Any = importlib.import_module("distributed")
        cluster = distributed.LocalCluster(
            n_workers=self.slots, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        self.open.enter_context(cluster)
        self.client: Any = self.open.enter_context(distributed.Client(cluster))

    def calls_of(self, function: Callable[[], object], n: int) -> None:
        self.client.gather([self.client.submit(function, pure=False) for _ in range(n)])


class Parsl(Caller):
    name, install, module = "Parsl", "pip install parsl", "parsl"

    def start(self) -> None:
        self.parsl: Any = importlib.import_module("parsl")
        executors: Any = importlib.import_module("parsl.executors")
        folder = self.open.enter_context(tempfile.TemporaryDirectory())
        executor = executors.HighThroughputExecutor(
            max_workers_per_node=self.slots, address="127.0.0.1", encrypted=False
        )
        loaded = self.parsl.load(self.parsl.Config(executors=[executor], run_dir=folder, strategy="none"))
        self.open.callback(self.parsl.clear)
        self.open.callback(loaded.cleanup)

    def calls_of(self, function: Callable[[], object], n: int) -> None:
        app = self.parsl.python_app(function)
        for future in [app() for _ in range(n)]:
            future.result()


class HyperQueue(Caller):
    name, install, module = "HyperQueue", "pip install hyperqueue", "hyperqueue"
    slow_calls = 50

    def start(self) -> None:
        self.hyperqueue: Any = importlib.import_module("hyperqueue")
        cluster_module: Any = importlib.import_module("hyperqueue.cluster")
        # Its jobs write below the folder in which they were submitted.
        folder = self.open.enter_context(tempfile.TemporaryDirectory())
        self.open.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        cluster = self.open.enter_context(cluster_module.LocalCluster())
        cluster.start_worker(cluster_module.WorkerConfig(cores=self.slots))
        self.client: Any = cluster.client()

    def calls_of(self, function: Callable[[], object], n: int) -> None:
        job = self.hyperqueue.Job()
        for _ in range(n):
            job.function(function)
        self._finish(job)

    def spawn(self, n: int) -> None:
        job = self.hyperqueue.Job()
        for _ in range(n):
            job.program([TRUE])
        self._finish(job)

    def _finish(self, job: Any) -> None:
        self.client.wait_for_jobs([self.client.submit(job)])


class Parallel(System):
    """GNU parallel with its log of jobs, the nearest it has to durable."""

    name, install = "GNU parallel", "sudo apt-get install parallel"

    @classmethod
    def is_here(cls) -> bool:
        # Another program of that name, of moreutils, knows no --version.
        found = shutil.which("parallel")
        return found is not None and b"GNU" in subprocess.run([found, "--version"], capture_output=True).stdout

    def start(self) -> None:
        self.folder = Path(self.open.enter_context(tempfile.TemporaryDirectory()))

    def spawn(self, n: int) -> None:
        numbers = "".join(f"{number}\n" for number in range(n))
        command = ["parallel", "-j", str(self.slots), "--joblog", "log", TRUE]
        env = os.environ | {"HOME": str(self.folder)}
        (self.folder / ".parallel").mkdir(exist_ok=True)
        (self.folder / ".parallel" / "will-cite").touch()
        (self.folder / "log").unlink(missing_ok=True)
        subprocess.run(command, input=numbers.encode(), cwd=self.folder, env=env, check=True, stdout=subprocess.DEVNULL)


SYSTEMS: dict[str, type[System]] = {
    "windfall": Windfall,
    "pool": ProcessPool,
    "ray": Ray,
    "dask": Dask,
    "parsl": Parsl,
    "hyperqueue": HyperQueue,
    "parallel": Parallel,
}
