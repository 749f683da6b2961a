"""One host's part of a task that takes whole hosts: what its process is told of the others, and its wait for them.

The processes of a task start themselves, one on each host: nothing logs in from one host to another. Each finds the
others by variables and by a file of addresses. A part is held until the server says that every host holds its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Tuple

from windfall.worker.running.slots import Held

Key = Tuple[Any, Any, int]

_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below those that Linux gives to connections: a port of this range is seldom taken."""


class Parts:
    """The parts that this worker holds and has not begun. `folder`: where the files of addresses are written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._waiting: set[Key] = set()
        self._ready: dict[Key, Held] = {}
        """Those that have their inputs."""
        self._files: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def settings_of(self, key: Key, gang: dict[str, Any], slots: int) -> dict[str, Any]:
        """What its process is told, as settings of its task; the file of addresses is written here."""
        rank, addresses = int(gang["rank"]), [str(address) for _, address in gang["hosts"]]
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, "-".join(str(part) for part in key))
        with open(path, "w") as file:
            file.writelines(f"{address}\n" for address in addresses)
        self._files[key] = path
        self._waiting.add(key)
        job, task, attempt = key
        env = {
            "WINDFALL_NODES": str(len(addresses)),
            "WINDFALL_NODE_RANK": str(rank),
            "WINDFALL_NODE_LIST": ",".join(addresses),
            "WINDFALL_NODE_FILE": path,
            "WINDFALL_HEAD": addresses[0],
            "WINDFALL_HEAD_PORT": str(_FIRST_PORT + (job * 7919 + task * 104_729 + attempt - rank) % _PORTS),
        }
        return {"env": env, "cpus": slots, "node_file": path}

    def holds_back(self, held: Held) -> bool:
        """Whether an attempt that could begin waits for other hosts; it is kept then."""
        if held.key not in self._waiting:
            return False
        self._ready[held.key] = held
        return True

    def begin(self, key: Key) -> Held | None:
        """Every host holds its part. The attempt, if it has its inputs; else it begins when it has."""
        self._waiting.discard(key)
        return self._ready.pop(key, None)

    def ready(self) -> list[Held]:
        return list(self._ready.values())

    def waiting(self) -> list[Key]:
        return list(self._waiting)

    def forget(self, key: Key) -> None:
        """The attempt has ended."""
        self._waiting.discard(key)
        self._ready.pop(key, None)
        path = self._files.pop(key, None)
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)
