"""The worker's identity: a stable id, its folder, the ad of its host. Touches the host's files and one lock."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import sys
import tempfile
import time
import uuid
import zlib
from typing import IO, Any
from urllib.parse import urlsplit

_MAX_INSTANCES = 4096
_REFERENCE_S = 0.016
"""Seconds that the benchmark takes on a core of speed 1.0 (a cloud core of the early 2020s)."""


class Taken(Exception):
    """Another worker on this host uses this name."""


class Identity:
    """The id, and the lock that reserves it for this process."""

    def __init__(self, host: str, lock: IO[str]) -> None:
        self.host = host
        self._lock = lock  # held open: the lock lives as long as this process


def claim(name: str | None, server: str) -> Identity:
    """An id that is the same after a restart and on a wiped disk, and not used by another worker on this host.

    A name is unique per server; workers of two servers may use the same.
    """
    folder = _lock_folder()
    if name is not None:
        lock = _lock(os.path.join(folder, f"name-{hashlib.sha256(server.encode()).hexdigest()[:12]}-{name}.lock"))
        if lock is None:
            raise Taken(f"another worker named {name!r} runs on this host for {server}\n  give this one another --name")
        return Identity(name, lock)
    for instance in range(_MAX_INSTANCES):
        lock = _lock(os.path.join(folder, f"instance-{instance}.lock"))
        if lock is not None:
            return Identity(stable_id(_hardware(), socket.gethostname(), os.getuid(), instance), lock)
    raise Taken(f"{_MAX_INSTANCES} workers run on this host already")


def stable_id(hardware: str, hostname: str, uid: int, instance: int) -> str:
    digest = hashlib.sha256(f"{hardware}/{hostname}/{uid}".encode()).hexdigest()[:8]
    short = re.sub(r"[^A-Za-z0-9-]", "-", hostname.split(".")[0])[:32] or "host"
    return f"{short}-{digest}-{instance}"


def _hardware() -> str:
    node = uuid.getnode()
    if not node >> 40 & 1:
        return f"{node:012x}"
    # No network card: `uuid` returns another random number each time.
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError), open(path) as file:
            return file.read().strip()
    return "no-hardware-address"


def _lock_folder() -> str:
    folder = os.path.join(tempfile.gettempdir(), f"windfall-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Taken(f"{folder} is not a directory of ours\n  remove it, or set TMPDIR to another place")
    return folder


def _lock(path: str) -> IO[str] | None:
    file = open(path, "w")  # noqa: SIM115 - stays open for the life of the process
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


_claimed: list[IO[str]] = []
"""Locks of what this worker has of its host, held open as long as it runs."""


def claim_device(name: str) -> bool:
    """Whether this worker gets a device; False: another worker on this host has it."""
    name = re.sub(r"[^A-Za-z0-9.-]", "-", name)[:100]
    lock = _lock(os.path.join(_lock_folder(), f"device-{name}.lock"))
    if lock is not None:
        _claimed.append(lock)
    return lock is not None


def default_folder() -> str:
    """Default folder of workers; survives a reboot where possible."""
    parent = os.environ.get("TMPDIR") or "/var/tmp"
    return os.path.join(parent, f"windfall-worker-{os.getuid()}")


def check_folder(folder: str) -> None:
    """Make the folder of workers; `Taken` if it is somebody else's, who could read and replace what is in it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid():
        raise Taken(f"{folder} belongs to another user\n  choose another with --dir")


def secret(folder: str) -> str:
    """What tells this host from others that have the same token: made once, read by its owner alone."""
    path = os.path.join(folder, "secret")
    with contextlib.suppress(OSError), open(path) as file:
        if len(kept := file.read().strip()) == 64 and kept.isalnum():
            return kept
    made = secrets.token_hex(32)
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as new:
        new.write(made)
    os.replace(f"{path}.new", path)
    return made


def cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_mb() -> int:
    """The host's memory, or the container's if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            total = min(total, int(file.read()))
    return total >> 20


def speed(folder: str) -> float:
    """Speed of a core (1.0: a cloud core of the early 2020s), measured by a short benchmark; cached in the folder."""
    host = os.uname()
    machine = f"{host.machine} {host.release}"
    path = os.path.join(folder, f"speed-{host.nodename}.json")  # the folder may be on a disk that hosts share
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path) as file:
        kept = json.load(file)
        if kept["machine"] == machine:
            return float(kept["speed"])
    data = bytes(i * i % 251 for i in range(1 << 12)) * 64
    best_s = min(_timed(data) for _ in range(3))
    value = round(_REFERENCE_S / best_s, 3)
    with contextlib.suppress(OSError), open(path, "w") as file:
        json.dump({"speed": value, "machine": machine}, file)
    return value


def _timed(data: bytes) -> float:
    started_s = time.perf_counter()
    for _ in range(8):
        zlib.crc32(zlib.compress(data, 6))
    return time.perf_counter() - started_s


def address_towards(url: str) -> str:
    """The address from which this host reaches the server: other hosts are likely to reach it there. Empty: unknown."""
    parts = urlsplit(url)
    try:
        # A datagram socket that is connected sends nothing.
        family, kind, _, _, there = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return ""


def advertisement(
    host: str, slots: int, pool: str | None, tags: dict[str, str], folder: str, share_mb: int | None = None
) -> dict[str, Any]:
    from windfall import __version__
    from windfall.wire import VERSION

    return {
        "name": host,
        "cpus": cpus(),
        "memory_mb": share_mb or memory_mb(),
        "os": os.uname().sysname.lower(),
        "arch": os.uname().machine,
        "pool": pool,
        "slots": slots,
        "speed": speed(folder),
        "tags": tags,
        "lifetime_s": None,
        "version": __version__,
        "protocol": VERSION,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
