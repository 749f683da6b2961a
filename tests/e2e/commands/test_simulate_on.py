"""`windfall simulate --on URL`: the seeds of a sweep as tasks of a real server and worker."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.support.server.cluster import Cluster
from windfall.cli.simulate.command import simulate

SMALL = ["--set", "bag.tasks=50", "--set", "pool.slurm.hosts=20", "--set", "pool.cluster.hosts=2"]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    made = Cluster(tmp_path)
    made.start_server()
    made.start_worker("one", 2)
    monkeypatch.setenv("WINDFALL_TOKEN", made.token)
    yield made
    made.close()


def outcome(*words: str) -> dict:
    result = CliRunner().invoke(simulate, ["campus", *SMALL, "--json", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_seeds_on_a_server_give_what_they_give_here(cluster):
    client = cluster.client()
    assert outcome("--seeds", "3", "--on", cluster.url) == outcome("--seeds", "3", "--jobs", "1")
    assert sum(job["tasks"]["done"] for job in client.jobs()) == 3
    assert outcome("--seed", "5", "--on", cluster.url) == outcome("--seed", "5")
    assert sum(job["tasks"]["done"] for job in client.jobs()) == 4, "one seed is a task of the server, too"
