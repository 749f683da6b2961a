"""The worker's file on the oldest Python that it promises to run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from windfall import wire, worker
from windfall.client import Client
from windfall.pools.starting.workerfile import worker_pyz
from windfall.server import embedded


def python38() -> str:
    """A real interpreter of version 3.8; a test without one is skipped."""
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    for path in [*sorted(Path(root).glob("versions/3.8.*/bin/python3.8")), shutil.which("python3.8") or ""]:
        asked = [str(path), "-c", "import sys; print(sys.version_info[:2] == (3, 8))"]
        if str(path) and subprocess.run(asked, capture_output=True, text=True).stdout.strip() == "True":
            return str(path)
    pytest.skip("there is no Python 3.8 here")


def test_a_bag_runs_to_its_end_on_a_worker_of_python_38(tmp_path):
    python = python38()
    (tmp_path / "worker.pyz").write_bytes(worker_pyz())
    with embedded.start(tmp_path / "state") as server, Client(server.url, server.token) as client:
        command = [python, "-I", str(tmp_path / "worker.pyz"), "--server", server.url, "--name", "old", "--slots", "2"]
        command += ["--token-file", str(tmp_path / "state" / "token"), "--dir", str(tmp_path / "w")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                good = client.submit(["sh", "-c", "echo {} > .out-{}"], range(8), name="good", outputs=["*"])
                script = "mkdir -p o/.h && echo 1 > o/.h/x && kill -s USR1 $$"
                bad = client.submit(["sh", "-c", script, "{}"], range(2), name="bad", outputs=["o/**"], max_failures=1)
                assert good.wait(60)["tasks"]["done"] == 8
                bad.wait(60)
                assert [row["exit_code"] for row in bad.tasks()] == [-10, -10]
            finally:
                process.terminate()
                said = process.communicate(timeout=30)[1]
    assert "Traceback" not in said, said


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_older_python_is_told_which_one_is_needed(tmp_path, version):
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    found = sorted(Path(root).glob(f"versions/{version}.*/bin/python"))
    if not found:
        pytest.skip(f"there is no Python {version} here")
    (tmp_path / "worker.pyz").write_bytes(worker_pyz())
    ended = subprocess.run([found[0], str(tmp_path / "worker.pyz")], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("windfall: the worker needs Python 3.8 or newer; this is " + version), ended.stderr


def test_the_sources_of_the_worker_use_nothing_newer_than_python_38():
    pytest.importorskip("vermin", reason="it comes with the test tools: make .venv/.installed")
    folders = [str(Path(package.__file__).parent) for package in (worker, wire)]
    # Annotations are never evaluated there.
    options = ["-t=3.8-", "--no-eval-annotations", "--no-tips", "-vvv"]
    command = [sys.executable, "-c", "from vermin import main; main()", *options, *folders]
    asked = subprocess.run(command, capture_output=True, text=True)
    newer = [line for line in asked.stdout.splitlines() if "requires !2, 3.9" in line or "requires !2, 3.1" in line]
    assert asked.returncode == 0, newer
    assert b"needs Python 3.8 or newer" in worker_pyz()
