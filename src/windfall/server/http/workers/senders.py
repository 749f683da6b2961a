"""Which host has sent which file: a host may name only files that it has sent, or may read. Pure.

Else a host could read any file whose hash it knows: it would call it an output or a checkpoint of its task.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.core.events import Key
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.state import State
from windfall.server.host_secrets import hashed, shows_none
from windfall.server.job_files import digest

MOST_SENT = 500_000
"""Files that are kept in mind. Beyond it the older half of the host that has sent the most is dropped: a result comes
soon after its files."""


class Senders:
    """What hosts have sent to this server; of attempts that were out when it began nobody knows it."""

    def __init__(self, state: State) -> None:
        self._earlier: dict[int, Sequence[int]] = {
            job: state.bags[job].columns.attempts[:] for job in state.bags.unfinished
        }
        """By job, how many attempts of each task had been handed out."""
        self._sent: dict[str, dict[bytes, None]] = {}
        self._total = 0

    def add(self, secret: str, sha256: str) -> None:
        """A worker that showed this secret has sent a file, all of it, or may read it. Those without are one sender."""
        files = self._sent.setdefault(hashed(secret) if secret else "", {})
        key = digest(sha256)
        if key in files:
            del files[key]  # the newest are at the end
            self._total -= 1
        files[key] = None
        self._total += 1
        if self._total > MOST_SENT:
            largest = max(self._sent, key=lambda sender: len(self._sent[sender]))
            kept = list(self._sent[largest])[len(self._sent[largest]) // 2 + 1 :]
            self._total -= len(self._sent[largest]) - len(kept)
            self._sent[largest] = dict.fromkeys(kept)
            if not kept:
                del self._sent[largest]

    def knows_of(self, key: Key) -> bool:
        """Whether an attempt was handed out by this server: what was sent for it was sent here."""
        earlier = self._earlier.get(key[0], ())
        return not 0 <= key[1] < len(earlier) or key[2] > earlier[key[1]]

    def forget(self, job: int) -> None:
        self._earlier.pop(job, None)

    def has_sent(self, host: Host, sha256: str) -> bool:
        files = self._sent.get("" if shows_none(host) else host.access.secret, {})
        return digest(sha256) in files
