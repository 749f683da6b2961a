"""Workflows from the command line of the real Snakemake: resources, deadlines, retries, logs, cancellation."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windfall import Client

RETRIED = """
rule all:
    input: "last.txt"

rule first:
    output: "first.txt"
    threads: 2
    resources: mem_mb=300, runtime=90
    shell: "test -e tried || {{ touch tried; echo first-try-fails >&2; exit 7; }}; echo one > {output}"

rule last:
    input: "first.txt"
    output: "last.txt"
    resources: runtime=30
    shell: "cp {input} {output}"
"""
ENDLESS = """
rule forever:
    output: "never.txt"
    shell: "echo $$ > pid; sleep 600; touch {output}"
"""


def snakemake(folder: Path, snakefile: str, *options: str) -> subprocess.Popen:
    (folder / "Snakefile").write_text(snakefile)
    command = [sys.executable, "-m", "snakemake", "--executor", "windfall", "-j", "4", "--windfall-state", "state"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    return subprocess.Popen(
        [*command, "--windfall-slots", "2", *options], cwd=folder, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def jobs(folder: Path) -> dict[str, list[dict]]:
    """Status and specification of the jobs of Windfall by name, the oldest first."""
    found: dict[str, list[dict]] = {}
    with Client(state=folder / "state", slots=1) as client:
        for status in reversed(client.jobs()):
            found.setdefault(status["name"].removeprefix("snakemake-"), []).append(
                {**client.job(status["job"]).spec(), **status}
            )
    return found


def test_resources_deadline_retries_and_logs(tmp_path):
    ran = snakemake(tmp_path, RETRIED, "--windfall-deadline", "2h", "--retries", "1")
    said, _ = ran.communicate(timeout=300)
    assert ran.returncode == 0, said
    assert (tmp_path / "last.txt").read_text() == "one\n"
    found = jobs(tmp_path)
    assert [status["state"] for status in found["first"]] == ["failed", "done"]
    assert [status["state"] for status in found["last"]] == ["done"]
    first, last = found["first"][0], found["last"][0]
    assert (first["cpus"], first["wall_s"], first["memory"]["bytes"]) == (2, 5400.0, 800_000_000)
    assert last["cpus"] == 1
    # 90 of the 120 minutes of the path are the first job's; the last has what is left, which is nearly all.
    assert first["deadline_s"] - first["submitted_s"] == pytest.approx(5400, rel=0.05)
    assert 6000 < last["deadline_s"] - last["submitted_s"] < 7200
    (log,) = (tmp_path / ".snakemake" / "windfall_logs" / "first").iterdir()
    assert "first-try-fails" in log.read_text()
    assert "exit code" in said
    assert not (tmp_path / ".snakemake" / "pip-deployments").exists(), "jobs of a shared Snakemake install nothing"


def test_a_deadline_that_cannot_be_read_is_refused_before_anything_runs(tmp_path):
    ran = snakemake(tmp_path, RETRIED, "--windfall-deadline", "soonish")
    said, _ = ran.communicate(timeout=300)
    assert ran.returncode == 1
    assert "soonish" in said
    assert "Traceback" not in said
    assert not (tmp_path / "tried").exists()


def test_interrupting_snakemake_cancels_its_jobs_where_they_run(tmp_path):
    ran = snakemake(tmp_path, ENDLESS)
    pid = tmp_path / "pid"
    until = time.monotonic() + 120
    while not pid.exists() or not pid.read_text().strip():
        assert ran.poll() is None and time.monotonic() < until, ran.communicate()[0]
        time.sleep(0.1)
    ran.send_signal(signal.SIGINT)
    said, _ = ran.communicate(timeout=300)
    assert ran.returncode != 0, said
    assert jobs(tmp_path)["forever"][0]["state"] == "cancelled"
    until = time.monotonic() + 60
    while Path(f"/proc/{pid.read_text().strip()}").exists():
        assert time.monotonic() < until, "the shell of the job still runs"
        time.sleep(0.1)
