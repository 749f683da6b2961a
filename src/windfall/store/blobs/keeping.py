"""The half of a store that keeps blobs, wherever they are. Touches what its `Blobs` touch.

Where blobs are kept belongs to the store, as its epoch does: a copy of a state keeps them where it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

from windfall.errors import BadInput
from windfall.store.contract import BLOBS_AT, BlobSource


class Blobs(Protocol):
    """Contents by their sha256, each written once and never changed. See `contract.Store` for what each promises."""

    at_once: bool
    """Whether removing takes no longer than a commit may."""

    @property
    def directory(self) -> Path:
        """The spool."""
        ...

    def size(self, sha256: str) -> int | None: ...

    def put(self, sha256: str, source: BlobSource) -> int: ...

    def adopt(self, sha256: str, file: Path) -> int: ...

    def open(self, sha256: str) -> BinaryIO: ...

    def all(self) -> Iterator[tuple[str, int]]: ...

    def remove(self, sha256: str, writer: Any) -> None:
        """`writer`: the connection of a transaction that fails if another has taken over. None: not `at_once`."""
        ...


@runtime_checkable
class _Elsewhere(Protocol):
    """Blobs that are not where the rest of the state is."""

    def check(self) -> None: ...

    def clear(self) -> None: ...


class KeepsBlobs:
    """What stores on SQLite and PostgreSQL share."""

    _blobs: Blobs
    _commit: Callable[[Callable[[Any], Any]], Any]
    remembered: Callable[[str], str | None]
    remember: Callable[[str, str], None]

    def blob_size(self, sha256: str) -> int | None:
        return self._blobs.size(sha256)

    def put_blob(self, sha256: str, source: BlobSource) -> int:
        return self._blobs.put(sha256, source)

    def spool(self) -> Path:
        return self._blobs.directory

    def adopt_blob(self, sha256: str, path: Path) -> int:
        return self._blobs.adopt(sha256, path)

    def open_blob(self, sha256: str) -> BinaryIO:
        return self._blobs.open(sha256)

    def blobs(self) -> Iterator[tuple[str, int]]:
        return self._blobs.all()

    def remove_blob(self, sha256: str) -> None:
        # Only if we are the server still. No commit waits for the network: an object is removed behind the transaction.
        self._commit(lambda writer: self._blobs.remove(sha256, writer) if self._blobs.at_once else None)
        if not self._blobs.at_once:
            self._blobs.remove(sha256, None)

    def use_blobs(self, ours: bool = True) -> None:
        """Turn to the object store that the state names, if it names one. `ours`: we hold the lock."""
        if address := self.remembered(BLOBS_AT):
            from windfall.store.blobs.objects import ObjectBlobs

            self._blobs = ObjectBlobs(address, self._blobs.directory, ours)

    def keep_blobs_at(self, address: str) -> None:
        """Keep blobs in an object store from now on. BadInput if some are kept elsewhere, or it is not empty."""
        from windfall.store.blobs.objects import ObjectBlobs, plain_address

        address = plain_address(address)
        there = self.remembered(BLOBS_AT)
        if there == address:
            return
        if there or next(iter(self._blobs.all()), None) is not None:
            raise BadInput(
                f"the files of this state are kept {f'in {there}' if there else 'beside it'}, not in {address}",
                hint=f"leave --blobs out, or copy the state:  windfall state copy STATE NEW --blobs {address}",
            )
        objects = ObjectBlobs(address, self._blobs.directory)
        objects.begin()
        self.remember(BLOBS_AT, address)
        self._blobs = objects

    def check_blobs(self) -> None:
        """StoreError if the object store that the state names cannot be reached, or has lost what it held."""
        if isinstance(self._blobs, _Elsewhere):
            self._blobs.check()

    def give_up_blobs(self) -> None:
        """Remove all objects of a state that could not be made."""
        if isinstance(self._blobs, _Elsewhere):
            self._blobs.clear()
