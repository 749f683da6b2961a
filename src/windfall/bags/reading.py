"""Lists, CSV files, ranges and input files: read and checked whole, and cut into chunks. Touches files, reading only.

Work goes in blocks of a few megabytes, never line by line through a function: a million lines take about a second.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from windfall.bags.chunks import CHUNK_TASKS, MAX_TEXT_BYTES, Chunker, Parameters
from windfall.bags.remote_files import check_address, is_address, split_digest, split_named
from windfall.bags.shell import first_unbalanced
from windfall.bags.spec import InputFile, Source, check_range, check_relative
from windfall.bounds import MAX_TASKS
from windfall.errors import BadInput

STANDARD_INPUT = "standard input"
"""What messages call the lines of a pipe."""
_BLOCK_BYTES = 4 << 20
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)(?::(\d+))?\Z")
_TABLE = re.compile(r"\[job\]|\[\[task\]\]")
_BOM = b"\xef\xbb\xbf"


class Block(Struct, frozen=True):
    """Whole lines of a file as one text, and the number of the first of them."""

    text: str
    line: int


def open_file(path: Path) -> io.BufferedReader:
    """A file opened for reading; BadInput says in one line why it cannot be."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise BadInput(
            f"{path}: no such file", hint=f"looked in {path.absolute().parent}.  Nothing was started."
        ) from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory; a file is needed") from None
    except PermissionError:
        raise BadInput(f"{path} may not be read by you", hint=f"try: ls -l {path}") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


class Blocks:
    """The blocks of a stream, checked: UTF-8, no NUL bytes, no line beyond the limit. Hashes what passes."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self._stream = stream
        self._where = where
        self._sum = hashlib.sha256()
        self._at_start = True

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()

    def __iter__(self) -> Iterator[Block]:
        line, rest = 1, b""
        while piece := self._read():
            end = piece.rfind(b"\n") + 1
            if end:
                whole, rest = rest + piece[:end], piece[end:]
                yield Block(self._checked(whole, line), line)
                line += whole.count(b"\n")
            else:
                rest += piece
            if len(rest) > MAX_TEXT_BYTES:
                raise self._too_long(line, len(rest), cut_off=True)
        if rest:
            yield Block(self._checked(rest, line), line)

    def _read(self) -> bytes:
        try:
            piece = self._stream.read(_BLOCK_BYTES)
        except OSError as error:
            raise BadInput(f"{self._where} cannot be read: {error.strerror}") from error
        if self._at_start:
            piece, self._at_start = piece.removeprefix(_BOM), False
        self._sum.update(piece)
        return piece

    def _checked(self, block: bytes, line: int) -> str:
        nul = block.find(b"\0")
        if nul >= 0:
            at = line + block.count(b"\n", 0, nul)
            raise BadInput(
                f"{self._where} line {at} contains a NUL byte, which no argument can hold", hint="is it a text file?"
            )
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            at = line + block.count(b"\n", 0, error.start)
            bad = block[error.start]
            raise BadInput(
                f"{self._where} line {at} is not UTF-8 (byte 0x{bad:02x})",
                hint=f"convert it, as in: {self._converted()}",
            ) from None
        self._refuse_long(block, line)
        return text.replace("\r\n", "\n") if "\r" in text else text

    def _converted(self) -> str:
        if self._where == STANDARD_INPUT:
            return "... | iconv -f latin1 -t utf-8 | windfall run --stdin -- COMMAND"
        return f"iconv -f latin1 -t utf-8 {shlex.quote(self._where)} > utf8.txt"

    def _refuse_long(self, block: bytes, line: int) -> None:
        """Refuse a line above the limit: looks only at the last line break within each stretch of that length."""
        start = 0
        while len(block) - start > MAX_TEXT_BYTES:
            end = block.rfind(b"\n", start, start + MAX_TEXT_BYTES + 1)
            if end < 0:
                length = len(block[start:].partition(b"\n")[0])
                raise self._too_long(line + block.count(b"\n", 0, start), length)
            start = end + 1

    def _too_long(self, line: int, length: int, cut_off: bool = False) -> BadInput:
        return BadInput(
            f"{self._where} line {line} has {length:,} bytes{' or more' if cut_off else ''}; "
            f"the limit is {MAX_TEXT_BYTES:,}",
            hint="put long data into a file and send it along: --input FILE",
        )


def read_lines(stream: BinaryIO, where: str, *, commands: bool) -> Parameters:
    """One task per line that is not blank. Where lines are commands, those that begin with # are comments."""
    blocks = Blocks(stream, where)
    chunker = Chunker("lines")
    for block in blocks:
        rows = block.text.split("\n")
        if commands:
            kept = [row for row in map(str.strip, rows) if row and row[0] != "#"]
            if not chunker.count:
                _refuse_tables(kept[:1], where)
            _refuse_unbalanced(block, kept, where)
        else:
            kept = [row for row in rows if row and not row.isspace()]
        chunker.add(kept, len(block.text))
    return _parameters(Source("lines"), chunker, blocks, where)


def _parameters(source: Source, chunker: Chunker, blocks: Blocks, where: str) -> Parameters:
    chunks = chunker.finish()
    if not chunks:
        raise BadInput(f"{where} holds no tasks", hint="one task per line is expected.  Nothing was started.")
    if chunker.count > MAX_TASKS:
        raise BadInput(f"{where} holds {chunker.count:,} tasks; the limit is {MAX_TASKS:,}", hint="submit it in parts")
    return Parameters(source, chunker.count, chunks, blocks.digest, where)


