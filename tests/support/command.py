"""The command line in this process: quick, and everything that it prints and returns in one value."""

from __future__ import annotations

import io
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
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return Ended(int(ended.value.code or 0), out, err)
