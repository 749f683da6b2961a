"""When the batch job around a worker ends, by its environment and by what commands print."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from windfall.worker import batch_job
from windfall.worker.batch_job import NoAnswer, pbs_end, slurm_end, watch


@pytest.fixture
def command(tmp_path: Path, monkeypatch):
    """Put a command in front of the PATH; it notes how it was called."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(name: str, body: str) -> Path:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $@" >> {tmp_path}/called\n{body}\n')
        path.chmod(0o755)
        return tmp_path / "called"

    return put


def test_slurm_is_asked_for_the_end_of_the_job(command):
    called = command("squeue", "echo 1700000000")
    assert slurm_end({"SLURM_JOB_ID": "12"}) == ("Slurm job 12", 1_700_000_000.0)
    assert called.read_text() == "%s --noheader --job=12 --format=%e\n"


def test_slurm_is_not_asked_where_the_environment_has_the_end(command):
    called = command("squeue", "echo 5")
    found = slurm_end({"SLURM_JOB_ID": "12", "SLURM_JOB_END_TIME": "1700000000"})
    assert found == ("Slurm job 12", 1_700_000_000.0)
    assert not called.exists()


def test_an_element_of_an_array_is_asked_for_by_its_index(command):
    called = command("squeue", "echo 1700000000")
    slurm_end({"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "2"})
    assert "--job=12_2" in called.read_text()


@pytest.mark.parametrize("said", ["N/A", "NONE", "", "Unknown"])
def test_a_job_without_a_limit_has_no_end(command, said):
    command("squeue", f"echo '{said}'")
    assert slurm_end({"SLURM_JOB_ID": "12"}) is None


def test_where_the_command_is_missing_there_is_no_end(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm_end({"SLURM_JOB_ID": "12"}) is None
    assert pbs_end({"PBS_JOBID": "12.head"}) is None


@pytest.mark.parametrize("body", ["exit 1", "exit 0", "sleep 30"])
def test_a_controller_that_does_not_answer_is_told_from_a_job_without_a_limit(command, monkeypatch, body):
    monkeypatch.setattr(batch_job, "_TIMEOUT_S", 0.2)
    command("squeue", body)
    with pytest.raises(NoAnswer):
        slurm_end({"SLURM_JOB_ID": "12"})


def test_a_controller_that_did_not_answer_is_asked_again(command, monkeypatch, tmp_path):
    monkeypatch.setattr(batch_job, "_AGAIN_S", 0.01)
    command("squeue", f"test -e {tmp_path}/up || {{ touch {tmp_path}/up; exit 1; }}; echo 1700000000")
    watched = watch({"SLURM_JOB_ID": "12"})
    assert watched is not None
    watched.start()
    until = time.monotonic() + 20
    while watched.found is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert watched.found == ("Slurm job 12", 1_700_000_000.0)


def test_pbs_tells_start_and_walltime(command):
    started_t = 1_700_000_000.0
    job = f'{{"stime": "{time.ctime(started_t)}", "Resource_List": {{"walltime": "01:30:05"}}}}'
    called = command("qstat", f"""echo '{{"timestamp": 1, "Jobs": {{"7.head": {job}}}}}'""")
    assert pbs_end({"PBS_JOBID": "7.head"}) == ("PBS job 7.head", started_t + 5405)
    assert "-f -F json 7.head" in called.read_text()


@pytest.mark.parametrize("said", ["", "qstat: unknown option", '{"Jobs": {}}', '{"Jobs": {"7.head": {"stime": 3}}}'])
def test_what_another_pbs_says_gives_no_end(command, said):
    command("qstat", f"echo '{said}'")
    assert pbs_end({"PBS_JOBID": "7.head"}) is None


def test_outside_a_batch_job_nothing_is_watched():
    assert watch({}) is None
