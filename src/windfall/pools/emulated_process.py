"""A machine of the emulated cloud as a tree of processes: started, frozen, thawed, killed. Touches processes, /proc.

Freezing is SIGSTOP to every member until none runs: it needs no rights and works on every kernel. A worker's tasks have
process groups of their own, and threads of theirs may start processes, so members are found by their parents.
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
    """A worker and everything below it. The root leads a session of its own, so it is never mistaken for a fork."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.born = _stat(pid)[2]
        self._code: int | None = None

    @property
    def alive(self) -> bool:
        if self._code is None:
            with contextlib.suppress(ChildProcessError):  # started by an earlier server, it is not our child
                done, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if done else None
        state, _, born = _stat(self.pid)
        return self._code is None and born == self.born and state not in _DEAD

    @property
    def ending(self) -> str:
        """How the root ended, as far as that is known."""
        if self._code is None:
            return "its worker has ended"
        return f"its worker ended with {_name(self._code)}"

    def freeze(self) -> None:
        self._tell(signal.SIGSTOP, spare=_STOPPED + _DEAD)

    def thaw(self) -> None:
        self._tell(signal.SIGCONT, spare="RSDI" + _DEAD)

    def kill(self) -> None:
        """Frozen first, so that nothing is born while the others die."""
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
        """All of them once, then until every member that was found in one look is in one of the spared states.

        All of them, for one that seems to run may have a stop under way, which only a signal to go on calls back.
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
    """Start a worker in a session of its own, which outlives us. Raises OSError."""
    log = os.open(folder / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, log, target) for target in (1, 2)]
        return Tree(os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True))
    finally:
        os.close(log)


def find(pid: int, born: int, folder: Path) -> Tree | None:
    """The worker that an earlier server started, if it lives: by its number, or by its `--dir FOLDER`.

    Of one whose number could not be written down only the folder is known; one that has just been started shows no
    words yet, so the number comes first.
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
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


# Asking each process for its children is ten times quicker than asking all of them for their parents, where it can be
# asked. Children may be missed while others of them come and go, so whoever stops a tree looks again when it stands.
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
        # The name in parentheses may hold anything, a closing parenthesis too.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "X", 0, 0
    return fields[0].decode(), int(fields[1]), int(fields[19])
