"""Linux calls that the standard library lacks: subreapers, death signals, memory of descendants. Touches /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FROZEN_S = 1.0


def frozen_s(waited_s: float, timeout_s: float) -> float:
    """How long this process was frozen, inferred from a wait that took much longer than its timeout; 0.0 if it was not.

    A hibernated machine freezes its processes while the clocks go on; that time must not count against a task. A delay
    below a second may come from a busy host, so it does not count as frozen.
    """
    late_s = waited_s - timeout_s
    return late_s if late_s > _FROZEN_S else 0.0


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def become_subreaper() -> bool:
    """Orphaned descendants become this process's children from now on, so that none escapes."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> bool:
    """Other processes of this account cannot read the memory and the environment of this one, with its token, in /proc.

    What it starts is not hidden.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def hide_argument(text: str) -> bool:
    """Overwrite a text in the command line of this process: /proc and `ps` show that to everybody."""
    try:
        with open("/proc/self/stat", "rb") as file:
            start, end = map(int, file.read().rpartition(b")")[2].split()[45:47])
        if not 0 < start < end:
            return False
        line, found = ctypes.string_at(start, end - start), False
        at = line.find(text.encode())
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(text))
            found, at = True, line.find(text.encode(), at + len(text))
        return found
    except (OSError, ValueError):
        return False


def die_with_parent(signum: int) -> bool:
    """This process gets `signum` when the thread that started it ends."""
    return _prctl(_PR_SET_PDEATHSIG, signum)


def use_cores(cores: tuple[int, ...]) -> None:
    """This process, and what it starts, runs on these cores. One that has gone offline is no reason to fail a task."""
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, cores)


def wait_for(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until a child has ended, and for no moment longer. TimeoutExpired if it has not ended in time."""
    pidfd_open = getattr(os, "pidfd_open", None)  # since Python 3.9
    if process.returncode is None and pidfd_open is not None:
        with contextlib.suppress(OSError):
            fd = pidfd_open(process.pid)
            try:
                select.select([fd], [], [], timeout_s)
            finally:
                os.close(fd)
            timeout_s = 0.0
    process.wait(timeout_s)


def children(pid: int) -> list[int]:
    """The direct children of a process (of its main thread, which is the only one that starts any here)."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        if not os.path.exists(f"/proc/{pid}"):
            return []
        return [child for child, parent in _parents() if parent == pid]
    except OSError:
        return []


def _parents() -> list[tuple[int, int]]:
    pairs = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                # The name in parentheses may contain any character, even a closing parenthesis.
                pairs.append((int(entry), int(file.read().rpartition(b")")[2].split()[1])))
    return pairs


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found, fresh = [], [pid]
    while fresh:
        found += fresh
        fresh = [child for parent in fresh for child in children(parent)]
    return found


def family_memory_bytes(pid: int, limit_bytes: int) -> int:
    """Memory of a process and its descendants; near the limit, shared pages count once (this is slower)."""
    pids = family(pid)
    resident = sum(_resident_bytes(member) for member in pids)
    if resident <= limit_bytes or len(pids) == 1:
        return resident
    # Forked processes share pages, which the sum counts once per process. The proportional share is exact but slow.
    return sum(_proportional_bytes(member) for member in pids)


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _resident_bytes(pid)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by SIGSTOP; False where that cannot be found out."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:1] == [b"T"]
    return False


def kill_orphans(spare: frozenset[int] = frozenset(), patience_s: float = 5.0) -> bool:
    """Kill and reap all descendants of this process except `spare`. True when none is left."""
    end = time.monotonic() + patience_s
    while True:
        left = [pid for pid in children(os.getpid()) if pid not in spare]
        if not left:
            return True
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
