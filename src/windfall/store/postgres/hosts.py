"""A connection to the newest of several databases that take turns: a primary and its standbys. Touches the network.

`postgresql://host1,host2/...` names them. Whoever is promoted begins a new timeline. A primary that was taken for dead
and comes back is read-write, too, but its timeline is older: it is passed over, whatever its place in the URL.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

TIMELINE: LiteralString = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"

Connection = psycopg.Connection[tuple[Any, ...]]


class OldPrimary(psycopg.OperationalError):
    """Only a database answers that was replaced by another one."""


def connect_newest(url: str, seen: int, more: dict[str, Any]) -> tuple[Connection, int]:
    """A connection to the primary of the newest timeline, and that timeline. OperationalError if none answers.

    `seen`: the newest timeline that is known; an older one is refused.
    """
    parts: dict[str, Any] = {"target_session_attrs": "read-write", **conninfo_to_dict(url), **more}
    hosts = str(parts.get("host") or "").split(",")
    ports = (str(parts.get("port") or "").split(",") * len(hosts))[: len(hosts)]
    parts.pop("hostaddr", None)
    best: tuple[Connection, int] | None = None
    failure: psycopg.OperationalError | None = None
    for host, port in zip(hosts, ports, strict=True):
        try:
            found = psycopg.connect(autocommit=True, **{**parts, "host": host, "port": port or None})
            timeline = int(found.execute(TIMELINE).fetchone()[0])  # type: ignore[index]
        except psycopg.OperationalError as error:
            failure = error
            continue
        if best is not None and timeline <= best[1]:
            found.close()
            continue
        if best is not None:
            best[0].close()
        best = (found, timeline)
    if best is None:
        raise failure or psycopg.OperationalError("no host is named")
    if best[1] < seen:
        best[0].close()
        raise OldPrimary(f"only a database of timeline {best[1]} answers; that of timeline {seen} has replaced it")
    return best
