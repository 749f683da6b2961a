"""Earlier versions of Windfall, taken from the history of this repository, to run beside this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAST = "8a304ac44f297fab3c8d5bde479d1be2fbfc6062"
"""The last version while no commit has a tag: a server of it is replaced by one of this version."""
BEFORE_LAST = "b384a0f0de563b941afb4dce927ee17514416534"
"""An earlier one: workers of it, which know neither hosts' secrets nor several addresses, are still served."""
FETCH_S = 60.0


def last(root: Path = ROOT) -> str:
    """The newest released version before this commit: its tag, or `LAST` where there is none."""
    return _git(root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~1").decode().strip() or LAST


def source(commit: str, directory: Path, root: Path = ROOT) -> str:
    """The folder to import that version from, made below `directory`.

    A shallow clone lacks it: it is fetched alone, if the place where the clone is from can be reached. Else the test is
    skipped and says so.
    """
    packed = _git(root, "archive", commit, "src")
    if not packed and _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        _git(root, "fetch", "--quiet", "--depth", "1", "origin", commit)
        packed = _git(root, "archive", commit, "src")
    if not packed:
        pytest.skip(f"version {commit[:10]} is not in this clone: git fetch --unshallow --tags")
    target = directory / commit[:10]
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "x", "-C", str(target)], input=packed, check=True)
    return str(target / "src")


def _git(root: Path, *words: str) -> bytes:
    """What git says; nothing if it fails, is not there, or waits for a network that is not there."""
    try:
        ended = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False, timeout=FETCH_S)
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return b"" if ended.returncode else ended.stdout
