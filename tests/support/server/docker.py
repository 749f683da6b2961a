"""Docker as tests use it: a daemon of its own, without a network, with an image that the test makes.

The daemon has its own files below a folder of the test, and its own mounts of the control groups: where the host has
mounted them in another way, its containers would not start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from secrets import token_hex

from tests.support.server.podman import archive_of, missing

_DAEMON = """
mount -t tmpfs tmpfs /sys/fs/cgroup
for name in cpuset cpu cpuacct memory devices pids freezer blkio; do
    mkdir /sys/fs/cgroup/$name && mount -t cgroup -o $name cgroup /sys/fs/cgroup/$name
done
exec dockerd --storage-driver vfs --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --bridge none \
    --data-root {folder}/data --exec-root {run} --host unix://{run}/docker.sock --pidfile {run}/pid
"""
_START_S = 40.0


class Docker:
    """An image of its own, and variables with which a worker finds it. Skips (fails in CI) where nothing runs."""

    def __init__(self, folder: Path) -> None:
        docker, busybox = shutil.which("docker"), shutil.which("busybox")
        if docker is None or shutil.which("dockerd") is None or busybox is None or os.getuid():
            missing("docker.io and busybox as root are needed")
        name = token_hex(6)
        self.image, self._label = f"localhost/windfall-test-{name}:1", f"windfall-test={name}"
        self._run = Path(f"/run/windfall-test-{name}")  # sockets have short names
        self._log = (folder / "dockerd.log").open("wb")
        script = _DAEMON.format(folder=folder, run=self._run)
        self._daemon = subprocess.Popen(["unshare", "--mount", "sh", "-ec", script], stdout=self._log, stderr=self._log)
        self.env = {
            "PATH": str(_only(docker, folder / "tools")), "DOCKER_HOST": f"unix://{self._run}/docker.sock",
            "DOCKER_CONFIG": str(folder), "WINDFALL_CONTAINER_OPTIONS": f"--label {self._label}",
        }  # fmt: skip
        try:
            self._wait()
            self._try("import", archive_of(folder / "root", str(busybox)), self.image)
            self._try("run", "--rm", "--network=host", self.image, "echo", "here")
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        end_s = time.monotonic() + _START_S
        while self._docker("version").returncode:
            if self._daemon.poll() is not None or time.monotonic() > end_s:
                said = Path(self._log.name).read_text(errors="replace").strip()
                missing(f"dockerd does not start here: {said[-200:]}")
            time.sleep(0.1)

    def left(self) -> list[str]:
        """Containers of the worker that exist, running or not."""
        done = self._docker("ps", "--all", "--filter", f"label={self._label}", "--format", "{{.Names}}")
        assert done.returncode == 0, done
        return done.stdout.split()

    def close(self) -> None:
        self._daemon.terminate()
        try:
            self._daemon.wait(30)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        self._log.close()
        shutil.rmtree(self._run, ignore_errors=True)

    def _try(self, *words: str) -> None:
        done = self._docker(*words)
        if done.returncode:
            missing(f"'docker {words[0]}' does not work here: {done.stderr.strip()[-200:]}")

    def _docker(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *words], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60, check=False
        )


def _only(docker: str, folder: Path) -> Path:
    """A folder of the host's programs without its other engines: a worker takes the first that it finds."""
    folder.mkdir()
    for place in ("/usr/bin", "/usr/sbin"):
        for path in Path(place).iterdir():
            if path.name not in ("podman", "apptainer", "docker") and not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)
    (folder / "docker").symlink_to(docker)
    return folder
