"""The live clock: whatever is done to the system's clock, time goes on steadily."""

from __future__ import annotations

import time

import pytest

from windfall.drivers.clock import SteadyClock


class System:
    """The system's two clocks; `unix_t` may be set, `steady_s` only goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unix_t, self.steady_s = 1_000_000.0, 50.0
        monkeypatch.setattr(time, "time", lambda: self.unix_t)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady_s)


@pytest.mark.parametrize("step_s", [-86400.0, -1.0, 3600.0, 1e9])
def test_a_step_of_the_systems_clock_changes_nothing(monkeypatch, step_s):
    system = System(monkeypatch)
    clock = SteadyClock()
    assert clock() == 1_000_000.0
    system.unix_t += step_s
    system.steady_s += 2.0
    assert clock() == 1_000_002.0


@pytest.mark.parametrize(
    ("last_t", "begins_t"), [(0.0, 1_000_000.0), (999_999.0, 1_000_000.0), (1_007_200.0, 1_007_200.0)]
)
def test_a_clock_that_was_set_back_between_two_servers_goes_on_from_the_log(monkeypatch, last_t, begins_t):
    System(monkeypatch)
    assert SteadyClock(last_t)() == begins_t
