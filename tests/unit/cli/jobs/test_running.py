"""How many tasks run: a worker holds the next ones as well, and those wait."""

from __future__ import annotations

import pytest

from windfall.cli.jobs.command import _running, _waiting


@pytest.mark.parametrize(
    ("held", "slots", "running", "waiting"), [(3, 2, 2, "6 waiting"), (2, 4, 2, "5 waiting"), (1, 0, 1, "5 waiting")]
)
def test_no_more_tasks_run_than_there_are_slots(held, slots, running, waiting):
    status = {"tasks": {"running": held, "waiting": 5}, "slots": slots, "workflow": None}
    assert (_running(status), _waiting(status)) == (running, waiting)
