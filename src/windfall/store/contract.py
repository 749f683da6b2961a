"""What every store keeps and promises; the suite that holds all of them to it is tests/contract/test_store.py. Pure.

Promises:
- `append` is one transaction: after it returns all of the batch is durable, after it raises nothing of it is kept.
- The very same batch may be appended again, after an error or after a success: it is kept once.
- Records are numbered from 1 without gaps. Reading checks each one (crc32 over its number and its bytes).
- One process at a time opens a store; the next one is refused and told who holds it.
- Who opens a store begins a new epoch. Every transaction of an earlier epoch fails (StoreFenced) and keeps nothing, so
  that a server that was taken for dead and goes on can do no harm.
- `append` and `prune` come from one thread at a time, and so does `save_snapshot`, which may be another thread;
  everything that reads may be called from any thread at any time and never waits for the writer.
- Every failure of the store is a `StoreError`, never an exception of a database's own. Its `retryable` says whether the
  same call can succeed later (disk full, locked, connection lost) or never will (damaged, in conflict, read-only, ...).
- A store knows which formats its records and snapshots are in (windfall.store.formats). Older ones are read, a newer
  one is refused.
- Where a state was kept, an empty database is damaged and never a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import BinaryIO, NamedTuple, Protocol

from msgspec import Struct, field

from windfall.errors import BadInput, Kind, WindfallError

SCHEMA_VERSION = 4
"""Of the tables: which there are, with which columns. 2: SQLite has old records in packs. 3: PostgreSQL has snapshots
in parts. 4: PostgreSQL has old records in packs, too."""


OWN = "own "
"""Keys of the table `meta` begin with this for texts that are remembered."""
EPOCH, BEAT = "epoch", "beat"
"""Keys of the table `meta` for the server that writes. They stay with the store, and are not copied with a state."""
BLOBS_AT = "blobs"
"""The name of the remembered text that says which object store holds the blobs. It stays with the store, too."""


class StoreError(WindfallError):
    """The store could not do it. Nothing was half done; if `retryable`, the same call may succeed later."""

    kind = Kind.OURS
    code = "store-error"
    retryable = True
    exit_code = 2


class StoreFull(StoreError):
    """No space left. The store stays usable: append the very same batch again when there is space."""

    code = "store-full"


class StoreFailed(StoreError):
    """The same call will never succeed: the operator has to act first."""

    code = "store-failed"
    retryable = False


class StoreCorrupt(StoreFailed):
    """What was written cannot be read back. Its content cannot be guessed, so the server stops."""

    code = "store-corrupt"


class StoreConflict(StoreFailed):
    """The log holds another record under this number: another server has written, or we are wrong."""

    code = "store-conflict"


class StoreFenced(StoreFailed):
    """Another server has taken the state over: this one may write nothing more. None of the batch was kept."""

    code = "state-taken-over"


class StoreReadOnly(StoreFailed):
    """The store may be read at most: a read-only mount, a missing right."""

    code = "store-read-only"


class BadValue(StoreFailed, BadInput):
    """A value that no store can hold, such as an integer beyond 64 bits. Names the value."""

    kind = Kind.USER
    code = "store-value"


class StoreInUse(StoreFailed, BadInput):
    """Another server holds the store."""

    kind = Kind.USER
    code = "state-in-use"


class StoreNewer(StoreFailed, BadInput):
    """A newer Windfall wrote it."""

    kind = Kind.USER
    code = "newer-state"


class Record(NamedTuple):
    """One entry of the log. `t`, `job` and `kind` are for those who look for it; the engine reads `data` alone.

    `job` is that which it is about, or as in `records_about`; only numbers above 0 are found by `records(job=...)`.
    """

    seq: int
    t: float
    job: int | None
    kind: str
    data: bytes


class ChunkRow(NamedTuple):
    """Up to a few thousand tasks of a job, encoded (windfall.bags.chunks), all of one class."""

    job: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    klass: int
    codec: str
    data: bytes


class ChunkHead(NamedTuple):
    """A chunk without its data: what a job's index of chunks is made of."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    klass: int
    codec: str


class OutputRow(NamedTuple):
    """What an attempt left behind (opaque here): its standard output and error, its value."""

    job: int
    task: int
    attempt: int
    data: bytes


class JobRow(NamedTuple):
    """A job's specification, encoded. A later row for the same job replaces the earlier one."""

    job: int
    spec: bytes


class TokenRow(NamedTuple):
    """A token by its hash; the token itself is never kept."""

    id: str
    hash: str
    role: str
    name: str
    created_s: float


class Snapshot(NamedTuple):
    """The state of the engine after record `seq`."""

    seq: int
    data: bytes


class Holder(NamedTuple):
    """Who writes to a store: the epoch, signs of life that were given in it, where the server is, who has the lock."""

    epoch: int
    beats: int
    url: str
    process: str
    """Empty if nobody holds the lock."""


class Batch(Struct):
    """What is committed together. Rows may be the tuples above or plain ones in the same order."""

    records: list[Record] = field(default_factory=list)
    chunks: list[ChunkRow] = field(default_factory=list)
    outputs: list[OutputRow] = field(default_factory=list)
    jobs: list[JobRow] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    """Jobs of which nothing but records is kept: their specifications, chunks and outputs go, those of this batch too.
    """


class Loaded(Struct):
    """What a restart begins with. `records` are those behind the snapshot, checked while they are read."""

    snapshot: Snapshot | None
    records: Iterator[tuple[int, bytes]]
    warnings: list[str]
    formats: list[tuple[int, int]]
    """(seq, format): records from `seq` on, and snapshots after them, are in this format (windfall.store.formats)."""


