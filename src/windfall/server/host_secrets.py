"""Which host a worker is: a secret that the host made itself, shown with every request. Pure.

A token of role worker says that somebody may run tasks here; many hosts share it. The first secret that is shown under
a name belongs to that name as long as its host is there. A host whose disk was wiped has another secret: it gets its
name back when its predecessor has left or its lease has run out.

A worker that shows none (it is older than the secrets, or of another make) is held to the `boot` of its first exchange,
which it made at random and which no other worker is told.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from windfall.core.state.hosts.hosts import GONE, Host
from windfall.errors import WindfallError

RETRY_AFTER_S = 10
REMEMBERED, MAX_REMEMBERED_CHARS = 20_000, 64
"""Secrets whose hash is kept in mind, and how long they are at most: every exchange of a host shows the same."""


class HostInUse(WindfallError):
    """Another worker has this name. It may be gone soon, so the caller may try again."""

    code = "host-in-use"
    retryable = True
    retry_after_s = RETRY_AFTER_S


@lru_cache(maxsize=REMEMBERED)
def _hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest() if secret else ""


def hashed(secret: str) -> str:
    """What is remembered of a secret. A worker's own is not longer: others may not fill the memory."""
    return _hashed(secret) if len(secret) <= MAX_REMEMBERED_CHARS else _hashed.__wrapped__(secret)


def of_boot(boot: str) -> str:
    """What is remembered of a host that shows no secret."""
    return _hashed.__wrapped__(f"boot {boot}")


def shows_none(host: Host) -> bool:
    """Whether a host has shown no secret, and is held to its boot."""
    return not host.access.secret or host.access.secret == of_boot(host.session.boot)


def newly_shown(host: Host | None, name: str, secret: str, boot: str) -> str:
    """The hash to remember for a host of this name; empty if it is known. HostInUse if it belongs to another worker."""
    if host is None:
        return newly_known("", "", False, name, secret, boot)
    if secret and host.access.secret == hashed(secret):
        return ""  # nearly always
    return newly_known(host.access.secret, host.session.boot, host.state != GONE, name, secret, boot)


def newly_known(known: str, known_boot: str, is_there: bool, name: str, secret: str, boot: str) -> str:
    """The same, of a host whose hash is `known`; "": nothing was asked of it yet but its boot."""
    shown = hashed(secret) if secret else of_boot(boot)
    if shown == known:
        return ""
    if is_there and (known or known_boot != boot):
        raise HostInUse(
            f"host '{name}' is in use by another worker",
            hint="give this worker another --name, or wait until the lease of the other one has run out",
        )
    return shown
