"""The files of a state directory beside its database: the lock, the snapshots, the blobs. Touches that directory only.

DIR/made             exists since the database was made: a database that is empty now has lost its content
DIR/lock             held by flock while a server uses the directory; says which process, on which host
DIR/snapshots/SEQ    the two newest states of the engine
DIR/blobs/aa/SHA256  contents by their hash
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Event
from typing import BinaryIO

from windfall.errors import BadInput
from windfall.store.checks import check_sha256, pack_snapshot, unpack_snapshot, wrong_hash
from windfall.store.contract import BlobSource, Snapshot, StoreError, StoreFull, StoreInUse, StoreReadOnly
from windfall.store.pacing import parts_of

_PIECE_BYTES = 1 << 20
_KEPT_SNAPSHOTS = 2
_LOOKING_S, _LOOKING_STEP_S = 10.0, 0.005
"""How long a server waits for commands that read the directory, and the pause between two tries."""


def make_directory(path: Path, hint: str = "") -> None:
    """The state directory, private to its owner if we make it. `hint`: how to name another one."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise BadInput(
            f"{path} is a file; the state needs a directory", hint=hint or "name another one: --state DIR"
        ) from None
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}; the state cannot be kept there",
            hint=hint or "name another directory: --state DIR",
        ) from error


class Lock:
    """The right to be the only server on a directory, for as long as this process lives."""

    def __init__(self, directory: Path) -> None:
        with naming(directory):
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take()
        except OSError:
            holder = os.read(self._file, 300).decode(errors="replace").strip()
            os.close(self._file)
            raise StoreInUse(
                f"{directory} is in use by {holder or 'another process'}",
                hint="talk to that server, stop it, or use another state: --state DIR",
            ) from None
        try:
            with naming(directory):
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except StoreError:
            self.release()
            raise

    def _take(self) -> None:
        """OSError if a server has it. A command that only looks (looking.py) is waited for: it does not take long."""
        until = time.monotonic() + _LOOKING_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(self._file, fcntl.LOCK_UN)
                time.sleep(_LOOKING_STEP_S)

    def release(self) -> None:
        """Give it up; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock_holder(directory: Path) -> str:
    """Which process holds the lock of a state directory; empty if none does."""
    try:
        file = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return ""
    except OSError:
        return os.read(file, 300).decode(errors="replace").strip() or "another process"
    finally:
        os.close(file)


def free_bytes(path: Path) -> int:
    there = os.statvfs(path)
    return there.f_bavail * there.f_frsize


def is_full(path: Path) -> bool:
    """Whether hardly anything can be written; False if that cannot be found out."""
    try:
        return free_bytes(path) < 1 << 20
    except OSError:
        return False


def make_private(path: Path) -> None:
    """Let only the owner read the file; it is made if it does not exist."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(handle)
        if status.st_mode & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


class Marker:
    """A file that says that a database was made here."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "made"

    def is_set(self) -> bool:
        return self._path.exists()

    def set(self) -> None:
        if not self.is_set():
            make_private(self._path)
            sync_directory(self._path.parent)


def full(path: Path) -> StoreFull:
    return StoreFull(
        f"no space left at {path} ({free_bytes(path):,} bytes free)",
        hint=f"make space there; nothing that was accepted is lost, and work goes on by itself.  try: du -sh {path}/*",
    )


def named(error: OSError, path: Path) -> StoreError:
    """An error of the file system as one of ours."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(path)
    what = f"{error.filename or path}: {error.strerror or error}"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return read_only(what, path)
    return StoreError(what, hint="check the disk; the same is tried again")


def read_only(what: str, path: Path) -> StoreReadOnly:
    """The error about a directory that may not be written."""
    return StoreReadOnly(
        f"{what}; a state must be writable, even to be looked at",
        hint=f"make it so, or work on a copy:  cp -r {shlex.quote(str(path))} COPY  and  --state COPY",
    )


@contextmanager
def naming(path: Path, source: Hashed | None = None) -> Iterator[None]:
    """Errors of the file system in here come out as ours; those of the source of a blob stay what they are."""
    try:
        yield
    except OSError as error:
        if source is not None and error is source.error:
            raise
        raise named(error, path) from error


def write_durably(path: Path, pieces: Iterable[bytes | memoryview], temporary: Path, each: bool = False) -> None:
    """Write a file so that after a crash it is there whole or not at all. `temporary`: a directory on the same disk.

    `each`: sync piece by piece, so that a commit of the log on the same disk never waits for much of it.
    """
    import tempfile  # not above: reading needs none of it

    handle, name = tempfile.mkstemp(prefix="tmp-", dir=temporary)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
                if each:
                    file.flush()
                    os.fdatasync(file.fileno())
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(path)
    except BaseException:
        Path(name).unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames in a directory last."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(directory: Path) -> None:
    """Remove what a crash left half written. Only the holder of the lock may."""
    for leftover in directory.glob("tmp-*"):
        leftover.unlink()


