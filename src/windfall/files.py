"""Files that a user names for results: one rule for every command. Touches: those files and their folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from windfall.errors import BadInput

ANOTHER = "name another file"
_numbers = count()
"""Threads of one program may write to one folder at once."""


def check_writable(path: str | Path) -> None:
    """BadInput if a file cannot be written there. Ask before the work whose result it shall hold; makes nothing."""
    target = Path(path)
    if not str(path):
        raise BadInput("the name of the file to write is empty", hint=ANOTHER)
    with _refusing(target):
        if target.is_dir():
            raise IsADirectoryError
        if not target.exists():
            _check_nearest(target.parent)
        elif not os.access(target, os.W_OK):
            raise PermissionError


def check_folder(path: str | Path) -> None:
    """BadInput if files cannot be written into that folder, which need not be there yet. Makes nothing."""
    target = Path(path)
    with _refusing(target, "name another folder"):
        if target.exists() and not target.is_dir():
            raise FileExistsError
        _check_nearest(target)


def _check_nearest(path: Path) -> None:
    """The nearest folder above that is there must be one, and writable."""
    nearest = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise NotADirectoryError
    if not os.access(nearest, os.W_OK):
        raise PermissionError


def make_room(path: str | Path) -> None:
    """Make the missing folders above a file that is about to be written; BadInput if it cannot be written there."""
    check_writable(path)
    with _refusing(Path(path)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A file to write to, which takes the place of `path` at the end: after an error, what was there is still there.

    Missing folders are made. A device or a pipe is written to directly, and a link still leads where it led."""
    check_writable(path)
    target = Path(path)
    with _refusing(target):
        if _written_in_place(target):
            yield target
            return
        target = target.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # The ending stays last: some writers choose the kind of file by it.
        unfinished = target.with_name(f".windfall-{os.getpid()}-{next(_numbers)}{target.suffix[:20]}")
        try:
            yield unfinished
            if target.exists():
                shutil.copymode(target, unfinished)
            unfinished.replace(target)
        finally:
            with suppress(OSError):
                unfinished.unlink()


def write(path: str | Path, data: str | bytes) -> Path:
    """Write a whole file by the rule of `replacing`."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(data.encode() if isinstance(data, str) else data)
    return Path(path)


def _written_in_place(path: Path) -> bool:
    """/dev/stdout is a link that may lead to a regular file, which is not ours to replace."""
    return path.is_relative_to("/dev") or (path.exists() and not path.is_file())


@contextmanager
def _refusing(path: Path, hint: str = ANOTHER) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(f"{path}: {_reason(error)}", hint=hint) from None


def _reason(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "this is a folder"
    if isinstance(error, NotADirectoryError):
        return "a file is in the place of one of its folders"
    if isinstance(error, FileExistsError):
        return "this is a file and no folder"
    if isinstance(error, PermissionError):
        return "no permission to write there"
    return error.strerror or str(error)
