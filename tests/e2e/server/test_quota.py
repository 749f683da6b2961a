"""One job that fills its quota of files, with a real server and a real worker: it is told, and others go on."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.server.cluster import WINDFALL, cluster

pytestmark = pytest.mark.slow


def shown(made, *words: str) -> str:
    place = ["--server", made.url]
    env = {"WINDFALL_TOKEN": made.token, "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return subprocess.run([*WINDFALL, *words, *place], env=env, capture_output=True, text=True, check=False).stdout


def test_a_job_over_its_quota_is_told_so_and_goes_on_when_there_is_more(tmp_path):
    with cluster(tmp_path) as made:
        made.start_server("--limit", "job-blobs=250k")
        made.start_worker("w", slots=2)
        client = made.client()
        command = ["sh", "-c", "head -c 100000 /dev/urandom > out; cp out out2", "sh", "{}"]
        greedy = client.submit(command, range(4), outputs=["out", "out2"], max_failures=9, name="greedy")
        honest = client.submit(["sh", "-c", "echo {} > out"], range(6), outputs=["out"], name="honest")
        told = greedy.wait(timeout=120)
        assert (told["tasks"]["done"], told["tasks"]["failed"]) == (2, 2) and told["causes"] == {"quota": 2}
        assert honest.wait(timeout=120)["tasks"]["done"] == 6
        listed = [json.loads(line) for line in shown(made, "tasks", "greedy", "--json").splitlines()]
        assert max(task["attempts"] for task in listed) <= 3, "nothing is tried again in vain, but beside other results"
        explained = shown(made, "explain", "greedy")
        assert "more files than its job may have" in explained and "job-blobs=SIZE" in explained
        made.stop_server()
        made.start_server("--limit", "job-blobs=1M")
        assert client.job("greedy").retry() == 2
        assert client.job("greedy").wait(timeout=120)["tasks"]["done"] == 4
        made.stop_server()
        assert set(made.accepted().values()) == {1}
