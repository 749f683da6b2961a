"""Memory limits of an attempt: a control group where we may make one, else watching and an rlimit. Touches /sys, /proc.

Whichever of these stops the attempt, its cause is the same: out of memory.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time

from windfall.worker.running import system

WATCH_S = 0.05
"""Seconds between two checks of an attempt's memory where there is no control group."""

PREFIX = "windfall-"
"""Prefix of the names of our groups; the process id of the runner is the suffix."""

_SIGNS = (b"MemoryError", b"bad_alloc", b"Cannot allocate memory", b"out of memory", b"Out of memory")


class MemoryGroup:
    """One control group with a memory limit, used for one attempt after the other."""

    def __init__(self, path: str, home: str, is_v2: bool) -> None:
        self._path = path
        self._home = home
        self._limit_file = "memory.max" if is_v2 else "memory.limit_in_bytes"
        self._events_file = "memory.events" if is_v2 else "memory.oom_control"
        self._is_v2 = is_v2
        os.makedirs(path, exist_ok=True)
        self._kills_before = self._kills()

    def limit(self, limit_bytes: int) -> None:
        # Page cache left by the previous attempt counts against the new one unless it is freed.
        with contextlib.suppress(OSError):
            self._write("memory.reclaim" if self._is_v2 else "memory.force_empty", "0")
        self._write(self._limit_file, str(limit_bytes))
        with contextlib.suppress(OSError):
            self._write("memory.swap.max" if self._is_v2 else "memory.memsw.limit_in_bytes",
                        "0" if self._is_v2 else str(limit_bytes))  # fmt: skip
        self._kills_before = self._kills()

    def enter(self) -> None:
        """Move this process into the group, so that the child it starts next is in the group."""
        self._write("cgroup.procs", str(os.getpid()))

    def leave(self) -> None:
        with open(os.path.join(self._home, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def killed(self) -> bool:
        """Whether the kernel has killed a process of the group since the limit was set."""
        return self._kills() > self._kills_before

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._path)

    def _kills(self) -> int:
        try:
            with open(os.path.join(self._path, self._events_file)) as file:
                for line in file:
                    word, _, count = line.partition(" ")
                    if word == "oom_kill":
                        return int(count)
        except OSError:
            pass
        return 0

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._path, name), "w") as file:
            file.write(text)


def memory_group(label: str) -> MemoryGroup | None:
    """A group of this name beside (or below) that of this process; `None` if we may not create one."""
    for home, folder, is_v2 in _places():
        _sweep(folder)
        try:
            group = MemoryGroup(os.path.join(folder, label), home, is_v2)
            # Enter and leave once: an error shall occur here, not while a task runs.
            group.enter()
            group.leave()
            return group
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(folder, label))
    return None


def _sweep(folder: str) -> None:
    """Remove the groups of runners that were killed; one with a process in it cannot be removed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            pid = name.rpartition("-")[2]
            if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(folder, name))


def _places() -> list[tuple[str, str, bool]]:
    """Where a group could be created: `(group of this process, folder for the new group, is it version 2)`."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mounts") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return []
    places = []
    for number, controllers, path in lines:
        for _, point, kind, options, *_ in mounts:
            if kind == "cgroup" and "memory" in options.split(",") and "memory" in controllers.split(","):
                home = _existing(point + path)
                places.append((home, home, False))
            elif kind == "cgroup2" and number == "0":
                # In version 2 inner groups hold no processes, so the new group is a sibling of ours.
                home = _existing(point + path)
                places += [(home, folder, True) for folder in (home, os.path.dirname(home)) if _hands_memory_on(folder)]
    return places


def _hands_memory_on(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "cgroup.subtree_control")) as file:
            return "memory" in file.read().split()
    except OSError:
        return False


def _existing(path: str) -> str:
    """The path, or the mount point: in a container the host's path does not exist and the mount point is our group."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path.rstrip("/") or "/"


class MemoryLimit:
    """Enforces the memory limit of one attempt at a time, by the best means that this host allows."""

    def __init__(self, label: str) -> None:
        self._label = f"{PREFIX}{label}-{os.getpid()}"
        self._group: MemoryGroup | None = None
        self._probed = False
        self._limit_bytes = 0
        self._next_look_s = 0.0
        self.peak_bytes = 0

    def begin(self, limit_bytes: int) -> None:
        """Before the attempt is started."""
        if not self._probed:
            self._probed = True
            if os.environ.get("WINDFALL_CGROUP") != "off":
                self._group = memory_group(self._label)
        self._limit_bytes = limit_bytes
        self.peak_bytes = 0
        if self._group:
            try:
                self._group.limit(limit_bytes)
                self._group.enter()
            except OSError:
                self._group = None

    def started(self, pid: int) -> None:
        """Right after the start: move this process out of the group; the child stays."""
        if self._group:
            self._group.leave()
            return
        self._next_look_s = time.monotonic() + WATCH_S
        # Stops one huge allocation between two checks; generous, because reserved memory is not yet used.
        back_stop_bytes = 2 * self._limit_bytes + (256 << 20)
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (back_stop_bytes, back_stop_bytes))

    def failed_to_start(self) -> None:
        if self._group:
            self._group.leave()

    def over(self, pid: int, now_s: float) -> bool:
        """Whether the attempt exceeds its limit; always False where a control group enforces it."""
        if self._group or now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + WATCH_S
        self.peak_bytes = max(self.peak_bytes, system.family_memory_bytes(pid, self._limit_bytes))
        return self.peak_bytes > self._limit_bytes

    @property
    def watch_s(self) -> float | None:
        return None if self._group else WATCH_S

    def judge(self, failed: bool, peak_bytes: int, stderr: bytes) -> bool:
        """Whether an ended attempt ran out of memory. `peak_bytes`: the kernel's figure for its largest process."""
        if self._group:
            return self._group.killed()
        if not failed:
            return False
        return peak_bytes > self._limit_bytes or any(sign in stderr[-4096:] for sign in _SIGNS)

    def close(self) -> None:
        if self._group:
            self._group.remove()
