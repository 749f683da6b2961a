"""Parameters of tasks in chunks of a few thousand: encoded for the store and the wire, decoded when work is sent. Pure.

lines  UTF-8, one line per task, zlib          calls  a table of ends (uint32), then the pickles as they are
rows   JSON [[text per column]...], zlib       tasks  JSON [TaskRow...], zlib
A range needs no chunk.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct

from windfall.bags.shell import first_unbalanced
from windfall.bags.spec import (
    JobSpec,
    Source,
    TaskRow,
    bad_field,
    check_files,
    check_needs,
    check_relative,
    check_texts,
)
from windfall.bounds import MAX_DECOMPRESSED_BYTES
from windfall.errors import BadInput

CHUNK_TASKS = 8192
CHUNK_BYTES = 4 << 20
"""A chunk ends with the task that takes it beyond this, so that decoding one never costs much memory."""
MAX_TEXT_BYTES = 1 << 20
"""The longest line, row or task. The kernel takes no longer argument anyway (128 kB each on Linux)."""
MAX_CALL_BYTES = 64 << 20
_LEVEL = 1


class Chunk(Struct, frozen=True):
    """Tasks `first` to `first + count - 1`, all of one class."""

    first: int
    count: int
    klass: int
    codec: str
    data: bytes


def encode_lines(lines: Sequence[str]) -> bytes:
    return zlib.compress("\n".join(lines).encode(), _LEVEL)


_json = msgspec.json.Encoder()


def encode_rows(rows: Sequence[Sequence[str]]) -> bytes:
    return zlib.compress(_json.encode(rows), _LEVEL)


def encode_tasks(tasks: Sequence[TaskRow]) -> bytes:
    return zlib.compress(_json.encode(tasks), _LEVEL)


def encode_calls(payloads: Sequence[bytes]) -> bytes:
    ends = struct.pack(f"<{len(payloads)}I", *accumulate(map(len, payloads)))
    return b"".join([ends, *payloads])


class Calls(Sequence[bytes]):
    """The pickles of a chunk, cut out when asked for."""

    def __init__(self, data: bytes, count: int) -> None:
        table = 4 * count
        if len(data) < table:
            raise BadInput(f"a chunk of {count} calls is cut short")
        self._bounds: list[int] = [table, *(table + end for end in struct.unpack_from(f"<{count}I", data))]
        self._data = data
        if self._bounds[-1] != len(data) or self._bounds != sorted(self._bounds):
            raise BadInput(f"the table of a chunk of {count} calls does not fit its {len(data)} bytes")

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]
        return self._data[self._bounds[index] : self._bounds[index + 1]]


_rows = msgspec.json.Decoder(list[list[str]])
_tasks = msgspec.json.Decoder(list[TaskRow])


def decode(
    codec: str, data: bytes, count: int, most_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Sequence[str] | Sequence[list[str]] | Sequence[TaskRow] | Calls:
    """The parameters of a chunk's tasks. BadInput if it is not what it says it is."""
    if codec == "calls":
        return Calls(data, count)
    text = decompress(data, most_bytes, "a chunk")
    try:
        if codec == "lines":
            decoded: Sequence[object] = text.decode().split("\n")
        elif codec == "rows":
            decoded = _rows.decode(text)
        elif codec == "tasks":
            decoded = _tasks.decode(text)
        else:
            raise BadInput(f"a chunk cannot be of kind '{codec}'")
    except msgspec.ValidationError as error:
        raise bad_field(error, f"a chunk of {codec}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"a chunk of {codec} cannot be decoded: {error}") from error
    if len(decoded) != count:
        raise BadInput(f"a chunk of {codec} says it has {count} tasks, and has {len(decoded)}")
    return decoded  # type: ignore[return-value]


class TooLong(BadInput):
    """A packed part becomes more than is allowed."""

    code = "too-large"


def decompress(data: bytes, most_bytes: int, what: str) -> bytes:
    """Bounded, so that a small part cannot fill the memory."""
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(data, most_bytes)
    except zlib.error as error:
        raise BadInput(f"{what} cannot be decompressed: {error}") from error
    if stream.unconsumed_tail or (not stream.eof and len(text) >= most_bytes):
        raise TooLong(f"{what} is longer than {most_bytes:,} bytes", hint="send fewer tasks in one part")
    if not stream.eof:
        raise BadInput(f"{what} is cut short")
    return text


class Parameters(Struct):
    """A source, read: what it is, how many tasks, their chunks, a hash of its content, its name in errors."""

    source: Source
    count: int
    chunks: list[Chunk] = []
    digest: str = ""
    where: str = ""


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "lines": encode_lines,
    "rows": encode_rows,
    "calls": encode_calls,
    "tasks": encode_tasks,
}


