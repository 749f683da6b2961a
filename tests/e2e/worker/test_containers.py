"""Tasks in containers, with a real Apptainer, Podman and Docker and an image that the test makes. A fake server, a real
worker.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.apptainer import Apptainer
from tests.support.server.docker import Docker
from tests.support.server.fake_server import FakeServer
from tests.support.server.podman import Podman
from tests.support.server.worker_process import until_written, worker

Engine = Apptainer | Podman | Docker
ENGINES: dict[str, type[Engine]] = {"apptainer": Apptainer, "podman": Podman, "docker": Docker}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with (
        FakeServer() as made,
        worker(made.url, tmp_path_factory.mktemp("boxed"), "--slots", "2", **engine.env),
    ):
        yield made


@pytest.fixture
def run(server: FakeServer, engine: Engine) -> Any:
    def run_it(command: str, payload: bytes = b"", **spec: Any) -> dict[str, Any]:
        return server.result(server.add(server.job(image=engine.image, **spec), ["sh", "-c", command], payload), 60.0)

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


def test_a_pinned_task_stays_on_its_core(run):
    allowed = "grep Cpus_allowed_list /proc/self/status"
    pinned = run(allowed, pin=True)["stdout"].decode().split()[1]
    assert pinned.isdecimal() and int(pinned) in os.sched_getaffinity(0)


def test_a_time_limit_ends_the_container_and_nothing_stays(run, engine):
    result = run("sleep 600", wall_s=1.5, grace_s=0.5)
    assert result["cause"] == "time"
    assert engine.left() == []


def test_a_cancelled_task_leaves_nothing(server, engine, tmp_path):
    job = server.job(image=engine.image, grace_s=0.5, cwd=str(tmp_path))
    key = server.add(job, ["sh", "-c", "echo here > begun; sleep 600"])
    until_written(tmp_path / "begun")
    assert len(engine.left()) > 0
    server.cancel.append(key)
    assert server.result(key)["cause"] == "cancelled"
    assert engine.left() == []


def test_an_image_that_does_not_exist_fails_the_task_with_its_name(server, engine):
    job = server.job(image="localhost/windfall-test-none:1")
    result = server.result(server.add(job, ["true"]))
    assert result["cause"] == "inputs" and "localhost/windfall-test-none:1" in result["text"]


def test_a_task_that_takes_more_memory_than_it_asked_for_is_ended_for_that(run, engine):
    if not isinstance(engine, Docker):
        pytest.skip("Apptainer and Podman run without control groups in these tests")
    result = run("a=xxxxxxxx; while true; do a=$a$a; done", memory_bytes=64 << 20, fixed_memory=True)
    assert result["cause"] == "oom", result


CDI = Path("/var/run/cdi/windfall-test.json")
"""Where Podman looks for devices by name; the driver of real cards writes such a file."""


@pytest.fixture
def cards() -> Iterator[None]:
    if os.getuid() or Path("/etc/cdi").exists() or CDI.parent.exists():
        pytest.skip("only root may name devices, and a host that has some keeps its own")
    devices = [{"name": str(n), "containerEdits": {"env": [f"FAKE_CARD={n}"]}} for n in range(2)]
    CDI.parent.mkdir(parents=True)
    CDI.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}))
    yield
    shutil.rmtree(CDI.parent)


def test_a_task_in_apptainer_is_told_its_card(engine, tmp_path):
    if not isinstance(engine, Apptainer):
        pytest.skip("Podman and Docker are given cards as devices")
    with FakeServer() as own, worker(own.url, tmp_path, "--resource", "gpus=2", **engine.env):
        job = own.job(image=engine.image, units=[["gpus", 1, 1000]])
        result = own.result(own.add(job, ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]), 60.0)
        assert (result["cause"], result["stdout"]) == ("done", b"1\n"), result


def test_apptainer_makes_an_image_file_once_for_each_host(engine, tmp_path):
    if not isinstance(engine, Apptainer):
        pytest.skip("Podman and Docker keep images themselves")
    with FakeServer() as own, worker(own.url, tmp_path, "--slots", "2", **engine.env):
        job = own.job(image=engine.image)
        keys = [own.add(job, ["sh", "-c", "echo $APPTAINER_CONTAINER"]) for _ in range(4)]
        said = {own.result(key, 60.0)["stdout"].decode().strip() for key in keys}
    (path,) = said
    assert path.endswith(".sif") and len(list(tmp_path.rglob("*.sif"))) == 1, said


def test_a_task_in_a_container_has_the_card_that_it_was_given(cards, engine, tmp_path):
    if not isinstance(engine, Podman):
        pytest.skip("Apptainer and Docker give cards by libraries of their maker, which need real ones")
    podman = engine
    with FakeServer() as own, worker(own.url, tmp_path, "--resource", "gpus=2", **podman.env):
        for card in (0, 1):
            job = own.job(image=podman.image, units=[["gpus", card, 1000]])
            result = own.result(own.add(job, ["sh", "-c", "echo $FAKE_CARD $CUDA_VISIBLE_DEVICES"]), 60.0)
            assert result["stdout"] == f"{card} {card}\n".encode(), result
