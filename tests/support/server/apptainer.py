"""Apptainer as tests use it: that of the host, or the one that `tools/apptainer.sh` keeps, with an image of their own.

The image is an archive as registries hold them, so that a worker has to make it into a `.sif` file, as it would of any
image by name.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.podman import archive_of


class Apptainer:
    """An image of its own, and variables with which a worker finds Apptainer. Skips where there is none."""

    def __init__(self, folder: Path) -> None:
        cache = Path(os.environ.get("WINDFALL_APPTAINER") or "~/.cache/windfall/apptainer").expanduser()
        path = f"{cache / 'bin'}:{os.environ['PATH']}"
        busybox = shutil.which("busybox")
        if shutil.which("apptainer", path=path) is None or busybox is None:
            pytest.skip("apptainer and busybox are needed; to run these tests: sh tools/apptainer.sh")
        self._folder = folder
        image = folder / "image.tar"
        _write_image(image, Path(archive_of(folder / "root", busybox)))
        self.image = f"oci-archive://{image}"
        # Root without all capabilities, as in a container, may give none to a task.
        options = "--no-privs" if not os.getuid() else ""
        self.env = {
            "PATH": path, "WINDFALL_CONTAINER_OPTIONS": options, "APPTAINER_CACHEDIR": str(folder / "cache"),
            "APPTAINER_TMPDIR": str(folder), "APPTAINER_CONFIGDIR": str(folder / "config"),
        }  # fmt: skip
        done = subprocess.run(
            ["apptainer", "exec", *options.split(), str(folder / "root"), "echo", "here"],
            env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"'apptainer exec' does not work here: {done.stderr.strip()[-200:]}")

    def left(self) -> list[str]:
        """Processes of tasks of this test that still run: Apptainer keeps nothing else of a container."""
        mark = f"={self._folder.parent}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                variables = path.read_bytes()
            except OSError:
                continue
            if b"\0WINDFALL_TASK=" in b"\0" + variables and mark in variables and b"APPTAINER_CONTAINER" in variables:
                found.append(path.parent.name)
        return found

    def close(self) -> None:
        """Nothing runs but tasks."""


def _write_image(path: Path, layer: Path) -> None:
    """An archive in the layout of OCI: one layer, its configuration, a manifest and an index."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    content = layer.read_bytes()
    first = blob(content, "layer.v1.tar")
    config = {
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [first["digest"]]},
    }  # fmt: skip
    described = blob(json.dumps(config).encode(), "config.v1+json")
    manifest = blob(
        json.dumps({"schemaVersion": 2, "config": described, "layers": [first]}).encode(), "manifest.v1+json"
    )
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode(),
        **blobs,
    }
    with tarfile.open(path, "w") as archive:
        for name in ("blobs", "blobs/sha256"):
            place = tarfile.TarInfo(name)
            place.type, place.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(place)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
