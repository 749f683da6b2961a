"""The server of a state: the one that runs on it, or one in this process. Touches processes and files.

Two runs on one state share one server. When the process that holds it ends, the next one that asks takes over from the
log.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from windfall.errors import BadInput, Unreachable, WindfallError
from windfall.loading import loading
from windfall.store.location import StateLocation, locate

if TYPE_CHECKING:
    from windfall.client.local.worker import LocalWorker
    from windfall.server.queries.at_rest import AtRest

DEFAULT_STATE = ".windfall"
_HEALTH_TIMEOUT_S = 2.0
_TAKEOVER_S = 10.0


def here() -> Path:
    """The working directory. BadInput if it has been deleted under us."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise BadInput("the directory that you are in is gone", hint="try: cd to another one") from None


def state_location(state: str | os.PathLike[str] | None = None) -> StateLocation:
    """The state that was named, else WINDFALL_STATE, else `.windfall` here: a directory, or `postgresql://...`.

    Of an archive of a job (`windfall archive`), a copy that is gone when this process ends.
    """
    found = locate(state or os.environ.get("WINDFALL_STATE") or DEFAULT_STATE)
    if not found.url and ".tar." in found.directory.name:
        from windfall.store.archives import is_archive, unpacked

        if is_archive(found.directory):
            return StateLocation(unpacked(found.directory))
    return found if found.url else StateLocation(here() / found.directory)


def running_server(directory: Path) -> tuple[str, str] | None:
    """Address and token of the server that runs on a state directory. None if there is none."""
    found = announced_server(directory)
    return found if found is not None and _answers(found[0]) else None


def announced_server(directory: Path) -> tuple[str, str] | None:
    """Address and token as the server wrote them, if its process lives: it may be starting, or hang."""
    try:
        said = json.loads((directory / "server.json").read_text())
        url, pid = str(said["url"]), int(said["pid"])
        os.kill(pid, 0)
        token = (directory / "token").read_text().strip()
    except PermissionError as error:
        if error.filename:  # the file, not the process: `kill` names none
            raise Unreachable(
                f"{error.filename} may not be read by you: the server on {directory} is somebody else's",
                hint="ask for a token, and set --server and --token",
            ) from None
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url, token


def jobs_at_rest(state: StateLocation) -> AtRest | None:
    """The jobs of a state on which no server runs, without starting one; None if a server runs or is needed."""
    if state.url or announced_server(state.directory) or not (state.directory / "lock").exists():
        return None
    with loading():
        from windfall.server.queries.at_rest import at_rest
    return at_rest(state.directory)


def _answers(url: str) -> bool:
    import http.client  # not above: a command that reads the log itself needs none of it
    import ssl

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status in (200, 503)  # 503: it is there, and cannot write at the moment
    except ssl.SSLError:
        return True  # it speaks TLS and we do not trust it: it is there, and the request itself will say what is wrong
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class LocalServer:
    """A server on a state, and a worker on this host if one is wanted and the server is ours."""

    def __init__(
        self,
        state: StateLocation,
        *,
        worker: bool,
        slots: int | None = None,
        env: dict[str, str] | None = None,
        idle: bool = False,
        pools: Sequence[Any] = (),
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.state = state
        self.directory = state.directory
        self._wants_worker = worker
        self._slots = slots
        self._env = env or {}
        self._idle = idle
        self._pools = list(pools)
        self._listen = listen
        self._server: Any = None
        self._worker: LocalWorker | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def is_ours(self) -> bool:
        """Is the server in this process?"""
        return self._server is not None

    @property
    def works(self) -> bool:
        return self._worker is not None and self._worker.works

    def address(self) -> tuple[str, str]:
        """Address and token of a server that answers: our own, one that runs already, or a new one."""
        with self._lock:
            if self._server is not None:
                if self._server.failure is not None:
                    raise self._server.failure
                return self._server.url, self._server.token
            if self._closed:
                raise Unreachable("this client is closed")
            return self._find_or_start()

    def _find_or_start(self) -> tuple[str, str]:
        until = time.monotonic() + _TAKEOVER_S
        while True:
            if found := running_server(self.directory):
                self._drop_worker()
                return found
            self._prepare_worker()
            with loading():
                from windfall.server import embedded  # only now: it takes longer to load than a command to answer

            try:
                self._server = embedded.start(
                    self.directory, self._listen, store=self.state.url, pools=self._pools, release=True
                )
            except WindfallError as error:
                # Somebody was quicker, or the one before has not quite gone.
                if error.code != "state-in-use" or time.monotonic() > until:
                    self._drop_worker()
                    raise
                time.sleep(0.1)
                continue
            if not self._idle:
                self._start_worker()
            return self._server.url, self._server.token

    def start_work(self) -> None:
        """Start a worker: now if the server is ours, else when we take over."""
        with self._lock:
            self._idle = False
            if self._server is not None:
                self._start_worker()

    def _prepare_worker(self) -> None:
        """Have a worker load while the server does."""
        from windfall.client.local.worker import LocalWorker
        from windfall.store.sqlite.files import make_directory

        if not self._wants_worker or self._worker is not None:
            return
        make_directory(self.directory)
        worker = LocalWorker(self.directory, self._slots, self._env)
        with contextlib.suppress(OSError):  # a disk that is full or read-only: the server says it better
            worker.prepare()
            self._worker = worker

    def _start_worker(self) -> None:
        if not self._wants_worker or self.works:
            return
        self._prepare_worker()
        if self._worker is None:
            raise WindfallError(f"the local worker could not be started: {self.directory} cannot be written to")
        self._worker.begin(self._server.url, self._server.token)

    def _drop_worker(self) -> None:
        """A worker that was prepared for a server that is not ours."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(now=True)

    @property
    def worker_problem(self) -> WindfallError | None:
        """Why the worker is not running, if it should be and is not."""
        return None if self._closed or self._worker is None else self._worker.problem

    def close(self, *, now: bool = False) -> None:
        """Stop the worker (`now`: with what it runs, at once), then the server."""
        with self._lock:
            self._closed = True
            worker, server = self._worker, self._server
            self._worker = self._server = None
        if worker is not None:
            worker.stop(now=now)
        if server is not None:
            server.stop()
