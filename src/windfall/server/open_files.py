"""How many files and connections a server may have open. Touches the limits of this process."""

from __future__ import annotations

import contextlib
import resource

WANTED = 65_536
"""Every worker that waits for tasks has a connection open."""


def allow_many() -> int:
    """Raise the soft limit of open files to `WANTED`, as far as the hard limit lets; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
