"""Podman as tests use it: with an image that they make themselves, and what a machine without cgroups of its own needs.

A wrapper on the PATH hides the cgroups of the host, which may be mounted in a way that crun does not take.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import NoReturn

import pytest

OPTIONS = "--cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1000:1000"
TOOLS = ("sh", "cat", "echo", "id", "ls", "pwd", "sleep", "test", "touch", "trap")
EMPTY: Mapping[str, str] = MappingProxyType({})
_WRAPPER = """#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec {podman} "$@"' podman "$@"
"""


def missing(why: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{why}; sh tools/system.sh installs podman, crun, docker.io and busybox-static")
    pytest.skip(f"{why}; to run these tests: sh tools/system.sh, as root")


class Podman:
    """An image of its own, and variables with which a worker finds it. Skips (fails in CI) where nothing runs."""

    def __init__(self, folder: Path, programs: Mapping[str, str] = EMPTY) -> None:
        """`programs`: scripts that the image has in /bin, by name."""
        podman, busybox = shutil.which("podman"), shutil.which("busybox")
        if podman is None or busybox is None or os.getuid():
            missing("podman and busybox as root are needed")
        name = token_hex(6)
        self.image, self._label = f"localhost/windfall-test-{name}:1", f"windfall-test={name}"
        options = f"{OPTIONS} --label {self._label}"
        tools = folder / "tools"
        tools.mkdir()
        (tools / "podman").write_text(_WRAPPER.format(podman=podman))
        (tools / "podman").chmod(0o755)
        self.env = {"PATH": f"{tools}:{os.environ['PATH']}", "WINDFALL_CONTAINER_OPTIONS": options}
        archive = archive_of(folder / "root", str(busybox), programs)
        self._names = [self.image]
        self._try("import", "--quiet", archive, self.image)
        self._try("run", "--rm", "--network=host", *options.split(), self.image, "echo", "here")

    def left(self) -> list[str]:
        """Containers of the worker that exist, running or not."""
        done = self._podman("ps", "--all", "--filter", f"label={self._label}", "--format", "{{.Names}}")
        assert done.returncode == 0, done
        return done.stdout.split()

    def tag(self, name: str) -> None:
        """Give the image another name, too."""
        self._try("tag", self.image, name)
        self._names.append(name)

    def close(self) -> None:
        self._podman("rmi", "--force", *self._names)

    def _try(self, *words: str) -> None:
        done = self._podman(*words)
        if done.returncode:
            missing(f"'podman {words[0]}' does not work here: {done.stderr.strip()[-200:]}")

    def _podman(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["podman", *words], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60, check=False
        )


def archive_of(folder: Path, busybox: str, programs: Mapping[str, str] = EMPTY) -> str:
    """The file system of an image as an archive."""
    (folder / "bin").mkdir(parents=True)
    (folder / "tmp").mkdir()
    shutil.copy(busybox, folder / "bin" / "busybox")
    for name in TOOLS:
        (folder / "bin" / name).symlink_to("busybox")
    for name, script in programs.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    return shutil.make_archive(str(folder), "tar", folder)
