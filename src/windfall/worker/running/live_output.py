"""Output of running attempts that somebody watches, kept until the next exchange. Reads the output files of calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Tuple

from windfall.worker.running.slots import Held, Slot

Piece = Tuple[Held, int, int, bytes]
"""`(attempt, 0 for stdout or 1 for stderr, offset, data)`"""

_MAX_PIECES = 256
"""Pieces kept for the next exchange; further pieces are dropped."""
_READ_BYTES = 1 << 16


class LiveOutput:
    """Pieces of output that were not sent yet. Runners report those of commands; those of calls are read here."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def add(self, held: Held, which: int, offset: int, data: bytes) -> None:
        if len(self._pieces) < _MAX_PIECES:
            self._pieces.append((held, which, offset, data))

    def follow(self, followed: dict[int, Held], all_held: Iterable[Held]) -> None:
        """Watch exactly these attempts, by ident; those that do not run yet are asked for again later."""
        for held in all_held:
            if held.watched and held.ident not in followed:
                held.watched = False
        for held in followed.values():
            if not held.watched and held.slot and held.slot.head is held:
                held.watched = True
                if not held.spec.is_call:
                    held.slot.order(("watch", held.ident))

    def take(self, slots: Iterable[Slot]) -> list[Piece]:
        """All pieces since the last time, and what watched calls have written since."""
        pieces, self._pieces = self._pieces, []
        for slot in slots:
            head = slot.head
            if not (head and head.watched and slot.warm):
                continue
            for which, path in enumerate(slot.output_files()):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    file.seek(head.live_offsets[which])
                    if data := file.read(_READ_BYTES):
                        pieces.append((head, which, head.live_offsets[which], data))
                        head.live_offsets[which] += len(data)
        return pieces
