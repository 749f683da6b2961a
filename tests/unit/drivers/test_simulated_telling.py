"""The simulated driver wakes hosts that have something to hear, each once, whatever number of them has vanished."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.engine import Engine
from windfall.core.events import HostAsked
from windfall.core.state.hosts.hosts import ToTell
from windfall.drivers.simulated import Simulated

VANISHED = 500


class Counted(ToTell):
    """Counts how many entries are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = 0

    def __reversed__(self) -> Iterator[int]:
        for number in super().__reversed__():
            self.looked_at += 1
            yield number


def told_world() -> tuple[Simulated, list[str], Counted]:
    driver, woken = Simulated(Engine()), []
    driver.wake = woken.append
    for number in range(VANISHED + 1):
        driver.submit(HostAsked(0.0, f"h{number}", "b", 1, 1, 1, {}))
    driver.state.hosts.to_tell = told = Counted()
    return driver, woken, told


def test_hosts_that_vanished_are_woken_once_and_cost_nothing_later():
    driver, woken, told = told_world()
    for number in range(1, VANISHED + 1):
        told[number] = None
    for n in range(2, 102):
        driver.submit(HostAsked(0.0, f"h{VANISHED}", "b", n, 1, 1))
    assert woken == [f"h{number}" for number in range(VANISHED)]
    assert told.looked_at <= VANISHED + 1


def test_a_host_that_has_been_told_is_woken_again_when_there_is_more():
    driver, woken, told = told_world()
    told[1] = None
    driver.submit(HostAsked(0.0, "h9", "b", 2, 1, 1))
    assert woken == ["h0"]
    told.pop(1)
    driver.submit(HostAsked(0.0, "h0", "b", 2, 1, 1))
    told[1] = None
    driver.submit(HostAsked(0.0, "h9", "b", 3, 1, 1))
    assert woken == ["h0", "h0"]
