"""Command lines of the three engines, and the image that is fetched once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.worker.running import containers
from windfall.worker.running.containers import Container, NoImage, find_engine, settings_of
from windfall.worker.running.devices import AMD, NVIDIA, Devices, Gpu


def container(engine: str | None, folder: Path, image: str = "python:3.12", memory: int | None = None, *gpus: str):
    return Container(settings_of(engine, image, str(folder), memory, list(gpus)))


@pytest.fixture(autouse=True)
def all_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(os.cpu_count() or 1)))


def words(engine: str, folder: Path, *gpus: str, memory: int | None = None) -> str:
    made = container(engine, folder, "python:3.12", memory, *gpus)
    return " ".join(made.argv("windfall-1-2", ["./run", "a b"], "/d", ["X"], ["/c"]))


def test_each_engine_has_the_directory_the_variables_and_the_limits(tmp_path, monkeypatch):
    monkeypatch.setenv(containers.OPTIONS, "--cgroups=disabled")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    both = (
        "run --rm -i --name windfall-1-2 --pull=never --network=host --workdir /d --volume /d:/d --volume /c:/c --env X"
    )
    end = "--memory 1048576b --cgroups=disabled python:3.12 ./run a b"
    assert words("podman", tmp_path, memory=1 << 20) == f"podman {both} --userns=keep-id {end}"
    assert words("docker", tmp_path, memory=1 << 20) == f"docker {both} --user 1000:1000 {end}"
    assert words("apptainer", tmp_path, memory=1 << 20) == (
        "apptainer --silent exec --cleanenv --pwd /d --bind /d --bind /c --memory 1048576 --cgroups=disabled "
        "python:3.12 ./run a b"
    )


def test_apptainer_hands_over_what_has_its_prefix(tmp_path):
    env = container("apptainer", tmp_path).environment({b"X": b"y", b"HOME": b"/root"}, ["X", "Y"])
    assert env == {b"X": b"y", b"HOME": b"/root", b"APPTAINERENV_X": b"y"}


def test_docker_whose_daemon_starts_tasks_is_told_the_cores_of_a_pinned_one(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {6, 2})
    assert " --cpuset-cpus 2,6 " in words("docker", tmp_path)
    assert "cpuset" not in words("podman", tmp_path) + words("apptainer", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert "cpuset" not in words("docker", tmp_path)


def test_gpus_are_named_as_each_engine_wants_them(tmp_path):
    assert "--device nvidia.com/gpu=0 --device nvidia.com/gpu=GPU-a" in words("podman", tmp_path, "0", "GPU-a")
    assert '--gpus "device=0,GPU-a"' in words("docker", tmp_path, "0", "GPU-a")
    assert " --nv " in words("apptainer", tmp_path, "0")
    devices = Devices({}, [Gpu(NVIDIA, "GPU-a"), Gpu(AMD, "0")])
    assert devices.nvidia_ids([("gpus", 0, 1000), ("gpus", 1, 1000), ("licence", -1, 1000)]) == ["GPU-a"]
    assert devices.has_amd([("gpus", 1, 1000)]) and not devices.has_amd([("gpus", 0, 1000)])


def test_amd_cards_are_handed_over_as_devices_and_the_variables_say_which(tmp_path):
    def line(engine: str) -> str:
        made = Container(settings_of(engine, "python:3.12", str(tmp_path), None, [], amd=True))
        return " ".join(made.argv("n", ["ls"], "/d", ["ROCR_VISIBLE_DEVICES"], []))

    assert "--env ROCR_VISIBLE_DEVICES --device /dev/kfd --device /dev/dri" in line("docker")
    assert "--device /dev/kfd --device /dev/dri" in line("podman")
    assert " --rocm " in line("apptainer")


def test_the_first_engine_that_works_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_engine() is None
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    assert find_engine() is None, "a client without its daemon runs nothing"
    docker.write_text("#!/bin/sh\nexit 0\n")
    assert find_engine() == "docker"
    for name in ("podman", "apptainer"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert find_engine() == name


def fake_podman(folder: Path, monkeypatch: pytest.MonkeyPatch, has: str, pulls: str) -> Path:
    said = folder / "said"
    (folder / "podman").write_text(f"#!/bin/sh\necho $1 >> {said}\ncase $1 in image) {has};; pull) {pulls};; esac\n")
    (folder / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return said


def test_an_image_is_fetched_once(tmp_path, monkeypatch):
    said = fake_podman(tmp_path, monkeypatch, f"test -e {tmp_path}/fetched", f"touch {tmp_path}/fetched")
    first, second = (container("podman", tmp_path / "images") for _ in range(2))
    for each in (first, first, second):
        each.fetch()
    assert said.read_text().split() == ["image", "pull", "image"]


def test_an_image_that_cannot_be_had_is_named(tmp_path, monkeypatch):
    fake_podman(tmp_path, monkeypatch, "exit 1", "echo no such manifest >&2; exit 125")
    with pytest.raises(NoImage, match=r"podman cannot fetch the image python:3.12: no such manifest"):
        container("podman", tmp_path / "images").fetch()
    with pytest.raises(NoImage, match="neither Apptainer, Podman nor Docker"):
        container(None, tmp_path / "images").fetch()
