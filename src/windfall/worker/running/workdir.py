"""The directory of an attempt: made, filled with inputs, searched for outputs. Touches files below one root.

Names come from the network: none may lead out of the directory, neither by `..` nor through a symbolic link.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import shutil
import stat
import time
from collections.abc import Iterator

_TIMESTAMP_STEP_NS = 50_000_000
"""Changes closer together than this may have the same time stamp (10 ms on the slowest kernels)."""


class BadName(ValueError):
    """A name that is empty or leads out of its directory."""


def safe_name(name: str) -> str:
    """The name itself if it stays below the directory that it is relative to; raises `BadName` otherwise."""
    parts = name.split("/")
    if not name or name.startswith("/") or "\0" in name or "\\" in name or ".." in parts or parts[-1] in ("", "."):
        raise BadName(f"the name {name!r} leads out of the attempt's directory")
    return name


def inside(root: str, path: str) -> bool:
    """Whether a path, with every link followed, lies below a directory."""
    root = os.path.realpath(root)
    return os.path.commonpath([root, os.path.realpath(path)]) == root


class OwnDirectory:
    """A directory that is reused by the next attempt as long as attempts leave it untouched."""

    def __init__(self, parent: str, prefix: str) -> None:
        self._parent = parent
        self._prefix = prefix
        self._count = 0
        self._entered = False
        self._state = (0, 0, 0)
        self._settled_ns = 0
        self.path = ""

    def enter(self) -> str:
        """Make an empty directory if there is none, and go there. One that somebody removed is made anew."""
        if self._entered and os.stat(".").st_nlink:
            return self.path
        try:
            os.chdir(self.path or self._make())
        except FileNotFoundError:
            os.chdir(self._make())
        self._state = self._look()
        self._settled_ns = time.time_ns() + _TIMESTAMP_STEP_NS
        self._entered = True
        return self.path

    def come_back(self) -> str:
        """Go there again, wherever the last attempt has gone. As `enter`, but what is known of it stays known."""
        if self._entered:
            try:
                os.chdir(self.path)
                return self.path
            except OSError:
                self._entered = False
        return self.enter()

    def _make(self) -> str:
        os.makedirs(self._parent, 0o700, exist_ok=True)
        while True:
            self._count += 1
            self.path = os.path.join(self._parent, f"{self._prefix}-{self._count}")
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
                return self.path

    def leave(self, started_ns: int = 0) -> None:
        """After an attempt that started at `started_ns`: keep the directory if it is unchanged, else remove it."""
        if not self._entered:
            return
        try:
            # The change time is reliable only if it is older than the resolution of time stamps.
            if self._look() == self._state and (started_ns > self._settled_ns or not os.listdir(".")):
                return
        except OSError:
            pass
        remove(self.give_away())

    def _look(self) -> tuple[int, int, int]:
        found = os.stat(".")
        return found.st_mode, found.st_nlink, found.st_ctime_ns

    def step_out(self) -> None:
        """Record that the current directory is another one now."""
        self._entered = False

    def give_away(self) -> str:
        """Give the directory to the caller, who removes it after sending its outputs."""
        path, self.path, self._entered = self.path, "", False
        return path


def remove(path: str) -> None:
    """Remove a directory whatever the attempt did to its permissions."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def place_inputs(root: str, inputs: list[tuple[str, str, int]]) -> None:
    """Copy cached blobs to their names below `root`. A copy, not a link: a task must not write into the cache."""
    for name, source, mode in inputs:
        target = os.path.join(root, safe_name(name))
        folder = os.path.dirname(target)
        if not inside(root, folder):
            raise BadName(f"the name {name!r} leads out of the attempt's directory through a link")
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(target):
            os.unlink(target)
        shutil.copyfile(source, target)
        os.chmod(target, mode & 0o777 or 0o644)


def find_outputs(root: str, patterns: list[str]) -> tuple[list[tuple[str, str, int]], list[str]]:
    """Files that match the patterns, `(name, path, mode)`, and patterns that match none or lead out."""
    found: dict[str, tuple[str, str, int]] = {}
    missing = []
    for pattern in patterns:
        files = _matches(root, pattern)
        if not files:
            missing.append(pattern)
        for name in files:
            path = os.path.join(root, name)
            found[name] = (name, path, os.stat(path).st_mode & 0o777)
    return [found[name] for name in sorted(found)], missing


def _matches(root: str, pattern: str) -> list[str]:
    try:
        safe_name(pattern.rstrip("/"))
    except BadName:
        return []
    names = []
    for match in _glob(root, "", [part for part in pattern.split("/") if part not in ("", ".")]):
        path = os.path.join(root, match)
        if os.path.isdir(path) and not os.path.islink(path):
            for folder, _, files in os.walk(path):
                names += [os.path.relpath(os.path.join(folder, file), root) for file in files]
        else:
            names.append(match)
    return [name for name in names if _is_plain_file_inside(root, os.path.join(root, name))]


def _glob(root: str, base: str, parts: list[str]) -> Iterator[str]:
    """Names below `root` that match, hidden ones too; `**` is any number of folders. Links to folders are not followed.

    Python 3.8's own glob can neither begin at a folder nor show hidden files.
    """
    if not parts:
        yield base
        return
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield from _glob(root, base, rest)
    for name in _listed(os.path.join(root, base)) if glob.has_magic(first) else [first]:
        path = os.path.join(base, name)
        whole = os.path.join(root, path)
        if first == "**":
            if os.path.isdir(whole) and not os.path.islink(whole):
                yield from _glob(root, path, parts)
            elif not rest:
                yield path
        elif os.path.lexists(whole) and fnmatch.fnmatchcase(name, first):
            yield from _glob(root, path, rest)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_plain_file_inside(root: str, path: str) -> bool:
    try:
        return inside(root, path) and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