class SnapshotFiles:
    """The newest states, one file each, named by the number of the last record in them. `ours`: we hold the lock."""

    def __init__(self, directory: Path, ours: bool = True) -> None:
        self._directory = directory
        if ours:
            with naming(directory):
                directory.mkdir(mode=0o700, exist_ok=True)
                remove_leftovers(directory)

    def save(self, seq: int, data: bytes | memoryview, hurry: Event | None = None) -> None:
        """Keep a state; the oldest goes. Until `hurry` is set it is written no faster than commits can bear."""
        target = self._directory / f"{seq:020d}"
        with naming(self._directory):
            write_durably(target, chain([pack_snapshot(seq, data)], parts_of(data, hurry)), self._directory, each=True)
            for old in self._newest_first()[_KEPT_SNAPSHOTS:]:
                old.unlink()

    def newest(self, warnings: list[str]) -> Snapshot | None:
        """The newest one that can be read; says in `warnings` which could not."""
        for path in self._newest_first():
            with naming(path):
                snapshot = unpack_snapshot(path.read_bytes())
            if snapshot:
                return snapshot
            warnings.append(f"snapshot {path} is damaged and was passed over; the records since an older one are read")
        return None

    def any(self) -> bool:
        return bool(self._newest_first())

    def oldest_seq(self) -> int:
        """Records up to this one are in every kept snapshot; 0 while there are fewer than are to be kept."""
        kept = self._newest_first()
        return int(kept[-1].name) if len(kept) >= _KEPT_SNAPSHOTS else 0

    def _newest_first(self) -> list[Path]:
        with naming(self._directory):
            return sorted((p for p in self._directory.iterdir() if p.name.isdecimal()), reverse=True)


class BlobFiles:
    """Contents by their sha256, each written once and never changed. `ours`: we hold the lock."""

    at_once = True

    def __init__(self, directory: Path, ours: bool = True) -> None:
        self._directory = directory
        if ours:
            with naming(directory):
                directory.mkdir(mode=0o700, exist_ok=True)
                remove_leftovers(directory)

    @property
    def directory(self) -> Path:
        return self._directory

    def _path(self, sha256: str) -> Path:
        return self._directory / check_sha256(sha256)[:2] / sha256

    def size(self, sha256: str) -> int | None:
        try:
            return self._path(sha256).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise named(error, self._directory) from error

    def put(self, sha256: str, source: BlobSource) -> int:
        path = self._path(sha256)
        content = Hashed(source)
        with naming(self._directory, content):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_durably(path, content.verified(sha256), self._directory)
            sync_directory(self._directory)
        return content.size

    def adopt(self, sha256: str, file: Path) -> int:
        """Move a file of this directory to its place; its content is what the hash says."""
        path = self._path(sha256)
        with naming(self._directory):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
                size = os.fstat(handle).st_size
            finally:
                os.close(handle)
            file.rename(path)
            sync_directory(path.parent)
            sync_directory(self._directory)
        return size

    def all(self) -> Iterator[tuple[str, int]]:
        with naming(self._directory):
            for path in self._directory.glob("??/" + "?" * 64):
                try:
                    yield path.name, path.stat().st_size
                except FileNotFoundError:
                    continue

    def remove(self, sha256: str, writer: object = None) -> None:
        with naming(self._directory):
            self._path(sha256).unlink(missing_ok=True)

    def open(self, sha256: str) -> BinaryIO:
        try:
            return open(self._path(sha256), "rb")
        except FileNotFoundError:
            raise KeyError(sha256) from None
        except OSError as error:
            raise named(error, self._directory) from error


class Hashed:
    """The pieces of a blob's source, hashed and counted while they pass."""

    def __init__(self, source: BlobSource) -> None:
        self._source = source
        self.size = 0
        self.error: OSError | None = None
        """What the source ended with, if it broke off: not the store's fault."""

    def verified(self, sha256: str) -> Iterator[bytes]:
        """The pieces; BadInput behind the last one if they are not what the hash says."""
        sum_ = hashlib.sha256()
        for piece in self._pieces():
            sum_.update(piece)
            self.size += len(piece)
            yield piece
        if sum_.hexdigest() != sha256:
            raise wrong_hash(sha256, sum_.hexdigest())

    def _pieces(self) -> Iterator[bytes]:
        try:
            if isinstance(self._source, bytes | bytearray | memoryview):
                yield bytes(self._source)
            elif isinstance(self._source, Path):
                with open(self._source, "rb") as file:
                    while piece := file.read(_PIECE_BYTES):
                        yield piece
            else:
                yield from self._source
        except OSError as error:
            self.error = error
            raise
