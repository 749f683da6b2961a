"""Both drivers are compared in virtual time."""

from __future__ import annotations

import pytest

from windfall.drivers import realtime


@pytest.fixture(autouse=True)
def _commits_take_no_time(monkeypatch):
    """As in the simulated driver, which has none: behind a crowd of requests the next commit does not wait."""
    monkeypatch.setattr(realtime, "COMMIT_EVERY_S", 0.0)
