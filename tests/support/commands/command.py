"""The command line in this process: quick, and everything that it prints and returns in one value."""

from __future__ import annotations

import io
import signal
import sys
from typing import Any, NamedTuple

import pytest

from windfall.cli import main


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def is_short_error(self, code: int) -> bool:
        """One or two lines on standard error, nothing else, no traceback."""
        lines = self.err.splitlines()
        return (
            self.code == code
            and not self.out
            and 1 <= len(lines) <= 2
            and lines[0].startswith("windfall: ")
            and "Traceback" not in self.err
        )


def windfall(monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: str, stdin: bytes = b"") -> Ended:
    monkeypatch.setattr(sys, "argv", ["windfall", *arguments])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    capsys.readouterr()
    # A command that has ended ignores signals; the tests that follow must not.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = capsys.readouterr()
    return Ended(int(ended.value.code or 0), out, err)
