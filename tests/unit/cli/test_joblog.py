"""`windfall joblog` of a job that has not ended."""

from __future__ import annotations

from click.testing import CliRunner

from windfall.cli import cli
from windfall.client import Client
from windfall.client.local.server import LocalServer
from windfall.store.location import StateLocation


def test_of_a_job_that_has_not_ended_it_shows_what_has_and_does_not_wait(tmp_path):
    state = tmp_path / "state"
    with Client(local=LocalServer(StateLocation(state), worker=False)) as client:
        client.submit("true {}", range(3)).change(paused=True)
    ended = CliRunner().invoke(cli, ["joblog", "1", "--state", str(state)])
    assert (ended.exit_code, ended.output.count("\n")) == (0, 1)
    assert ended.output.startswith("Seq\tHost")
