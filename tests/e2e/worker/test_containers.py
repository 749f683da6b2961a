"""Tasks in containers, with a real Podman and an image that the test makes. A fake server, a real worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server.fake_server import FakeServer
from tests.support.server.podman import Podman
from tests.support.server.worker_process import until_written, worker


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


@pytest.fixture(scope="module")
def podman(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    made = Podman(tmp_path_factory.mktemp("podman"))
    with worker(server.url, tmp_path_factory.mktemp("boxed"), "--slots", "2", **made.env):
        yield made
    made.close()


@pytest.fixture
def run(server: FakeServer, podman: Podman) -> Any:
    def run_it(command: str, payload: bytes = b"", **spec: Any) -> dict[str, Any]:
        return server.result(server.add(server.job(image=podman.image, **spec), ["sh", "-c", command], payload), 60.0)

    return run_it


def test_a_task_has_its_input_variables_user_and_directory_as_outside(run, server):
    content = b"from outside\n"
    sha256 = server.blob(content)
    result = run(
        'cat; cat data/in.txt; echo "$X $OMP_NUM_THREADS $(id -u)"; test "$PWD" = "$WINDFALL_DIR" && echo same; '
        "echo out > made.txt; ls /; test -e /usr || echo boxed",
        b"stdin ",
        env={"X": "y"}, cpus=2, inputs=[["data/in.txt", sha256, len(content), 0o644]], outputs=["made.txt"],
    )  # fmt: skip
    assert (result["cause"], result["exit"]) == ("done", 0), result
    said = result["stdout"].decode()
    assert said.startswith(f"stdin from outside\ny 2 {os.getuid()}\nsame\n") and said.endswith("boxed\n")
    assert [name for name, *_ in result["outputs"]] == ["made.txt"]


def test_an_exit_code_comes_out(run):
    assert (run("exit 7")["cause"], run("exit 7")["exit"]) == ("exit", 7)


def test_a_time_limit_ends_the_container_and_nothing_stays(run, podman):
    result = run("sleep 600", wall_s=1.5, grace_s=0.5)
    assert result["cause"] == "time"
    assert podman.left() == []


def test_a_cancelled_task_leaves_nothing(server, podman, tmp_path):
    job = server.job(image=podman.image, grace_s=0.5, cwd=str(tmp_path))
    key = server.add(job, ["sh", "-c", "echo here > begun; sleep 600"])
    until_written(tmp_path / "begun")
    server.cancel.append(key)
    assert server.result(key)["cause"] == "cancelled"
    assert podman.left() == []


def test_an_image_that_does_not_exist_fails_the_task_with_its_name(server, podman):
    job = server.job(image="localhost/windfall-test-none:1")
    result = server.result(server.add(job, ["true"]))
    assert result["cause"] == "inputs" and "localhost/windfall-test-none:1" in result["text"]
