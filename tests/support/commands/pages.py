"""Pages that people type along with: their commands, and whether a command said what its page says. Touches nothing."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

TIMES = re.compile(r"\d+(\.\d+)?( s\b|/s|/min)|\b\d+:\d\d(:\d\d)?\b|\b\d+[mhd]\d\d[smh]\b")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Commands behind `$ ` (going on behind `> `), each with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        elif found:
            found[-1][1].append(line)
    return found


def plain(line: str) -> str:
    """A line without what differs from run to run: times, and how many blanks stand in a table."""
    return " ".join(TIMES.sub("T", line).split())


def says(expected: list[str], got: str) -> bool:
    """Line by line, `...` standing for anything: within a line, or for any number of lines."""
    pattern = "\n".join("*" if line.strip() == "..." else plain(line).replace("[", "[[]") for line in expected)
    text = "\n".join(plain(line) for line in got.splitlines())
    return fnmatch.fnmatchcase(text, re.sub(r"(?<=\S )?\.\.\.", "*", pattern).replace("\n*", "*"))
