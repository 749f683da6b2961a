"""A copy of a large state at one moment, encoded by a forked process. Touches processes and memory.

Encoding ten million tasks takes the loop 0.3 s, forking 0.04 s: the child shares the memory of the server until one of
them writes to it. The server has threads, of which the child has none, so it must not wait for any of their locks: it
encodes, writes and exits, and touches nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import select
import signal
import warnings
from typing import NoReturn

from windfall.core.state.snapshot import pieces
from windfall.core.state.state import State
from windfall.errors import WindfallError

LARGE_TASKS, TASKS_PER_HOST = 500_000, 30
"""With fewer tasks the loop encodes by itself, in 30 ms or less; a host takes as long as 30 tasks."""
LIMIT_S = 120.0
"""Seconds after which a child that has not ended is killed."""
CHILD_NICE = 10
_PR_SET_PDEATHSIG = 1


def is_large(state: State) -> bool:
    return sum(bag.total for bag in state.bags.values()) + TASKS_PER_HOST * len(state.hosts) >= LARGE_TASKS


class Forked:
    """A child that encodes the state as it was when this was made. `OSError` if there can be none."""

    def __init__(self, state: State) -> None:
        import ctypes  # here: the child must not import

        prctl = ctypes.CDLL(None).prctl
        self._handle, parent = os.memfd_create("windfall-snapshot"), os.getpid()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads: see above
                self._pid = os.fork()
        except OSError:
            os.close(self._handle)
            raise
        if not self._pid:
            try:
                prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
                if os.getppid() == parent:
                    _encode_and_exit(state, self._handle)
            finally:
                os._exit(1)

    def data(self) -> memoryview:
        """The encoded state, once. Waits for the child: not to be called on the loop."""
        try:
            if not self._wait():
                raise WindfallError("the process that encodes a snapshot failed", code="snapshot-failed")
            return memoryview(mmap.mmap(self._handle, 0, prot=mmap.PROT_READ))
        finally:
            os.close(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_pid", 0):  # nobody asked for the data: the server stops
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                os.close(self._handle)

    def _wait(self) -> bool:
        child = os.pidfd_open(self._pid)
        try:
            if not select.select([child], [], [], LIMIT_S)[0]:
                os.kill(self._pid, signal.SIGKILL)
        finally:
            os.close(child)
        pid, self._pid = self._pid, 0
        return os.waitpid(pid, 0)[1] == 0


def _encode_and_exit(state: State, handle: int) -> NoReturn:
    gc.disable()
    with contextlib.suppress(OSError):
        os.nice(CHILD_NICE)  # nobody waits for it, and the server has work to do
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # meant for the server, which ends this process when it ends
    # A connection that the server closes must not stay open here.
    os.closerange(3, handle)
    os.closerange(handle + 1, os.sysconf("SC_OPEN_MAX"))
    for piece in pieces(state, shared=True):
        view = memoryview(piece)
        while view:
            view = view[os.write(handle, view) :]
    os._exit(0)