def _refuse_tables(first: list[str], where: str) -> None:
    """Refuse a job or workflow file that would be run line by line."""
    if first and _TABLE.fullmatch(first[0]):
        raise BadInput(
            f"{where} begins with {first[0]}: it is a job or workflow file, not a list of commands",
            hint="name it with the ending .toml, or -f FILE or --workflow FILE.  Nothing was started.",
        )


def _refuse_unbalanced(block: Block, kept: list[str], where: str) -> None:
    bad = first_unbalanced(kept, block.text)
    if bad is not None:
        line = block.line + [row.strip() for row in block.text.split("\n")].index(kept[bad])
        raise BadInput(f"{where} line {line}: a quote or backslash is not closed in: {kept[bad][:80]}")


def read_csv(stream: BinaryIO, where: str) -> Parameters:
    """One task per row behind the header. The separator is tab, comma or semicolon: the first that the header has."""
    blocks = Blocks(stream, where)
    lines = (line for block in blocks for line in io.StringIO(block.text, newline="\n"))
    header = next(lines, "")
    separator = next((s for s in "\t,;" if s in header), ",")
    csv.field_size_limit(MAX_TEXT_BYTES)
    heads = csv.reader([header], delimiter=separator, skipinitialspace=True)
    try:
        columns = _columns(next(heads, []), where)
    except csv.Error as error:
        raise BadInput(f"{where} line 1: {error}") from None
    rows = csv.reader(lines, delimiter=separator, strict=True)
    chunker = Chunker("rows")
    line = 2
    while run := _run(rows, where):
        if set(map(len, run)) != {len(columns)}:
            _refuse_widths(run, columns, line, where)
            run_kept = [row for row in run if row]
        else:
            run_kept = run
        line = rows.line_num + 2
        chunker.add(run_kept, sum(map(len, map("".join, run_kept))))
    return _parameters(Source("rows", columns=columns), chunker, blocks, where)


def _run(rows: Iterator[list[str]], where: str) -> list[list[str]]:
    try:
        return list(islice(rows, CHUNK_TASKS))
    except csv.Error as error:
        raise BadInput(f"{where} line {rows.line_num + 1}: {error}") from None  # type: ignore[attr-defined]


def _columns(names: list[str], where: str) -> list[str]:
    columns = [name.strip() for name in names]
    if not any(columns):
        raise BadInput(f"{where} has no header", hint="its first line must name the columns, as in: x,seed")
    for number, name in enumerate(columns, 1):
        if not name:
            raise BadInput(f"{where} line 1: column {number} has no name")
        if columns.count(name) > 1:
            raise BadInput(f"{where} line 1: two columns are named '{name}'", hint="rename one of them")
        if any(brace in name for brace in "{}"):
            raise BadInput(f"{where} line 1: column '{name}' has a brace in its name; placeholders could not name it")
    return columns


def _refuse_widths(run: list[list[str]], columns: list[str], line: int, where: str) -> None:
    """Say which row is too short or too long; blank lines are none."""
    for row in run:
        if row and len(row) != len(columns):
            values = "1 value" if len(row) == 1 else f"{len(row)} values"
            raise BadInput(
                f"{where} line {line} has {values} for {len(columns)} columns ({', '.join(columns[:8])})",
                hint="quote a value that holds the separator.  Nothing was started.",
            )
        line += 1 + sum(value.count("\n") for value in row)


def read_range(text: str, where: str = "--range") -> Parameters:
    """`A-B` or `A-B:step`, both ends included."""
    match = _RANGE.match(text.strip())
    if not match:
        why = "a range begins at 0 or more" if text.strip().startswith("-") else "a range is written A-B or A-B:STEP"
        raise BadInput(f"{where}: '{text}' is no range; {why}", hint="as in: 1-1000 or 0-100:5")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    check_range(first, last, step, where)
    source = Source("range", first=first, last=last, step=step)
    return Parameters(source, source.range_count, digest=f"range {first}-{last}:{step}", where=where)


def place_input(text: str, base: Path) -> str:
    """`PATH` or `NAME=PATH` as `NAME=PATH`, the path seen from `base`. A file keeps its relative path as its name.

    Addresses (`s3://bucket/file`, `NAME=https://...`) stay as they are.
    """
    if (remote := split_named(text)) is not None:
        return f"{remote[0]}={remote[1]}"
    name, equals, path = text.partition("=")
    if not equals:
        path = text
        name = os.path.normpath(text)
        if name.startswith(("/", "..")) or name == ".":
            name = Path(text).resolve().name
    return f"{name}={base / path}"


def read_inputs(placed: list[str], where: str) -> tuple[list[InputFile], dict[str, Path]]:
    """Files to be sent along, from `NAME=PATH`, directories with all that is in them; and the path of each hash."""
    files: list[InputFile] = []
    found: dict[str, Path] = {}
    for text in placed:
        name, _, path = text.partition("=")
        if is_address(path):
            address, digest = split_digest(path, f"{where}: input")
            check_address(address, f"{where}: input")
            check_relative(name, f"{where}: input")
            files.append(InputFile(name, digest, 0, url=address))
            continue
        for part, file in _files_below(name, Path(path)):
            check_relative(part, f"{where}: input")
            files.append(hash_file(file, part))
            found[files[-1].sha256] = file
    return files, found


def _files_below(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield name, path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield f"{name}/{file.relative_to(path).as_posix()}", file


def hash_file(path: Path, name: str = "") -> InputFile:
    """A file as an input: its content by hash."""
    with open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        status = os.fstat(file.fileno())
    return InputFile(name or path.name, digest, status.st_size, status.st_mode & 0o777)


def json_lines(stream: BinaryIO, where: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a .jsonl that are not blank, with their numbers."""
    for block in Blocks(stream, where):
        for offset, row in enumerate(block.text.split("\n")):
            if row.strip():
                yield block.line + offset, row.encode()
