"""Programs of others, run under a time limit and with bounded output. Touches processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

MOST_BYTES = 4 << 20
"""More on standard output is refused."""
_ERROR_BYTES = 4000


class Called(Struct, frozen=True):
    """How a program ended. `trouble` says why it has no exit code: not found, too slow, too much output."""

    code: int = -1
    stdout: bytes = b""
    stderr: str = ""
    trouble: str = ""
    timed_out: bool = False
    """It was ended by us: nobody knows what it has done."""


def call(
    argv: Sequence[str], stdin: bytes, limit_s: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Called:
    """Run a program to its end; after `limit_s` it is killed with all that it started in its process group."""
    # Files, not pipes: a child that stays in the background and holds the output open must not hold us up.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                argv, stdin=given, stdout=out, stderr=err, cwd=cwd, env=None if env is None else {**os.environ, **env},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Called(trouble=f"{argv[0]} cannot be run: {error.strerror or error}")
        trouble, timed_out = "", False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            timed_out = True
            trouble = f"{argv[0]} took longer than {limit_s:g} s and was ended"
        size = out.seek(0, os.SEEK_END)
        if size > MOST_BYTES and not trouble:
            trouble = f"{argv[0]} wrote {size} bytes; at most {MOST_BYTES} are read"
        out.seek(0)
        err.seek(max(0, err.seek(0, os.SEEK_END) - _ERROR_BYTES))
        said = err.read().decode(errors="replace")
        return Called(process.returncode, out.read(MOST_BYTES), said, trouble, timed_out)
