"""How much of the processor time that tasks ask for their host gives them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.worker import __main__ as command
from windfall.worker.running.processor_time import LOOK_EVERY_S, ProcessorTime, times_of

OVER_S = 60.0


def shares(ran: float, waited: float, looks: int = 30, busy=lambda look: True) -> list[float]:
    """What is found if one thread runs and waits for these shares of the time."""
    now = [0.0]
    watch = ProcessorTime(OVER_S, lambda: {1: (ran * now[0], waited * now[0])})
    found = []
    for look in range(looks):
        now[0] = look * LOOK_EVERY_S
        found.append(watch.share(now[0], busy(look)))
    return [share for share in found if share is not None]


def test_the_share_is_known_after_the_whole_time_and_counts_only_what_was_asked_for():
    found = shares(ran=0.3, waited=0.6)
    assert len(found) == 30 - 12
    assert found == [pytest.approx(1 / 3)] * len(found)


def test_tasks_that_sleep_ask_for_nothing():
    assert shares(ran=0.01, waited=0.05) == []


def test_time_without_a_task_begins_the_count_anew():
    assert shares(ran=0.1, waited=0.9, looks=26, busy=lambda look: look % 10 != 9) == []


def test_a_thread_that_ends_takes_nothing_back():
    seen = iter([{1: (100.0, 0.0)}, {2: (1.0, 4.0)}, {2: (2.0, 8.0)}])
    watch = ProcessorTime(2 * LOOK_EVERY_S, lambda: next(seen))
    found = [watch.share(look * LOOK_EVERY_S, True) for look in range(3)]
    assert found == [None, None, pytest.approx(0.2)]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count")
def test_the_kernel_counts_what_a_process_ran():
    ((ran_s, waited_s),) = [times for thread, times in times_of([os.getpid()]).items() if thread == os.getpid()]
    assert ran_s > 0 and waited_s >= 0
    assert times_of([1 << 30]) == {}


@pytest.mark.parametrize("text", ["0", "1", "20%", "nan", "-0.5"])
def test_a_share_is_a_number_between_0_and_1(text, capsys):
    with pytest.raises(SystemExit):
        command.main(["--server", "http://127.0.0.1:1", "--least-cpu", text])
    assert "no share between 0 and 1" in capsys.readouterr().err
