"""The messages between workers and the server, versioned. Standard library only: the worker ships this package.

The whole protocol is described in docs/reference/protocol.md; the shapes stand in `messages`, the framing in `frames`.
"""

VERSION = 1
"""Protocol version that workers of this Windfall speak."""


def is_served(version: int) -> bool:
    """Whether a server answers a worker that speaks this version: its own, and the one before. Others get a 426."""
    return max(1, VERSION - 1) <= version <= VERSION


HOST_SECRET = "X-Windfall-Host-Secret"
"""The header by which a host shows that it is the one that its name belongs to."""
