"""Read a whole log again where its snapshots are of an older format."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.errors import BadInput
from windfall.store.contract import Store

PAGE = 10_000


def whole_log(store: Store) -> Iterator[tuple[int, bytes]]:
    """Every record from the first on. BadInput if the beginning of the log is not there any more."""
    seq = 0
    while rows := store.records(seq, PAGE):
        for row in rows:
            if row.seq != seq + 1:
                raise BadInput(
                    f"this state was written by an older version of Windfall, and record {seq + 1} of its log is gone",
                    hint="let the version that wrote it finish its jobs, then begin anew with --state OTHER",
                    code="other-version",
                )
            seq = row.seq
            yield row.seq, row.data
