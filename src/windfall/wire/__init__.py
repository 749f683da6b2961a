"""The messages between workers and the server, versioned. Standard library only: the worker ships this package.

The whole protocol is described in docs/reference/protocol.md; the shapes stand in `messages`, the framing in `frames`.
"""

VERSION = 1
"""Protocol version: the server answers 426 to a worker that speaks an older one."""
HOST_SECRET = "X-Windfall-Host-Secret"
"""The header by which a host shows that it is the one that its name belongs to."""
