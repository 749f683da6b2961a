"""A TCP proxy that can be cut and that delays what passes.

While it is cut, connections hang and nothing passes, as in a network that is split.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable


class Proxy:
    def __init__(self, target_port: int, round_trip_s: float = 0.0) -> None:
        self._target = ("127.0.0.1", target_port)
        self._delay_s = round_trip_s / 2
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        """What hung before is gone for good, as after a real partition: both ends see it break."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._open.set()

    def _let_go(self) -> None:
        for thread in self._threads:
            thread.join(10)
        for sock in self._sockets:
            sock.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self._let_go()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._begin(self._connect, near)

    def _connect(self, near: socket.socket) -> None:
        self._sockets.append(near)
        self._open.wait()
        with contextlib.suppress(OSError):
            far = socket.create_connection(self._target)
            self._sockets.append(far)
            self._begin(self._pump, near, far)
            self._pump(far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._delay_s:
                    time.sleep(self._delay_s)
                self._open.wait()
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
