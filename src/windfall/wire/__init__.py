"""The messages between workers and the server, versioned. Standard library only: the worker ships this package.

The whole protocol is described in docs/reference/protocol.md; the shapes stand in `messages`, the framing in `frames`.
"""

from __future__ import annotations

VERSION = 2
"""Protocol version that workers of this Windfall speak, and the one before it to a server that is older.

1: hosts may show a secret.
2: hosts show one with every request; what they send names its attempt; the cause `quota`.
"""
OLDEST = VERSION - 1
"""The oldest version that servers still speak."""
WITH_SECRET = 2
"""From this version on a host shows a secret."""


def is_served(version: int, oldest: int = OLDEST) -> bool:
    """Whether a server answers a worker that speaks this version: its own, and the one before. Others get a 426."""
    return oldest <= version <= VERSION


def other_version(refused: set[int]) -> int | None:
    """The version that a worker speaks next to a server that has refused these; None: there is none left."""
    return max((version for version in range(OLDEST, VERSION + 1) if version not in refused), default=None)


HOST_SECRET = "X-Windfall-Host-Secret"
"""The header by which a host shows that it is the one that its name belongs to."""
WORKER_AGENT = "windfall-worker"
"""The `User-Agent` of workers."""
ATTEMPT = "X-Windfall-Attempt"
"""The header of a file that a host sends: the attempt that it belongs to, JOB.TASK.ATTEMPT."""
