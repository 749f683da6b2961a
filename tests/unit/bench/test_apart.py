"""Benchmarks that measure in a process or in a loop of their own, and Ctrl-C while they do."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from windfall.bench.harness import Live, apart, run_loop


def blocks_ctrl_c() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_a_process_of_its_own_never_sees_ctrl_c_and_we_do():
    assert apart(blocks_ctrl_c)
    assert not blocks_ctrl_c()


def test_an_error_in_a_process_of_its_own_is_raised_here_and_leaves_no_process():
    with pytest.raises(ZeroDivisionError):
        apart(divmod, 1, 0)
    assert not blocks_ctrl_c()


def test_ctrl_c_cancels_a_loop_which_ends_before_it_is_raised():
    ended = []

    async def wait() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_loop(wait())
    assert ended


def test_a_loop_returns_what_its_coroutine_returns():
    async def three() -> int:
        return 3

    assert run_loop(three()) == 3


class Ending:
    """A server that takes its time to end; Ctrl-C comes while it is waited for."""

    def __init__(self) -> None:
        self.waited = 0

    def terminate(self) -> None:
        pass

    kill = terminate

    def communicate(self, timeout: float | None = None) -> None:
        self.waited += 1
        if self.waited == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("ends", [Live.stop_server, Live.kill_server])
def test_a_server_that_is_still_ending_at_ctrl_c_is_waited_for_before_its_files_are_removed(ends, tmp_path):
    running, server = Live(tmp_path), Ending()
    running.processes.append(server)
    with pytest.raises(KeyboardInterrupt):
        ends(running)
    running.close()
    assert server.waited == 2
