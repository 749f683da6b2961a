"""A worker started by this host as a tree of processes: started, frozen, thawed, killed. Touches processes, /proc.

Freezing is SIGSTOP to every member until none runs: it needs no privileges and works on every kernel. Tasks have
process groups of their own, and their threads may start processes, so members are found through their parents.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

_PATIENCE_S = 5.0
_STOPPED, _DEAD = "Tt", "ZXx"


class Tree:
    """A worker and all its descendants. The root leads a session of its own, which tells it from its forks."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.born = _stat(pid)[2]
        self._code: int | None = None

    @property
    def alive(self) -> bool:
        if self._code is None:
            with contextlib.suppress(ChildProcessError):  # not a child of this process: an earlier server started it
                done, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if done else None
        state, _, born = _stat(self.pid)
        return self._code is None and born == self.born and state not in _DEAD

    @property
    def code(self) -> int | None:
        """Exit code of the root, or minus the signal; None while it runs, and if another process started it."""
        return self._code

    @property
    def how(self) -> str:
        """How the root ended, as far as known."""
        return "an unknown exit code" if self._code is None else _name(self._code)

    @property
    def ending(self) -> str:
        return "its worker has ended" if self._code is None else f"its worker ended with {self.how}"

    def freeze(self) -> None:
        self._tell(signal.SIGSTOP, spare=_STOPPED + _DEAD)

    def thaw(self) -> None:
        self._tell(signal.SIGCONT, spare="RSDI" + _DEAD)

    def kill(self) -> None:
        """Freeze, then kill, so that no member starts a process meanwhile."""
        self.freeze()
        self._tell(signal.SIGKILL, spare=_DEAD)

    def members(self) -> list[int]:
        """The root and all its descendants, parents before their children."""
        if not self.alive:
            return []
        children = _children if _KERNEL_TELLS else _parents().get
        found, fresh = [], [self.pid]
        while fresh:
            found += fresh
            fresh = [child for parent in fresh for child in children(parent, ())]
        return found

    def _tell(self, number: int, spare: str) -> None:
        """Signal all members once, then repeat until every member found in one scan is in one of the spared states.

        The first signal goes to all: a member that seems to run may have a stop pending, which only SIGCONT cancels.
        """
        until = time.monotonic() + _PATIENCE_S
        left = told = self.members()
        while left and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            time.sleep(0.002)
            left = [pid for pid in {*told, *self.members()} if _stat(pid)[0] not in spare]


def spawn(command: list[str], folder: Path) -> Tree:
    """Start a worker in a session of its own; it outlives this process. Raises OSError."""
    log = os.open(folder / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, log, target) for target in (1, 2)]
        return Tree(os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True))
    finally:
        os.close(log)


def find(pid: int, born: int, folder: Path) -> Tree | None:
    """The worker that an earlier server started, if it lives: found by its process id, or by its `--dir FOLDER`.

    If the id could not be written down, only the folder is known. The id is tried first: a process that has just
    started does not show its arguments yet.
    """
    if pid and _stat(pid)[2] == born and (known := Tree(pid)).alive:
        return known
    for pid in _pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            mark = words.index(b"--dir") if b"--dir" in words else None
            if mark is not None and words[mark + 1] == os.fsencode(folder) and os.getsid(pid) == pid:
                return Tree(pid)
    return None


def _name(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


# Where the kernel supports it, listing the children of a process is ten times faster than listing the parents of all.
# The list may miss children while others start or end, so `_tell` scans again when all members have stopped.
_KERNEL_TELLS = Path("/proc/thread-self/children").exists()


def _children(pid: int, default: object = ()) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found


def _parents() -> dict[int, list[int]]:
    """All processes by their parents."""
    found: dict[int, list[int]] = {}
    for pid in _pids():
        found.setdefault(_stat(pid)[1], []).append(pid)
    return found


def _stat(pid: int) -> tuple[str, int, int]:
    """State, parent and time of birth; "X" if there is no such process."""
    try:
        # The name in parentheses may contain any character, even a closing parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "X", 0, 0
    return fields[0].decode(), int(fields[1]), int(fields[19])