BlobSource = bytes | Path | Iterable[bytes]


class Store(Protocol):
    """The event log and everything too large to be in it."""

    # The log

    def append(self, batch: Batch) -> None:
        """Commit a batch. StoreError: nothing of it was kept; append it again later if the error is `retryable`."""
        ...

    def load(self) -> Loaded:
        """The newest readable snapshot and the records behind it. A broken last record is dropped, with a warning."""
        ...

    def save_snapshot(self, seq: int, data: bytes | memoryview, hurry: Event | None = None) -> None:
        """Keep the state after record `seq` (already appended). The two newest snapshots are kept.

        `hurry`: it is written at a rate that leaves the disk to commits until this is set; None: at once.
        """
        ...

    def last_seq(self) -> int:
        """The number of the newest record, or 0."""
        ...

    def records(
        self, after_seq: int = 0, limit: int = 1000, job: int | None = None, kinds: Collection[str] | None = None,
        until_seq: int | None = None,
    ) -> list[Record]:  # fmt: skip
        """Up to `limit` records behind `after_seq`, up to `until_seq`, in order; `job`, `kinds`: only of these."""
        ...

    def records_about(
        self, job: int, after_seq: int, until_seq: int, kinds: Collection[str], limit: int
    ) -> list[Record]:
        """Up to `limit` records of these kinds behind `after_seq`, up to `until_seq`, that may mention a job.

        Those of job N and -N (it mentions N alone), 0 (several jobs) and None. Reads no data of others.
        """
        ...

    def prune(self, before_seq: int, kinds: Collection[str], from_seq: int = 0) -> int:
        """Drop records of these kinds from `from_seq` to below `before_seq`, but none that a kept snapshot may need.

        Returns how many. It reads every record in between: a long log is pruned in parts.
        """
        ...

    def pack(self, until_seq: int) -> int:
        """Keep some hundred of the oldest records up to this one in less space, but none that a kept snapshot may need;
        how many. They are read as before. 0: there are no more, or this store does not pack (memory)."""
        ...

    def log_before(self, before_t: float | None, most_bytes: int | None) -> int:
        """The newest record that is older than `before_t`, or behind which the log has `most_bytes`; 0 if none is."""
        ...

    def cut_log(self, until_seq: int) -> int:
        """Drop some thousand records from the beginning of the log up to this one, but none that a kept snapshot may
        need; how many. What is left is a log without its beginning."""
        ...

    def job_bytes(self) -> dict[int, int]:
        """Bytes of specification, tasks and outputs, by job."""
        ...

    def shrink(self) -> bool:
        """Give some unused space back to the system, within milliseconds; False if there is no more to give."""
        ...

    # Jobs, their tasks and their results

    def job_spec(self, job: int) -> bytes | None: ...

    def chunks(self, job: int) -> list[ChunkHead]:
        """The job's chunks in the order of their tasks."""
        ...

    def chunk(self, job: int, first: int) -> bytes:
        """The data of the chunk that begins with task `first`; KeyError if there is none."""
        ...

    def output(self, job: int, task: int, attempt: int) -> bytes | None: ...

    def outputs(
        self,
        job: int,
        tasks: Sequence[int] | None = None,
        after: tuple[int, int] | None = None,
        limit: int = 1000,
    ) -> list[OutputRow]:
        """Up to `limit` outputs by (task, attempt), of these tasks or of all, behind the pair `after`."""
        ...

    # Blobs, by the sha256 of their content

    def blob_size(self, sha256: str) -> int | None:
        """Bytes of a blob; None if it is not kept."""
        ...

    def put_blob(self, sha256: str, source: BlobSource) -> int:
        """Keep a blob, durable when this returns its size. BadInput if the content has another hash."""
        ...

    def spool(self) -> Path:
        """A directory for blobs that are still arriving, as files `tmp-...`, on the disk where they will be kept."""
        ...

    def adopt_blob(self, sha256: str, path: Path) -> int:
        """Keep a whole file of the spool as a blob, durable when this returns its size. The caller has checked its
        hash; the file is gone from the spool, if it can be by moving it."""
        ...

    def open_blob(self, sha256: str) -> BinaryIO:
        """The content from its beginning; KeyError if there is none."""
        ...

    def blobs(self) -> Iterator[tuple[str, int]]:
        """Every blob that is kept, and its bytes, in any order. Some that come meanwhile may be left out."""
        ...

    def remove_blob(self, sha256: str) -> None:
        """Keep it no longer. Nothing happens if it is not kept. StoreFenced if another has taken over."""
        ...

    # Who writes

    @property
    def epoch(self) -> int:
        """Counts who has opened the store for writing, this one included."""
        ...

    def beat(self, url: str) -> None:
        """Give a sign of life, and say where the server is. StoreFenced if another has taken over."""
        ...

    def holder(self) -> Holder: ...

    # Small texts of the state itself: its id, the key of its pools' tokens

    def remembered(self, name: str) -> str | None: ...

    def remember(self, name: str, text: str) -> None:
        """Keep a text under a name; it goes with the state wherever that is copied."""
        ...

    # Tokens

    def add_token(self, id: str, hash: str, role: str, name: str, created_s: float) -> None: ...

    def tokens(self) -> list[TokenRow]: ...

    def remove_token(self, id: str) -> bool: ...

    def close(self) -> None: ...
