"""PBS and LSF by the code that drives Slurm, against commands that play them (tests/support/pools/fake_batch.py)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.support.pools.fake_batch import put_commands
from windfall.client import Client
from windfall.pools.batch.systems import LSF, PBS, SLURM, Job
from windfall.pools.config import read_pools
from windfall.pools.contract import ENDED, FAILED, INVALID, PENDING, QUOTA, RUNNING, TAKEN, TRANSIENT
from windfall.server import embedded


@pytest.fixture(params=["pbs", "lsf"])
def system(request, tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("PATH", f"{put_commands(request.param, tmp_path / 'batch')}:{os.environ['PATH']}")
    return request.param


def served(tmp_path: Path, kind: str, **fields: str):
    lines = {"name": "cluster", "kind": kind, "interval": "0.5s", "python": sys.executable} | fields
    file = tmp_path / "pools.toml"
    body = "\n".join(f'{key} = "{value}"' for key, value in lines.items())
    file.write_text(f"[[pool]]\n{body}\nslots = 2\nlimit = 2\n")
    return embedded.start(tmp_path / "state", pools=read_pools(file))


def test_a_bag_comes_to_its_end_and_its_jobs_are_ended(tmp_path, system):
    with served(tmp_path, system) as server, Client(server.url, server.token) as client:
        job = client.submit(["sh", "-c", "sleep 0.1; echo {}"], range(20), name="bag")
        assert job.wait(60)["tasks"]["done"] == 20
        assert client.doctor("cluster", True, 20.0)["ok"]
    folders = list((tmp_path / "batch" / "jobs").iterdir())
    assert folders and all((folder / "exit").exists() for folder in folders), "the server ended what it had started"
    assert all((folder / "name").read_text().startswith("windfall+") for folder in folders)
    assert len([folder for folder in folders if "[" in folder.name]) >= 2, "two workers at once were an array"


def test_a_queue_that_does_not_exist_is_refused_in_the_words_of_the_system(tmp_path, system):
    with served(tmp_path, system, queue="nowhere") as server, Client(server.url, server.token) as client:
        client.submit(["true", "{}"], range(1), name="bag")
        until = time.monotonic() + 30
        while not (error := client.pools()[0]["last_error"]):
            assert time.monotonic() < until
            time.sleep(0.1)
    assert "queue" in error.lower()


def test_states_and_causes_are_read_from_what_each_system_prints():
    squeue = (
        b"7|PD|N/A|Resources|a\n8|R|100|None|b|c\n9|TO|100|TimeLimit|d\n10|NF|1|NodeDown|e\n11|XX|1|None|f\nrubbish\n"
    )
    assert SLURM.parse(squeue) == [
        Job("7", "a", PENDING, why="Resources"),
        Job("8", "b|c", RUNNING, since_t=100.0),
        Job("9", "d", ENDED, TAKEN, "it reached its walltime"),
        Job("10", "e", ENDED, TAKEN, "its node failed (NodeDown)"),
        Job("11", "f", PENDING),
    ]
    qstat = b'{"Jobs": {"1.h": {"job_state": "Q", "Job_Name": "a", "comment": "Not Running: busy"},'
    qstat += b'"2.h": {"job_state": "F", "Job_Name": "b", "Exit_status": 271},'
    qstat += b'"3.h": {"job_state": "F", "Exit_status": 1}}}'
    assert [(job.id, job.phase, job.cause) for job in PBS.parse(qstat)] == [
        ("1.h", PENDING, ""),
        ("2.h", ENDED, TAKEN),
        ("3.h", ENDED, FAILED),
    ]
    bjobs = b'{"RECORDS": [{"JOBID": "1", "STAT": "PEND", "PEND_REASON": "x"}, {"JOBID": "2", "STAT": "EXIT",'
    bjobs += b'"EXIT_REASON": "TERM_RUNLIMIT: job killed"},'
    bjobs += b'{"JOBID": "3", "STAT": "EXIT"}, {"JOBID": "4", "STAT": "RUN"}]}'
    assert [(job.id, job.phase, job.cause) for job in LSF.parse(bjobs)] == [
        ("1", PENDING, ""),
        ("2", ENDED, TAKEN),
        ("3", ENDED, FAILED),
        ("4", RUNNING, ""),
    ]
    assert PBS.parse(b"") == LSF.parse(b"") == SLURM.parse(b"") == []


def test_the_words_of_errors_tell_their_kind():
    assert SLURM.kind_of("sbatch: error: invalid partition specified: x") == INVALID
    assert SLURM.kind_of("Job violates accounting/QOS policy (job submit limit, ...)") == QUOTA
    assert SLURM.kind_of("Unable to contact slurm controller (connect failure)") == TRANSIENT
    assert PBS.kind_of("qsub: Unknown queue") == INVALID
    assert LSF.kind_of("foo: No such queue. Job not submitted.") == INVALID
