"""What systemd is told of a server: ready, alive, stopping (sd_notify(3)). Touches the socket that it names.

Nothing happens where no service manager asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

_SOCKET, _WATCHDOG, _WATCHED = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class ServiceManager:
    """The service manager that started this process, if one did. Processes that we start do not inherit it."""

    def __init__(self) -> None:
        self._address = os.environ.pop(_SOCKET, "")
        usec, pid = os.environ.pop(_WATCHDOG, ""), os.environ.pop(_WATCHED, "")
        ours = not pid or pid == str(os.getpid())
        self.watchdog_s = int(usec) / 1e6 if usec.isdecimal() and ours else 0.0
        """Seconds without a sign of life after which the manager ends this process; 0 if it does not watch."""

    def tell(self, *lines: str) -> None:
        """Tell it something; if nobody hears, that is not our business."""
        if not self._address:
            return
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.sendto("\n".join(lines).encode(), path)

    async def watch(self, illness: Callable[[], str]) -> None:
        """Give signs of life as long as there is no illness; say what there is. Never returns."""
        while True:
            ill = illness()
            self.tell(f"STATUS=not well: {ill}" if ill else "STATUS=serving", *([] if ill else ["WATCHDOG=1"]))
            await asyncio.sleep(self.watchdog_s / 3)
