"""Failures in groups: by kind (cause and exit code) first, then by what the last line says. Pure.

Numbers, paths, addresses and a task's own parameters differ from task to task and tell nothing: they are left out of
the comparison, so that a thousand failures of one kind are one group, and the one that ran out of memory is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from windfall.api.explained import Group

Kind = tuple[str, int | None]
"""Cause and exit code."""
MOST_READ = 500
"""Failures whose output is read to group them; the rest of each kind is counted."""
LEAST_READ_PER_KIND = 20
MOST_LISTED = 10
_LINE_CHARS = 200
_TAIL_CHARS = 1000
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.I)
_SAME = [
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I), "ID"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "ADDRESS"),
    (re.compile(r"(?:~|\.{1,2})?(?:/[^\s'\":,;()]+)+"), "PATH"),
    (re.compile(r"[^\s'\":,;()=/]+(?:/[^\s'\":,;()]+)+"), "PATH"),
    (_NUMBER, "N"),
    (re.compile(r"\s+"), " "),
]


def pattern(line: str, parameters: str | dict[str, str] | None = None) -> str:
    """What stays of a line without its numbers, paths, addresses and the parameters of its task."""
    values = [parameters] if isinstance(parameters, str) else list((parameters or {}).values())
    for value in sorted(values, key=len, reverse=True):
        if value.strip() and not _NUMBER.fullmatch(value):  # numbers go below, whole: the 1 of 1.5 is no parameter
            line = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "VALUE", line)
    for found, word in _SAME:
        line = found.sub(word, line)
    # A number that is a parameter in one task and part of a word in the next is the same thing.
    return line.replace("VALUE", "N").strip()


def last_line(stderr: bytes) -> str:
    """The last line that a task wrote to its standard error; empty if it wrote nothing."""
    return stderr.decode(errors="replace").rstrip().rsplit("\n", 1)[-1][-_LINE_CHARS:]


def sample(kinds: Sequence[tuple[int, Kind]]) -> tuple[list[tuple[int, Kind]], dict[Kind, list[int]]]:
    """Of all failed tasks with their kinds: those whose output is read, some of every kind, and the others by kind."""
    by_kind: dict[Kind, list[int]] = {}
    for task, kind in kinds:
        by_kind.setdefault(kind, []).append(task)
    each = max(LEAST_READ_PER_KIND, MOST_READ // max(1, len(by_kind)))
    read = [(task, kind) for kind, tasks in by_kind.items() for task in tasks[:each]]
    return read, {kind: tasks[each:] for kind, tasks in by_kind.items() if len(tasks) > each}


class Groups:
    """Failures as they are found, gathered in groups."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Group] = {}
        self._alike: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        """Groups by what their first line says with its parameters left in."""

    def add(
        self, task: int, kind: Kind, stderr: bytes, text: str, *, final: bool,
        parameters: str | dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """One failure. `text`: one line of the worker on why it ended; it counts where the task itself said nothing."""
        shown = last_line(stderr) or text
        # The same words belong together even where one of them is, by chance, a parameter of one of the tasks.
        key = self._alike.setdefault((final, *kind, pattern(shown)), (final, *kind, pattern(shown, parameters)))
        tail = stderr.decode(errors="replace").rstrip()[-_TAIL_CHARS:]
        self._count(key, kind, [task], shown, text, tail, final)

    def add_unread(self, tasks: list[int], kind: Kind) -> None:
        """Failures of a kind whose output was not compared."""
        self._count((True, *kind, None), kind, tasks, "", "", "", True)

    def _count(
        self, key: tuple[Any, ...], kind: Kind, tasks: list[int], shown: str, text: str, tail: str, final: bool
    ) -> None:
        group = self._found.setdefault(
            key,
            {
                "cause": kind[0], "exit_code": kind[1], "count": 0, "tasks": [], "last_line": shown, "text": text,
                "stderr_tail": tail, "example": tasks[0], "final": final, "compared": key[-1] is not None,
            },
        )  # fmt: skip
        group["count"] += len(tasks)
        group["tasks"] += tasks[: MOST_LISTED - len(group["tasks"])]

    def ordered(self) -> list[Group]:
        """Final ones first; kinds together, the largest kind first; in a kind the largest group first."""
        totals = _totals(self._found.values())
        return sorted(
            self._found.values(),
            key=lambda group: (
                not group["final"], -totals[_kind(group)], _kind(group)[1:], not group["compared"], -group["count"],
            ),
        )  # fmt: skip


def _kind(group: Group) -> tuple[Any, ...]:
    code = group["exit_code"]
    return (group["final"], group["cause"], -1 if code is None else code)


def _totals(groups: Iterable[Group]) -> dict[tuple[Any, ...], int]:
    totals: dict[tuple[Any, ...], int] = {}
    for group in groups:
        totals[_kind(group)] = totals.get(_kind(group), 0) + group["count"]
    return totals
