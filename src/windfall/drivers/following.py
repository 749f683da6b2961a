"""The driver of a standby: applies what another server logs, answers questions, decides nothing. Reads the store.

Signs of life are compared with this host's own steady clock, so a clock that jumps on either host changes nothing.
"""

from __future__ import annotations

import asyncio
import logging

from windfall.core.events import AnyEvent
from windfall.core.formats import read_record
from windfall.core.records import Record
from windfall.drivers.failures import Uncommitted
from windfall.drivers.realtime import Done, Realtime, Rows
from windfall.store.contract import Holder, StoreError, StoreFailed
from windfall.store.formats import format_at

log = logging.getLogger(__name__)

POLL_S = 0.1
"""Seconds between two looks at the log."""
PAGE = 500
"""Records that are applied in one go: questions are answered between two of them."""
LET_GO_S = 1.0
"""Seconds for which nobody has held the store before a standby takes it: a server whose connection broke comes back."""


class StandsBy(Uncommitted):
    """This server is a standby and takes nothing on."""

    code = "standby"
    retry_after_s = 1


class Following(Realtime):
    """Keeps its state as warm as the log of another server allows."""

    leader = Holder(0, 0, "", "")

    def submit(self, events: list[AnyEvent], rows: Rows | None = None) -> Done:
        raise self.refusal()

    def submit_soon(self, who: str, events: list[AnyEvent], rows: Rows | None = None) -> Done:
        raise self.refusal()

    def refusal(self) -> StandsBy:
        at = f"; the server is {self.leader.url}" if self.leader.url else ""
        return StandsBy(f"this server is a standby{at}", hint="give all addresses: --server URL1,URL2")

    def illness(self) -> str:
        return self.failure.message if self.failure is not None else ""

    async def until_silent(self, silence_s: float, forces: bool) -> None:
        """Follow the log; return when its server has been silent for `silence_s`, or has let the store go.

        `forces`: whether a server that still holds the store can be replaced.
        """
        seen: tuple[object, ...] = ()
        clock = asyncio.get_running_loop().time
        changed_s = held_s = clock()
        while True:
            try:
                applied = await self._apply_news()
                self.leader = await asyncio.to_thread(self.store.holder)
            except StoreFailed:
                raise
            except StoreError as error:
                # Not the other server's silence: nothing can be told of it.
                log.warning("the state cannot be read: %s", error.message)
                changed_s = held_s = clock()
                await asyncio.sleep(1.0)
                continue
            now_s = clock()
            sign = (self.leader.epoch, self.leader.beats, self.state.seq)
            if sign != seen:
                seen, changed_s = sign, now_s
            if self.leader.process:
                held_s = now_s
            if now_s - held_s >= LET_GO_S or (forces and now_s - changed_s >= silence_s):
                return
            if not applied:
                await asyncio.sleep(POLL_S)

    async def _apply_news(self) -> bool:
        """Apply the next records of the log. False if there were none."""
        rows = await asyncio.to_thread(self.store.records, self.state.seq, PAGE)
        if not rows:
            return False
        if rows[0].seq != self.state.seq + 1:  # heartbeats were pruned behind a snapshot: begin with that
            await asyncio.to_thread(self.restore)
            return True
        made: list[Record] = []
        for row in rows:
            if row.seq != self.state.seq + 1:
                break
            record = read_record(self.state, row.data, format_at(self.formats, row.seq))
            self.engine.apply(self.state, record)
            made.append(record)
        self.snapshots.behind.add(len(made), sum(len(row.data) for row in rows))
        for listener in self.on_commit:
            listener(made)
        return True
