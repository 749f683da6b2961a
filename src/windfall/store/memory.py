"""A store that forgets everything when the process ends: for tests and simulations. Touches nothing."""

from __future__ import annotations

import io
import tempfile
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import BinaryIO

from windfall.store.checks import (
    check_batch,
    check_epoch,
    check_numbers,
    check_reach,
    check_sha256,
    check_tasks,
    check_texts,
    checked,
    conflict,
    crc,
    dropped,
)
from windfall.store.contract import (
    Batch,
    BlobSource,
    ChunkHead,
    ChunkRow,
    Holder,
    Loaded,
    OutputRow,
    Record,
    Snapshot,
    TokenRow,
)
from windfall.store.formats import FORMAT, FormatSince
from windfall.store.sqlite.files import Hashed


class MemoryStore:
    """The contract without a disk. A lock keeps batches whole for readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[int, Record] = {}  # in the order of their numbers
        self._sums: dict[int, int] = {}
        self._snapshots: list[Snapshot] = []
        self._jobs: dict[int, bytes] = {}
        self._chunks: dict[int, dict[int, ChunkRow]] = {}
        self._outputs: dict[int, dict[tuple[int, int], bytes]] = {}
        self._blobs: dict[str, bytes] = {}
        self._tokens: dict[str, TokenRow] = {}
        self._own: dict[str, str] = {}
        self._writes = {"epoch": 1, "beats": 0}
        self._url = [""]
        self.epoch = 1

    def taken_over(self) -> MemoryStore:
        """The same memory, opened by another server: this one is fenced."""
        other = copy(self)  # shares everything that is kept
        with self._lock:
            self._writes.update(epoch=self._writes["epoch"] + 1, beats=0)
            other.epoch = self._writes["epoch"]
        return other

    # The log

    def append(self, batch: Batch) -> None:
        check_batch(batch)
        check_epoch(self.epoch, self._writes["epoch"])
        new = [Record(*row) for row in batch.records]
        sums = {record.seq: crc(record.seq, record.data) for record in new}
        for record in new:
            if self._records.get(record.seq, record) != record:
                raise conflict(record)
        with self._lock:
            self._add(batch, new, sums)

    def _add(self, batch: Batch, new: list[Record], sums: dict[int, int]) -> None:
        for job, spec in batch.jobs:
            self._jobs[job] = spec
        for row in batch.chunks:
            self._chunks.setdefault(row[0], {})[row[1]] = ChunkRow(*row)
        for job, task, attempt, data in batch.outputs:
            self._outputs.setdefault(job, {})[task, attempt] = data
        for job in batch.forgotten:
            for kept in (self._jobs, self._chunks, self._outputs):
                kept.pop(job, None)
        self._records.update((record.seq, record) for record in new)
        self._sums.update(sums)

    def load(self) -> Loaded:
        warnings: list[str] = []
        snapshot = self._snapshots[-1] if self._snapshots else None
        after = snapshot.seq if snapshot else 0
        last = self.last_seq()
        if last > after and crc(last, self._records[last].data) != self._sums[last]:
            del self._records[last]
            warnings.append(dropped(last))
        rows = [(r.seq, self._sums[r.seq], r.data) for r in self._records.values() if r.seq > after]
        repair = "the state is in memory: start anew (record {seq})"
        check_reach(snapshot, self.last_seq(), repair.format(seq=after))
        return Loaded(snapshot, checked(rows, after, repair), warnings, [FormatSince(1, FORMAT)])

    def save_snapshot(self, seq: int, data: bytes | memoryview, hurry: threading.Event | None = None) -> None:
        check_epoch(self.epoch, self._writes["epoch"])
        others = [s for s in self._snapshots if s.seq != seq]
        self._snapshots[:] = sorted([*others, Snapshot(seq, bytes(data))])[-2:]

    def last_seq(self) -> int:
        with self._lock:
            return next(reversed(self._records), 0)

    def records(
        self, after_seq: int = 0, limit: int = 1000, job: int | None = None, kinds: Collection[str] | None = None,
        until_seq: int | None = None,
    ) -> list[Record]:  # fmt: skip
        check_numbers(seq=after_seq, until=until_seq, limit=limit, job=job)
        with self._lock:
            found = list(self._records.values())
        found = found[bisect_right(found, after_seq, key=lambda r: r.seq) :]
        if until_seq is not None:
            found = found[: bisect_right(found, until_seq, key=lambda r: r.seq)]
        return [r for r in found if (job is None or r.job == job > 0) and (kinds is None or r.kind in kinds)][:limit]

    def records_about(
        self, job: int, after_seq: int, until_seq: int, kinds: Collection[str], limit: int
    ) -> list[Record]:
        check_numbers(seq=after_seq, until=until_seq, limit=limit, job=job)
        with self._lock:
            found = list(self._records.values())
        found = found[bisect_right(found, after_seq, key=lambda r: r.seq) :]
        found = found[: bisect_right(found, until_seq, key=lambda r: r.seq)]
        return [r for r in found if r.job in (None, 0, job, -job) and r.kind in kinds][:limit]

    def prune(self, before_seq: int, kinds: Collection[str], from_seq: int = 0) -> int:
        limit = min(before_seq, self._snapshots[0].seq + 1 if len(self._snapshots) == 2 else 0)
        doomed = [r.seq for r in self._records.values() if from_seq <= r.seq < limit and r.kind in kinds]
        for seq in doomed:
            del self._records[seq], self._sums[seq]
        return len(doomed)

    def pack(self, until_seq: int) -> int:
        return 0

    def log_before(self, before_t: float | None, most_bytes: int | None) -> int:
        found, size = 0, 0
        for record in reversed(list(self._records.values())):
            size += len(record.data)
            if (before_t is not None and record.t < before_t) or (most_bytes is not None and size > most_bytes):
                found = max(found, record.seq)
        return found

    def cut_log(self, until_seq: int) -> int:
        limit = min(until_seq, self._snapshots[0].seq if len(self._snapshots) == 2 else 0)
        doomed = [r.seq for r in self._records.values() if r.seq <= limit]
        for seq in doomed:
            del self._records[seq], self._sums[seq]
        return len(doomed)

    def job_bytes(self) -> dict[int, int]:
        with self._lock:
            sizes = Counter({job: len(spec) for job, spec in self._jobs.items()})
            for job, chunks in self._chunks.items():
                sizes[job] += sum(len(row.data) for row in chunks.values())
            for job, outputs in self._outputs.items():
                sizes[job] += sum(len(data) for data in outputs.values())
        return dict(sizes)

    # Jobs, their tasks and their results

    def job_spec(self, job: int) -> bytes | None:
        check_numbers(job=job)
        return self._jobs.get(job)

    def chunks(self, job: int) -> list[ChunkHead]:
        check_numbers(job=job)
        with self._lock:
            return [ChunkHead(*row[1:5]) for _, row in sorted(self._chunks.get(job, {}).items())]

    def chunk(self, job: int, first: int) -> bytes:
        check_numbers(job=job, task=first)
        return self._chunks.get(job, {})[first].data

    def output(self, job: int, task: int, attempt: int) -> bytes | None:
        check_numbers(job=job, task=task, attempt=attempt)
        return self._outputs.get(job, {}).get((task, attempt))

    def outputs(
        self,
        job: int,
        tasks: Sequence[int] | None = None,
        after: tuple[int, int] | None = None,
        limit: int = 1000,
    ) -> list[OutputRow]:
        start = after or (-1, -1)
        check_numbers(job=job, task=start[0], attempt=start[1], limit=limit)
        check_tasks(tasks)
        wanted = None if tasks is None else set(tasks)
        with self._lock:
            found = sorted(self._outputs.get(job, {}).items())
        rows = [
            OutputRow(job, *key, data) for key, data in found if key > start and (wanted is None or key[0] in wanted)
        ]
        return rows[:limit]

    # Blobs

    def blob_size(self, sha256: str) -> int | None:
        content = self._blobs.get(check_sha256(sha256))
        return None if content is None else len(content)

    def put_blob(self, sha256: str, source: BlobSource) -> int:
        self._blobs[sha256] = b"".join(Hashed(source).verified(check_sha256(sha256)))
        return len(self._blobs[sha256])

    def spool(self) -> Path:
        return Path(tempfile.gettempdir())

    def adopt_blob(self, sha256: str, path: Path) -> int:
        return self.put_blob(sha256, path)

    def open_blob(self, sha256: str) -> BinaryIO:
        return io.BytesIO(self._blobs[check_sha256(sha256)])

    def blobs(self) -> Iterator[tuple[str, int]]:
        yield from [(sha256, len(content)) for sha256, content in self._blobs.items()]

    def remove_blob(self, sha256: str) -> None:
        self._blobs.pop(check_sha256(sha256), None)

    def shrink(self) -> bool:
        return False

    # Who writes

    def beat(self, url: str) -> None:
        check_epoch(self.epoch, self._writes["epoch"])
        self._writes["beats"] += 1
        self._url[0] = url

    def holder(self) -> Holder:
        return Holder(self._writes["epoch"], self._writes["beats"], self._url[0], "this process")

    # Small texts of the state itself

    def remembered(self, name: str) -> str | None:
        return self._own.get(name)

    def remember(self, name: str, text: str) -> None:
        check_texts(name=name, text=text)
        self._own[name] = text

    # Tokens

    def add_token(self, id: str, hash: str, role: str, name: str, created_s: float) -> None:
        check_texts(id=id, hash=hash, role=role, name=name)
        self._tokens[id] = TokenRow(id, hash, role, name, created_s)

    def tokens(self) -> list[TokenRow]:
        return sorted(self._tokens.values(), key=lambda token: (token.created_s, token.id))

    def remove_token(self, id: str) -> bool:
        return self._tokens.pop(id, None) is not None

    def close(self) -> None:
        """Nothing is held."""