class Chunker:
    """Collects the parameters of tasks, in order, into compact chunks; holds little at a time."""

    def __init__(self, codec: str, first: int = 0) -> None:
        self._codec = codec
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._klass = 0
        self._next = first
        self.chunks: list[Chunk] = []

    def add(self, items: Sequence[Any], size_bytes: int, klass: int = 0) -> None:
        """Add tasks of one class, of about `size_bytes` bytes together."""
        if klass != self._klass:
            self._flush(everything=True)
            self._klass = klass
        self._waiting.extend(items)
        self._waiting_bytes += size_bytes
        self._flush(everything=self._waiting_bytes >= CHUNK_BYTES)

    @property
    def count(self) -> int:
        """How many tasks the finished chunks hold."""
        return sum(chunk.count for chunk in self.chunks)

    def finish(self) -> list[Chunk]:
        """All chunks, the last one too."""
        self._flush(everything=True)
        return self.chunks

    def _flush(self, everything: bool) -> None:
        done = 0
        while len(self._waiting) - done >= CHUNK_TASKS or (everything and done < len(self._waiting)):
            run = self._waiting[done : done + CHUNK_TASKS]
            self.chunks.append(Chunk(self._next, len(run), self._klass, self._codec, _ENCODERS[self._codec](run)))
            self._next += len(run)
            done += len(run)
        if done:
            del self._waiting[:done]
            self._waiting_bytes = (
                0 if everything else self._waiting_bytes * len(self._waiting) // (done + len(self._waiting))
            )


def digest(chunks: Iterable[Chunk], tasks: int) -> str:
    """A hash of the parameters of the first tasks, however they were cut into chunks. For lines and rows."""
    total = hashlib.sha256()
    for chunk in chunks:
        if chunk.first >= tasks:
            break
        add_to_digest(total, _texts(chunk)[: tasks - chunk.first])
    return total.hexdigest()


def _texts(chunk: Chunk) -> list[Any]:
    return list(decode(chunk.codec, chunk.data, chunk.count))


def add_to_digest(total: Any, parameters: Sequence[Any]) -> None:
    """Add lines or rows to a hash (of hashlib)."""
    texts = (row if isinstance(row, str) else "\0".join(row) for row in parameters)
    total.update("".join(f"{text}\0\n" for text in texts).encode())


def behind(chunks: Iterable[Chunk], tasks: int) -> list[Chunk]:
    """Chunks of what stands behind the first tasks. For lines and rows, which are all of one class."""
    made: list[Chunk] = []
    for chunk in chunks:
        if chunk.first + chunk.count > tasks:
            rows = _texts(chunk)[max(0, tasks - chunk.first) :]
            first = max(tasks, chunk.first)
            made.append(Chunk(first, len(rows), chunk.klass, chunk.codec, _ENCODERS[chunk.codec](rows)))
    return made


def check_chunk(spec: JobSpec, chunk: Chunk, most_bytes: int = MAX_DECOMPRESSED_BYTES) -> None:
    """Refuse a chunk that does not fit its job. For chunks that come over the wire: readers have checked their own."""
    where = f"tasks {chunk.first + 1} to {chunk.first + chunk.count}"
    if chunk.codec != spec.source.kind:
        raise BadInput(f"{where}: a chunk of '{chunk.codec}' in a bag of '{spec.source.kind}'")
    if not 1 <= chunk.count <= CHUNK_TASKS or chunk.first < 0:
        raise BadInput(f"{where}: a chunk has 1 to {CHUNK_TASKS} tasks")
    if not 0 <= chunk.klass <= len(spec.classes):
        raise BadInput(f"{where}: the bag has no task class {chunk.klass}")
    check_needs(spec.task_classes()[chunk.klass], where)
    decoded = decode(chunk.codec, chunk.data, chunk.count, most_bytes)
    if chunk.codec == "lines":
        _check_lines(spec, decoded, where)  # type: ignore[arg-type]
    elif chunk.codec == "rows":
        columns = len(spec.source.columns)
        if set(map(len, decoded)) != {columns} or any("\0" in text for row in decoded for text in row):  # type: ignore[arg-type, operator, union-attr]
            raise BadInput(f"{where}: each row must have {columns} texts without NUL bytes")
    elif chunk.codec == "tasks":
        _check_tasks(spec, decoded, where)  # type: ignore[arg-type]


def _check_tasks(spec: JobSpec, rows: Sequence[TaskRow], where: str) -> None:
    files = {file.name for file in spec.files}
    for row in rows:
        if any("\0" in word for word in row.argv):
            raise BadInput(f"{where}: a command contains a NUL byte")
        if row.env:
            check_texts([*row.env, *row.env.values()], f"{where}: env")
        if row.inputs or row.outputs:
            check_files(row.inputs or [], row.outputs or [], where)
        for name, maker in row.takes or ():
            check_relative(name, f"{where}: input")
            if maker < 0 and name not in files:
                raise BadInput(f"{where}: '{row.name}' takes '{name}', which is not among the workflow's files")


def _check_lines(spec: JobSpec, lines: Sequence[str], where: str) -> None:
    text = "\n".join(lines)
    if "\0" in text:
        raise BadInput(f"{where}: a line contains a NUL byte")
    if spec.command:
        return
    if not all(map(str.strip, lines)):
        raise BadInput(f"{where}: an empty command")
    unbalanced = first_unbalanced(lines, text)
    if unbalanced is not None:
        raise BadInput(f"{where}: a quote is not closed in: {lines[unbalanced][:80]}")
