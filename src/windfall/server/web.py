"""The web server: connections on sockets that were bound before, until it is told to stop. Touches sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from windfall.server.connection import Application, Connection, Connections
from windfall.server.limits import Limits

_GRACE_S = 3.0
"""Seconds that requests have to end once the server stops."""
_BACKLOG = 2048


class WebServer:
    """Serves until `leave` is called. The program that embeds it handles signals."""

    def __init__(self, app: Application, certificate: str = "", key: str = "", limits: Limits | None = None) -> None:
        self._shared = Connections(app, "https" if certificate else "http", limits)
        self._certificate, self._key = certificate, key
        self.started = asyncio.Event()
        self.left = asyncio.Event()
        """Set when it is to stop."""

    def leave(self) -> None:
        """Stop serving. Call it from the event loop."""
        self.left.set()

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Answer on these sockets. Returns once it was told to leave and the requests in work have ended."""
        loop, shared = asyncio.get_running_loop(), self._shared
        context = self._tls() if self._certificate else None
        servers = [
            await loop.create_server(lambda: Connection(shared), sock=sock, ssl=context, backlog=_BACKLOG)
            for sock in sockets
        ]
        self.started.set()
        try:
            await self.left.wait()
        finally:
            for server in servers:
                server.close()
            for sock in sockets:
                sock.close()
            await self._end()

    async def _end(self) -> None:
        """Let requests end, and cancel those that do not."""
        for connection in list(self._shared.open):
            connection.shutdown()
        pause_s, waited_s = 0.001, 0.0
        while (self._shared.open or self._shared.tasks) and waited_s < _GRACE_S:
            await asyncio.sleep(pause_s)
            pause_s, waited_s = min(2 * pause_s, 0.05), waited_s + pause_s
        left = list(self._shared.tasks)
        for task in left:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await asyncio.gather(*left, return_exceptions=True)
        for connection in list(self._shared.open):
            connection.transport.abort()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        return context
