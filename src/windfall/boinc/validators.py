"""Validators: commands of the operator that judge what a volunteer's task left. Runs them in a folder of their own.

A validator gets that folder as its last argument and as its working directory: `stdout` and the output files, below
`files`. What it prints is what must agree; exit code 0 says that the result may be right, 1 to 125 that it is wrong.
Anything else (it cannot be started, it takes too long, a signal) says nothing about the result: it is judged later.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from windfall.bounds import MAX_INTEGER
from windfall.errors import BadInput

LIMIT_S = 60.0
MAX_SAID_BYTES = 16 << 20
MAX_WRONG = 125
"""The highest exit code of a command that ran; shells use those above for commands that could not."""
PIECE = 1 << 20
IMPOSSIBLE_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
"""What the names of files lead to that no task could have written: `a` beside `a/b`, for instance."""


class CannotJudge(Exception):
    """The validator did not work: the result is neither right nor wrong."""


class NotYet(CannotJudge):
    """The validator has not judged it yet, and the client would stop waiting."""


def argv_of(command: str, where: str) -> list[str]:
    """The words of a command; BadInput unless its program is there."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"{where}: {command!r} is not a command: {error}") from None
    if not words or not Path(words[0]).is_absolute():
        raise BadInput(f"{where}: {command!r} does not begin with a program's path", hint="as in /opt/grid/round.py")
    if not os.access(words[0], os.X_OK):
        raise BadInput(f"{where}: there is no program {words[0]} on the server's host")
    return words


def judged(argv: list[str], stdout: bytes, files: Iterable[tuple[str, Iterable[bytes]]]) -> str:
    """A fingerprint that equal results share; empty if the result is wrong. `files`: names with their bytes."""
    try:
        return _judged(argv, stdout, files)
    except OSError as error:
        if error.errno in IMPOSSIBLE_NAMES:
            return ""
        raise CannotJudge(str(error)) from None


def _judged(argv: list[str], stdout: bytes, files: Iterable[tuple[str, Iterable[bytes]]]) -> str:
    with tempfile.TemporaryDirectory(prefix="windfall-validate-") as name:
        folder = Path(name)
        (folder / "stdout").write_bytes(stdout)
        (folder / "files").mkdir()
        for file, pieces in files:
            _copy(pieces, folder / "files" / file)
        said = folder / ".said"
        with open(said, "wb") as out:
            code = _run([*argv, name], folder, out)
        if said.stat().st_size > MAX_SAID_BYTES:
            raise CannotJudge(f"it has printed more than {MAX_SAID_BYTES:,} bytes")
        if code:
            return ""
        with open(said, "rb") as printed:
            return hashlib.file_digest(printed, "sha256").hexdigest()[:32]


def _copy(pieces: Iterable[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as copy:
        for piece in pieces:
            copy.write(piece)


def pieces_of(file: BinaryIO, at: int = 0, size: int = MAX_INTEGER) -> Iterator[bytes]:
    """`size` bytes of a file from `at` on, or all that there are."""
    file.seek(at)
    while size > 0 and (piece := file.read(min(PIECE, size))):
        yield piece
        size -= len(piece)


def _run(argv: list[str], folder: Path, out: BinaryIO) -> int:
    """Its exit code, 0 to 125."""
    env = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(folder)}
    try:
        ended = subprocess.run(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CannotJudge(f"it took longer than {LIMIT_S:g} s") from None
    if not 0 <= ended.returncode <= MAX_WRONG:
        raise CannotJudge(f"it ended with {ended.returncode}")
    return ended.returncode
