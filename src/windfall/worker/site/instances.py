"""Instances on a host of a site: a worker (preemptible) or a user's command (normal). Touches processes.

Both end in the same way: a signal, a grace time, then a kill; `ended` tells how, once all their processes have ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from windfall.wire import messages as m
from windfall.worker.running.slots import SOURCE, Held, Slot
from windfall.worker.running.specs import JobSpec
from windfall.worker.transport.link import Address

_WORKER = """\
import os, sys
sys.path.insert(0, {source!r})
{pin}
from windfall.worker.__main__ import main
code = main(sys.argv[1:])
sys.stderr.flush()
os._exit(code)
"""
_LAST_WORDS_BYTES = 2000
_MARGIN = 0.2
"""Fraction of an instance's grace time that the worker keeps for itself, to report how its tasks ended."""


@dataclass
class End:
    """How an instance ended. `run_s` is None if it never began."""

    number: int
    cause: str
    exit_code: int | None = None
    run_s: float | None = None
    rss_bytes: int = 0
    text: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    ended_s: float = 0.0


class Cores:
    """Assigns cores to instances: as many as they have vCPUs, the least used ones."""

    def __init__(self) -> None:
        self._users = dict.fromkeys(sorted(os.sched_getaffinity(0)), 0)

    def take(self, vcpu: float) -> list[int]:
        """Cores for an instance; empty if it may use all of them."""
        count = max(1, -int(-vcpu // 1))
        if count >= len(self._users):
            return []
        taken = sorted(self._users, key=lambda core: (self._users[core], core))[:count]
        for core in taken:
            self._users[core] += 1
        return taken

    def give_back(self, cores: list[int]) -> None:
        for core in cores:
            self._users[core] -= 1


class WorkerInstance:
    """A worker in a process of its own, which dies with the agent."""

    def __init__(self, order: dict[str, Any], address: Address, folder: str, cores: list[int]) -> None:
        self.number: int = order["id"]
        self.name: str = order["name"]
        self.cores = cores
        self._cause, self._text = "", ""
        self._kill_at_s: float | None = None
        self._folder = os.path.join(folder, order["name"])
        self._started_s = time.monotonic()
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        pin = f"os.sched_setaffinity(0, {cores!r})" if cores else ""
        arguments = ["--server", address.url, "--name", order["name"], "--pool", order["pool"], "--dir", self._folder]
        arguments += ["--slots", str(order["slots"]), "--idle-exit", f"{order['idle_exit_s']:g}", "--die-with-parent"]
        arguments += ["--grace", f"{order['grace_s'] * (1 - _MARGIN):g}"]
        arguments += ["--memory", str(order["memory_mb"])] if order.get("memory_mb") else []
        arguments += [word for tag in order.get("tags") or [] for word in ("--tag", tag)]
        arguments += ["--cafile", address.cafile] if address.cafile else []
        with open(os.path.join(self._folder, "worker.log"), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORKER.format(source=SOURCE, pin=pin), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self._folder,
                env={**os.environ, "WINDFALL_TOKEN": address.token},
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def leave(self, cause: str, text: str, grace_s: float) -> None:
        """Give notice: the worker ends its tasks with their grace time and hands the rest back."""
        if self._kill_at_s is None or grace_s <= 0:
            self._cause, self._text = self._cause or cause, self._text or text
            self._kill_at_s = time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1)

    def ended(self, now_s: float) -> End | None:
        code = self._process.poll()
        if code is None:
            if self._kill_at_s is not None and now_s >= self._kill_at_s:
                self._text += "; killed after its grace time"
                self._kill_at_s = now_s + 1.0
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
            return None
        cause, text = self._cause, self._text
        if not cause:
            cause, text = (m.DONE, "no more work") if code == 0 else (m.EXIT, self._last_words(code))
        return End(self.number, cause, code, time.monotonic() - self._started_s, text=text)

    def _last_words(self, code: int) -> str:
        with contextlib.suppress(OSError), open(os.path.join(self._folder, "worker.log"), "rb") as file:
            lines = file.read()[-_LAST_WORDS_BYTES:].decode(errors="replace").strip().splitlines()
            return f"the worker ended with code {code}" + (f": {lines[-1]}" if lines else "")
        return f"the worker ended with code {code}"

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def wakes_at_s(self) -> float | None:
        return self._kill_at_s


class CommandInstance:
    """A command under the same runner that runs tasks; the runner handles limits, output and stray processes."""

    def __init__(
        self, order: dict[str, Any], host: str, folder: str, cores: list[int], selector: selectors.BaseSelector
    ) -> None:
        self.number: int = order["id"]
        self.name: str = order["name"]
        self.cores = cores
        self._selector = selector
        self._folder = os.path.join(folder, order["name"])
        self._end: End | None = None
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._slot = Slot(self.number, self._folder)
        self._slot.start()
        assert self._slot.process and self._slot.line
        if cores:
            # Before the runner starts anything, so that its children are restricted to these cores too.
            os.sched_setaffinity(self._slot.process.pid, cores)
        selector.register(self._slot.line, selectors.EVENT_READ, self._hear)
        spec = JobSpec(1, order["name"], host, order, sys.executable)
        self._held = Held(1, order["name"], self.number, 1, order["argv"], spec, b"")
        self._slot.give(self._held)
        self._started_s = time.monotonic()

    @property
    def pid(self) -> int:
        assert self._slot.process
        return self._slot.process.pid

    def leave(self, cause: str, text: str, grace_s: float) -> None:
        self._slot.end_running(self._held, cause, text, grace_s)

    def ended(self, now_s: float) -> End | None:
        return self._end

    def _hear(self) -> None:
        line = self._slot.line
        assert line
        for message in line.receive():
            if message[0] == "r":
                _, _, cause, code, run_s, _, rss, stdout, stderr, _, more = message
                text = (more or {}).get("text", "")
                self._end = End(self.number, cause, code, run_s, rss, text, stdout, stderr)
        if line.at_end and self._end is None:
            run_s = time.monotonic() - self._started_s
            self._end = End(self.number, m.LOST, run_s=run_s, text="its runner was killed")

    def close(self) -> None:
        assert self._slot.process and self._slot.line
        self._selector.unregister(self._slot.line)
        self._slot.close()
        try:
            self._slot.process.wait(5)
        except subprocess.TimeoutExpired:
            self._slot.process.kill()
            self._slot.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def wakes_at_s(self) -> float | None:
        return None
