"""Tasks in containers: which engine this host has, the image fetched once, the command line. Runs the engine.

The task sees its directory under the same path as outside, its own variables, the network of the host, and its GPUs. It
runs as the user of the worker. What an engine keeps of a container that was killed is removed by its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

APPTAINER, PODMAN, DOCKER = "apptainer", "podman", "docker"
OPTIONS = "WINDFALL_CONTAINER_OPTIONS"
"""Further options of `run` (`exec` of Apptainer) that the engine of a host needs."""
_CHECK_S, _PULL_S, _REMOVE_S = 20.0, 3600.0, 60.0
_AMD_DEVICES = ("/dev/kfd", "/dev/dri")
KILLED = 128 + 9
"""Exit code of a container whose process was killed: with a limit of memory, by the kernel."""


class NoImage(Exception):
    """The image could not be had; the text says why."""


def find_engine() -> str | None:
    """The first engine that works here. Docker is a client: without its daemon it runs nothing."""
    for name in (APPTAINER, PODMAN):
        if shutil.which(name):
            return name
    if shutil.which(DOCKER) and _succeeds([DOCKER, "version", "--format", "{{.Server.Version}}"]):
        return DOCKER
    return None


def _succeeds(argv: list[str], timeout_s: float = _CHECK_S) -> bool:
    return _run(argv, timeout_s)[0] == 0


def _run(argv: list[str], timeout_s: float) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=timeout_s,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return 1, str(error)
    return done.returncode, done.stderr.decode(errors="replace").strip()


def settings_of(
    engine: str | None, image: str, folder: str, memory_bytes: int | None, gpus: list[str], amd: bool = False
) -> dict[str, Any]:
    """What a runner needs to run tasks in this image. `folder` keeps locks and images of this host.

    `gpus`: NVIDIA cards of the task. `amd`: it has AMD cards, of which its variables say which.
    """
    return {
        "engine": engine, "image": image, "folder": folder, "memory_bytes": memory_bytes, "gpus": gpus, "amd": amd,
        "options": shlex.split(os.environ.get(OPTIONS, "")),
    }  # fmt: skip


class Container:
    """One image with one engine, as a runner uses it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.engine: str | None = settings["engine"]
        self.image: str = settings["image"]
        self.memory_bytes: int | None = settings["memory_bytes"]
        self._folder: str = settings["folder"]
        self._options: list[str] = settings["options"]
        self._gpus: list[str] = settings["gpus"]
        self._amd: bool = settings["amd"]
        self._has_image = False

    def fetch(self) -> None:
        """Have the image on this host. Of several slots that need it at once, one fetches it and the others wait."""
        if self._has_image:
            return
        if self.engine is None:
            raise NoImage("this host has neither Apptainer, Podman nor Docker")
        os.makedirs(self._folder, exist_ok=True)
        digest = hashlib.sha256(self.image.encode()).hexdigest()[:24]
        with open(os.path.join(self._folder, f"{digest}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.engine == APPTAINER:
                self._fetch_sif(digest)
            elif not _succeeds([self.engine, "image", "inspect", self.image]):
                code, said = _run([self.engine, "pull", "--quiet", self.image], _PULL_S)
                if code:
                    raise NoImage(f"{self.engine} cannot fetch the image {self.image}: {said[-500:]}")
        self._has_image = True

    def _fetch_sif(self, digest: str) -> None:
        if os.path.exists(self.image):
            return  # a file, or an unpacked folder
        path = os.path.join(self._folder, f"{digest}.sif")
        if not os.path.exists(path):
            source = self.image if "://" in self.image else f"docker://{self.image}"
            code, said = _run([APPTAINER, "pull", "--force", f"{path}.new", source], _PULL_S)
            if code:
                raise NoImage(f"apptainer cannot fetch the image {self.image}: {said[-500:]}")
            os.replace(f"{path}.new", path)
        self.image = path

    def argv(
        self, name: str, argv: Sequence[str], folder: str, names: Iterable[str], mounts: Iterable[str]
    ) -> list[str]:
        """The command line that runs `argv` in `folder`. `names`: variables that the engine hands over from its own."""
        if self.engine == APPTAINER:
            return self._apptainer(argv, folder, names, mounts)
        assert self.engine is not None
        made = [self.engine, "run", "--rm", "-i", "--name", name, "--pull=never", "--network=host", "--workdir", folder]
        for path in (folder, *mounts):
            made += ["--volume", f"{path}:{path}"]
        for variable in names:
            made += ["--env", variable]
        if os.getuid():
            made += ["--userns=keep-id"] if self.engine == PODMAN else ["--user", f"{os.getuid()}:{os.getgid()}"]
        if self.memory_bytes:
            made += ["--memory", f"{self.memory_bytes}b"]
        cores = sorted(os.sched_getaffinity(0))
        if self.engine == DOCKER and len(cores) < (os.cpu_count() or 0):
            # Its daemon starts the task, which has none of the affinity of this process, as of a pinned task.
            made += ["--cpuset-cpus", ",".join(map(str, cores))]
        if self._gpus and self.engine == PODMAN:
            made += [word for gpu in self._gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
        elif self._gpus:
            made += ["--gpus", f'"device={",".join(self._gpus)}"']
        if self._amd:
            made += [word for path in _AMD_DEVICES for word in ("--device", path)]
        return [*made, *self._options, self.image, *argv]

    def _apptainer(self, argv: Sequence[str], folder: str, names: Iterable[str], mounts: Iterable[str]) -> list[str]:
        made = [APPTAINER, "--silent", "exec", "--cleanenv", "--pwd", folder]
        for path in (folder, *mounts):
            made += ["--bind", path]
        if self.memory_bytes:
            made += ["--memory", str(self.memory_bytes)]
        if self._gpus:
            made += ["--nv"]
        if self._amd:
            made += ["--rocm"]
        return [*made, *self._options, self.image, *argv]

    def environment(self, env: dict[bytes, bytes], names: Iterable[str]) -> dict[bytes, bytes]:
        """The environment of the engine itself: Apptainer hands over what has its prefix."""
        if self.engine != APPTAINER:
            return env
        given = {
            b"APPTAINERENV_" + os.fsencode(name): env[os.fsencode(name)] for name in names if os.fsencode(name) in env
        }
        return {**env, **given}

    def remove(self, name: str) -> None:
        """Nothing of this container stays; one that has gone by itself is no error."""
        if self.engine in (PODMAN, DOCKER):
            _run([self.engine, "rm", "--force", name], _REMOVE_S)
