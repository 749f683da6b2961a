"""Kind `local`: worker processes on this host, each in a session and a folder of its own. Touches both.

They outlive a killed server: the next one finds them by their folders, and without work they end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.planning.offers import Offer
from windfall.pools.contract import ENDED, FAILED, RELEASED, RUNNING, TRANSIENT, Check, Order, PoolError, Seen
from windfall.pools.kinds import WORKERS, Kind, Place, PoolConfig
from windfall.pools.starting.process_tree import Tree, find, spawn
from windfall.pools.starting.shipped import FORGET, TOKEN, worker_options, write_private

SHOWN_S = 600.0
"""Seconds for which a worker is listed after its end."""
HAND_BACK_S = 5.0
"""Seconds that a worker has to hand its tasks back; then it is killed."""
_LAST_WORDS_BYTES = 2000


class Kept(Struct):
    """What is written in the folder of one worker."""

    pid: int
    born: int
    ended_t: float = 0.0
    cause: str = ""
    about: str = ""
    told: bool = False
    firm_t: float = 0.0
    """When it was first told to hand back its tasks; 0 if it may finish them."""
    url: str = ""
    """The server that it asks for work."""


Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Words = list[str]


class LocalPool:
    """See windfall.pools.contract.Pool. The id of a worker is the name of its host."""

    offers: tuple[Offer, ...] = ()
    interval_s = 1.0

    def __init__(self, pool: PoolConfig, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._pool, self._place, self._clock = pool, place, clock
        self._kept: dict[str, Kept] = {}
        self._trees: dict[str, Tree] = {}
        for path in sorted(place.directory.glob("*/worker.json")):
            self._find_again(path)

    def _find_again(self, path: Path) -> None:
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError):
            kept = Kept(0, 0)  # the server was killed while it wrote: the process is found by its folder
        host, folder = path.parent.name, path.parent
        self._kept[host] = kept
        tree = None if kept.ended_t else find(kept.pid, kept.born, folder)
        if tree is not None:
            self._trees[host] = tree
            if kept.url != self._place.url:
                tree.kill()  # it asks where no server is any more; its results are on disk

    def start(self, order: Order) -> str | PoolError:
        if order.host in self._kept:
            return order.host
        folder = self._folder(order.host)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "worker.json").touch()
            write_private(folder / TOKEN, self._place.token_for(order.host))
            self._trees[order.host] = tree = spawn(self._command(order, folder), folder)
        except OSError as error:
            return PoolError(f"a worker cannot be started: {error.strerror or error}", TRANSIENT)
        self._kept[order.host] = Kept(tree.pid, tree.born, url=self._place.url)
        self._write(order.host)
        return order.host

    def _command(self, order: Order, folder: Path) -> Words:
        place = self._place
        command = [sys.executable, "-m", "windfall.worker", "--server", place.url, "--dir", str(folder)]
        command += ["--token-file", str(folder / TOKEN), FORGET, *worker_options(order, self._pool)]
        return command + (["--cafile", place.cafile] if place.cafile else [])

    def list(self) -> Rows:
        for host in [*self._kept]:
            self._look_at(host)
        return [
            Seen(host, ENDED if kept.ended_t else RUNNING, kept.ended_t, host, kept.cause, None, kept.about)
            for host, kept in self._kept.items()
        ]

    def _look_at(self, host: str) -> None:
        kept, tree = self._kept[host], self._trees.get(host)
        if kept.ended_t:
            if self._clock() > kept.ended_t + SHOWN_S:
                shutil.rmtree(self._folder(host), ignore_errors=True)
                del self._kept[host]
        elif tree is None or not tree.alive:
            kept.ended_t = self._clock()
            if kept.told:
                kept.cause = RELEASED
            elif tree is not None:
                # Its words are kept even if it ended in good order: perhaps it never reached the server.
                kept.cause = FAILED if tree.code else ""
                kept.about = f"worker {host} ended with {tree.how}{self._last_words(host)}"
            self._write(host)
            self._trees.pop(host, None)
            self._tidy(host)

    def _last_words(self, host: str) -> str:
        with contextlib.suppress(OSError):
            text = (self._folder(host) / "worker.log").read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace")
            if lines := text.strip().splitlines():
                return ": " + " ".join(line.strip() for line in lines[-2:])
        return ""

    def _tidy(self, host: str) -> None:
        """Of a worker that has ended only its last words are kept."""
        for path in self._folder(host).iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    def stop(self, id: str, gently: bool = False) -> None:
        """Gently: one SIGTERM. Else a second one, by which tasks are handed back, and SIGKILL some seconds later."""
        kept, tree = self._kept.get(id), self._trees.get(id)
        if kept is None or tree is None or not tree.alive:
            return
        if gently and kept.told:
            return
        if kept.firm_t and self._clock() > kept.firm_t + HAND_BACK_S:
            tree.kill()
            return
        if not kept.told:
            _tell(tree)
            time.sleep(0.0 if gently else 0.05)  # two signals at once would count as one
        kept.told = True
        if not gently:
            _tell(tree)
            kept.firm_t = kept.firm_t or self._clock()
        self._write(id)

    def doctor(self) -> Checks:
        return [_writable(self._place.directory), _readable(self._place.token_file)]

    def close(self) -> None:
        pass

    def _write(self, host: str) -> None:
        path = self._folder(host) / "worker.json"
        with contextlib.suppress(OSError):  # on a full disk the process is found by its folder
            path.with_suffix(".new").write_bytes(msgspec.json.encode(self._kept[host]))
            path.with_suffix(".new").replace(path)

    def _folder(self, host: str) -> Path:
        return self._place.directory / host


def _tell(tree: Tree) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(tree.pid, signal.SIGTERM)


def _writable(folder: Path) -> Check:
    what = f"{folder} can be written"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".doctor").write_text("")
        (folder / ".doctor").unlink()
    except OSError as error:
        return Check(what, error.strerror or str(error), "make space there, or start the server with another --state")
    return Check(what)


def _readable(file: Path) -> Check:
    what = f"the token {file} can be read"
    return Check(what) if os.access(file, os.R_OK) else Check(what, "it cannot", "restart the server: it makes one")


KIND = Kind(gives=WORKERS, open=LocalPool)
