"""An unfinished job of the same command that is not continued is named, with the command that continues it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from windfall.bags.submission import Request, read_job
from windfall.cli.run.continuing import submitted


class Jobs:
    """A server with one paused job."""

    def __init__(self, key: str, command: list[str]) -> None:
        self.spec = {"key": key, "command": command}

    def jobs(self, state: str) -> list[dict[str, object]]:
        tasks = {"done": 2, "failed": 0, "total": 8}
        return [{"job": 3, "name": "echo", "state": state, "tasks": tasks}] if state == "paused" else []

    def job(self, _: int) -> SimpleNamespace:
        return SimpleNamespace(spec=lambda: self.spec)


@pytest.mark.parametrize(
    ("key", "command", "is_named"),
    [
        ("run-other-other-1", ["echo", "{}"], True),
        ("run-other-other-1", ["printf", "{}"], False),
        ("sent-by-python", ["echo", "{}"], False),
    ],
)
def test_a_range_that_was_changed_is_a_new_job_and_the_old_one_is_named(capsys, key, command, is_named):
    bag = read_job(Request(range="1-9", command=["echo", "{}"]))
    submitted(Jobs(key, command), bag, lambda client, bag: bag)
    said = capsys.readouterr().err
    assert ("have changed since job 3 was stopped (2 of 8 had ended): this is a new job" in said) is is_named
    assert ("windfall run --resume 3" in said) is is_named
