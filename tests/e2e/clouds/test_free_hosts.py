"""Workers that cost nothing beside the emulated cloud, live: what runs there goes on, and machines may begin it too."""

from __future__ import annotations

import json

import pytest

from tests.support.clouds.cloud_server import machines, pool, served, until
from tests.support.commands.command import windfall

pytestmark = pytest.mark.slow

DEADLINE_S, TOLD_S = 14, 6
"""At a high quantile of what is told, a machine would be too late from the first second on."""


@pytest.fixture
def typed(monkeypatch, capsys):
    def call(*words):
        return windfall(monkeypatch, capsys, *words)

    return call


def submitted(made, command: str):
    """Four tasks, all of them on a local worker."""
    made.start_worker("own", slots=4)
    until(lambda: made.client().hosts())
    rows = [{"n": str(n)} for n in range(4)]
    said = {"deadline": DEADLINE_S, "pools": ["cloud"], "estimate": TOLD_S}
    job = made.client().submit(["sh", "-c", command], rows, **said)
    until(lambda: job.status()["tasks"]["running"] == 4)
    return job


def test_what_free_hosts_finish_in_the_time_that_was_told_rents_nothing(tmp_path, typed, monkeypatch):
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        job = submitted(made, "sleep 1; echo {n}")
        job.wait(60)
        assert job.status()["tasks"]["done"] == 4
        assert machines(made) == []
        told = json.loads(typed("explain", "last", "0", "--json").out)
        assert [(step["attempt"], step["host"]) for step in told["story"]] == [(1, "own")] * 2, "sent, and done"


def test_what_hangs_on_a_free_host_also_begins_on_a_machine_whose_result_counts(tmp_path, typed, monkeypatch):
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        # The first attempt of each task hangs.
        job = submitted(made, f"mkdir '{tmp_path}/first-{{n}}' && sleep 1000; echo {{n}}")
        job.wait(100)
        assert job.status()["tasks"]["done"] == 4
        for task in "0123":
            story = json.loads(typed("explain", "last", task, "--json").out)["story"]
            steps = [(step["what"], step.get("attempt"), step.get("host")) for step in story]
            assert steps[0] == ("sent", 1, "own") and all(what != "given up" for what, *_ in steps)
            planned = next(place for place, step in enumerate(steps) if step[0] == "second attempt planned")
            second = next(place for place, step in enumerate(steps) if step[:2] == ("sent", 2))
            assert planned < second and steps[second][2].startswith("cloud-m")
            ended = next(step for step in story if "cause" in step)
            assert (ended["attempt"], ended["cause"]) == (2, "done")
        shown = typed("explain", "last", "0").out
        assert "because free host own might be too late; it goes on there as well" in shown
        assert "second attempt: free host own might be too late" in shown
        until(lambda: not machines(made, there=True))
