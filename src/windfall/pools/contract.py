"""The contract of a pool: start workers, list them, stop them. Types only; touches nothing."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field


class PoolWorker(Struct, frozen=True):
    """A worker that a pool has started. `host` is the name under which it asks the server for work."""

    host: str
    alive: bool = True
    error: str = ""
    """Why the worker failed; empty if it ended in good order."""


class Started(Struct):
    """Answer to a request: the hosts that were started, and the error if there are fewer than asked for."""

    hosts: list[str] = field(default_factory=list)
    error: str = ""


class Pool(Protocol):
    """A provider of workers. Calls block and are made from one thread at a time; none of them raises.

    Workers get the server's address from the pool, which gets it when it is made. A worker without work ends by itself
    after a while, so no worker of a forgotten pool runs for long.
    """

    def start(self, count: int) -> Started:
        """Start up to `count` workers; return when they have been accepted, not when they ask for work."""
        ...

    def list(self) -> list[PoolWorker]:
        """All living workers, and, once, those that have ended since the last call."""
        ...

    def stop(self, grace_s: float = 10.0) -> None:
        """End all workers: tasks may finish within `grace_s`, then they are handed back. May be called twice."""
        ...
