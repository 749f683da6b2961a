"""The job file that the launcher reads, and the archive that it writes. Pure.

The job file is a row of netstrings (`LENGTH:BYTES,`). The archive comes from a stranger's machine: every number in it
is bounded before it is used, and nothing of it is executed.

    WF1 TASKS
    T task cause exit run_s cpu_s rss_bytes stdout stdout_dropped stderr stderr_dropped files     then stdout, stderr
    F mode size name_length                                                                       then name, content
    E
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import BinaryIO

from msgspec import Struct

from windfall.bounds import MAX_INTEGER, MAX_MEMORY_BYTES, MAX_OUTPUT_FILES, MAX_PATH_CHARS, MAX_SECONDS
from windfall.wire.messages import DONE, EXIT, INPUTS, NO_COMMAND, OOM, OUTPUTS, SIGNAL, TIME

FORMAT = "windfall-bundle-1"
CAUSES = frozenset({DONE, EXIT, SIGNAL, OOM, TIME, OUTPUTS, INPUTS, NO_COMMAND})
"""How a task may end under the launcher."""
MAX_LINE = 200
_TASK = re.compile(
    rb"T (\d{1,16}) ([a-z-]{1,12}) (-?\d{1,10}) (\d{1,10}\.\d{3}) (\d{1,10}\.\d{3}) (\d{1,16})"
    rb" (\d{1,16}) (\d{1,16}) (\d{1,16}) (\d{1,16}) (\d{1,6})\n\Z"
)
_FILE = re.compile(rb"F ([0-7]{1,4}) (\d{1,16}) (\d{1,4})\n\Z")


class BadArchive(ValueError):
    """The archive is not one that the launcher wrote for this workunit."""


class LaunchTask(Struct):
    """One task as the launcher is told it."""

    task: int
    argv: list[str]
    env: dict[str, str]
    inputs: list[tuple[str, str, int]]
    """(name, name of the file in the slot, mode)."""
    outputs: list[str]
    stdin: bytes = b""
    wall_s: float = 0.0
    memory_bytes: int = 0
    output_cap_bytes: int = 1 << 20
    most_bytes: int = 100 << 20
    """Bytes of all its output files."""


class TaskEnd(Struct):
    """How one task of a workunit ended, and what it left."""

    task: int
    cause: str
    exit: int
    run_s: float
    cpu_s: float
    rss_bytes: int
    stdout: bytes = b""
    stderr: bytes = b""
    dropped: tuple[int, int] = (0, 0)
    files: list[tuple[str, int, int, int]] = []
    """(name, mode, offset in the archive, size)."""


def job_file(tasks: Iterable[LaunchTask]) -> bytes:
    tasks = list(tasks)
    parts: list[bytes | str | int | float] = [FORMAT, len(tasks)]
    for task in tasks:
        parts += [task.task, task.wall_s, task.memory_bytes, task.output_cap_bytes, task.most_bytes]
        parts += [len(task.argv), *task.argv, len(task.env), *(f"{name}={value}" for name, value in task.env.items())]
        parts += [len(task.inputs), *(value for file in task.inputs for value in file)]
        parts += [len(task.outputs), *task.outputs, task.stdin]
    return b"".join(map(_netstring, parts))


def _netstring(value: bytes | str | float) -> bytes:
    if isinstance(value, float):
        value = f"{value:.6f}"
    data = value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
    return b"%d:%b," % (len(data), data)


def read_archive(file: BinaryIO, size: int, tasks: range, most_output_bytes: int) -> list[TaskEnd]:
    """The ends of exactly these tasks, in their order. BadArchive if it is anything else.

    `most_output_bytes`: of standard output and of standard error of one task.
    """
    if _line(file) != b"WF1 %d\n" % len(tasks):
        raise BadArchive("it does not begin as an archive of this workunit does")
    ends: list[TaskEnd] = []
    for task in tasks:
        end, files = _head(_line(file), task, most_output_bytes)
        end.stdout, end.stderr = _exactly(file, len_out := files[0]), _exactly(file, files[1])
        assert len(end.stdout) == len_out
        names, folders = set[str](), set[str]()
        for _ in range(files[2]):
            end.files.append(_file(file, size, names, folders))
        ends.append(end)
    if _line(file) != b"E\n" or file.read(1):
        raise BadArchive("it does not end where an archive ends")
    return ends


def _head(line: bytes, task: int, most: int) -> tuple[TaskEnd, tuple[int, int, int]]:
    match = _TASK.match(line)
    if match is None or int(match[1]) != task or match[2].decode() not in CAUSES:
        raise BadArchive(f"there is no end of task {task} where it should be")
    n_out, dropped_out, n_err, dropped_err, n_files = (int(match[i]) for i in range(7, 12))
    run_s, cpu_s, rss = float(match[4]), float(match[5]), int(match[6])
    numbers = max(dropped_out, dropped_err, rss)
    if max(n_out, n_err) > most or n_files > MAX_OUTPUT_FILES or numbers > MAX_INTEGER or rss > MAX_MEMORY_BYTES:
        raise BadArchive(f"the end of task {task} is out of bounds")
    code = int(match[3])
    if max(run_s, cpu_s) > MAX_SECONDS or not -(1 << 31) <= code < 1 << 31:
        raise BadArchive(f"the end of task {task} is out of bounds")
    end = TaskEnd(task, match[2].decode(), code, run_s, cpu_s, rss, dropped=(dropped_out, dropped_err), files=[])
    return end, (n_out, n_err, n_files)


def _file(file: BinaryIO, size: int, names: set[str], folders: set[str]) -> tuple[str, int, int, int]:
    match = _FILE.match(_line(file))
    if match is None or int(match[3]) > MAX_PATH_CHARS:
        raise BadArchive("there is no file where one should be")
    raw, length = _exactly(file, int(match[3])), int(match[2])
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise BadArchive("the name of a file is not UTF-8") from None
    parts = name.split("/")
    above = {"/".join(parts[:count]) for count in range(1, len(parts))}
    # No task can have left `a` beside `a/b`, or the same file twice.
    is_odd = name in names or name in folders or not names.isdisjoint(above)
    if is_odd or not name.isprintable() or not all(map(_is_plain, parts)) or "\\" in name:
        raise BadArchive(f"a file is called {name!r}")
    names.add(name)
    folders |= above
    at = file.tell()
    if at + length > size:
        raise BadArchive("a file is longer than the archive")
    file.seek(at + length)
    return name, int(match[1], 8) & 0o777, at, length


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and len(part.encode()) <= 255


def are_announced(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Whether files are those that a task must leave: each fits one of the patterns, and none of these is without one.

    A pattern is a name, a folder with all below it, or has `*`, `?`, `[...]` and `**`, as for workers.
    """
    split = [[part for part in pattern.split("/") if part not in ("", ".")] for pattern in patterns]
    used: set[int] = set()
    for name in names:
        fits = {at for at, parts in enumerate(split) if _fits(name.split("/"), parts)}
        if not fits:
            return False
        used |= fits
    return len(used) == len(split)


def _fits(name: list[str], pattern: list[str]) -> bool:
    """Whether the folders and the name of a file fit the parts of a pattern; one of its folders may fit, too."""
    reached = {0}
    for folder in name:
        if len(pattern) in reached:
            return True
        reached = _skipped(reached, pattern)
        following = {at for at in reached if at < len(pattern) and pattern[at] == "**"}
        for at in reached:
            if at < len(pattern) and (pattern[at] == folder or _part(pattern[at]).match(folder)):
                following.add(at + 1)
        reached = following
    return len(pattern) in _skipped(reached, pattern)


def _skipped(reached: set[int], pattern: list[str]) -> set[int]:
    """Places in a pattern, and those behind a `**` that stands for no folder."""
    found = set(reached)
    for at in sorted(reached):
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            found.add(at)
    return found


@lru_cache(maxsize=1000)
def _part(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern.replace("[^", "[!")))


def _line(file: BinaryIO) -> bytes:
    return file.readline(MAX_LINE)


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise BadArchive("it ends early")
    return data
