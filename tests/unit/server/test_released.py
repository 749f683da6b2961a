"""Where the tests of upgrades find earlier versions: by tag, by commit, and in a clone without history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.server import released


def git(root: Path, *words: str) -> str:
    told = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
    return subprocess.run(told, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def origin(tmp_path) -> Path:
    """Three commits, each with its own src/version."""
    root = tmp_path / "origin"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q")
    for version in "123":
        (root / "src" / "version").write_text(version)
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", version)
    return root


def test_the_newest_tag_before_this_commit_is_the_last_version(origin):
    assert released.last(origin) == released.LAST
    git(origin, "tag", "v0.1", "HEAD~2")
    git(origin, "tag", "other", "HEAD~1")
    git(origin, "tag", "v0.2")
    assert released.last(origin) == "v0.1"


def test_a_shallow_clone_fetches_the_version_alone(origin, tmp_path):
    first = git(origin, "rev-parse", "HEAD~2")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "clone")
    folder = released.source(first, tmp_path / "out", tmp_path / "clone")
    assert (Path(folder) / "version").read_text() == "1"
    assert git(tmp_path / "clone", "rev-list", "--count", "HEAD") == "1"


def test_a_version_that_cannot_be_had_is_skipped_and_said(origin, tmp_path):
    first = git(origin, "rev-parse", "HEAD~2")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "clone")
    origin.rename(tmp_path / "moved")
    for root in (tmp_path / "clone", tmp_path):
        with pytest.raises(pytest.skip.Exception, match="git fetch --unshallow"):
            released.source(first, tmp_path / "out", root)
