"""The web server, uvicorn's, made to stop at once. Touches sockets.

uvicorn looks ten times a second whether to stop, and then waits for a tenth of a second in any case; a command that
starts a server for one short task would wait most of its time for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

from windfall.server.connection import Connection
from windfall.server.limits import Limits

_TICK_S = 0.1
_GRACE_S = 3.0
"""Seconds that requests have to end once the server stops."""


class WebServer(uvicorn.Server):
    """Serves until `leave` is called. The program that embeds it handles signals."""

    def __init__(self, app: Any, certificate: str = "", key: str = "", limits: Limits | None = None) -> None:
        protocol = type("LimitedConnection", (Connection,), {"limits": limits}) if limits else Connection
        config = uvicorn.Config(
            app, http=protocol, lifespan="off", log_level="warning", access_log=False, timeout_keep_alive=75,
            ssl_certfile=certificate or None, ssl_keyfile=key or None, server_header=False, ws="none",
            interface="asgi3", proxy_headers=False,  # the application looks at them where they matter
        )  # fmt: skip
        super().__init__(config)
        self.left = asyncio.Event()
        """Set when it is to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def leave(self) -> None:
        """Stop serving. Call it from the event loop."""
        self.should_exit = True
        self.left.set()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks = (ticks + 1) % 864_000
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.left.wait(), _TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, let requests end, and cancel those that do not."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        pause_s, waited_s = 0.001, 0.0
        while (self.server_state.connections or self.server_state.tasks) and waited_s < _GRACE_S:
            await asyncio.sleep(pause_s)
            pause_s, waited_s = min(2 * pause_s, 0.05), waited_s + pause_s
        for task in self.server_state.tasks:
            task.cancel()
