"""What every pool can do: start clients, tell what became of them, stop them. Types only; touches nothing."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field


class Client(Struct, frozen=True):
    """A pull client that a pool has started. `host` is the name under which it asks the server for work."""

    host: str
    alive: bool = True
    error: str = ""
    """Why it ended, if it did not end in good order."""


class Started(Struct):
    """What came of a request: the hosts that are on their way, and why there are not more of them."""

    hosts: list[str] = field(default_factory=list)
    error: str = ""


class Pool(Protocol):
    """A provider of clients. Calls block and are made from one thread at a time; none of them raises.

    A client is given the server's address when the pool is made. It leaves by itself when it has been without work for
    a while: nobody has to stop it, and a pool that is forgotten costs nothing for long.
    """

    def start(self, count: int) -> Started:
        """Start up to `count` clients; return when they have been accepted, not when they work."""
        ...

    def list(self) -> list[Client]:
        """Every client that lives, and, once, every one that has ended since the last look."""
        ...

    def stop(self, grace_s: float = 10.0) -> None:
        """Let every client go: what it runs may end within the time, then it is handed back. May be called twice."""
        ...
