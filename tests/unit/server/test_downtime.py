"""When no server ran is told by the log."""

from __future__ import annotations

from typing import NamedTuple

from windfall.server.queries.downtime import downtimes, within


class Row(NamedTuple):
    seq: int
    t: float
    kind: str


class Log:
    """A store that has nothing but records."""

    def __init__(self, *rows: tuple[float, str]) -> None:
        self.rows = [Row(seq, t, kind) for seq, (t, kind) in enumerate(rows, start=1)]

    def records(self, after_seq=0, limit=1000, job=None, kinds=None):
        return [row for row in self.rows if row.seq > after_seq and (kinds is None or row.kind in kinds)][:limit]


def test_no_server_ran_from_the_last_record_before_a_start_to_that_start():
    log = Log(
        (10.0, "ServerStarted"), (11.0, "JobSubmitted"), (15.0, "HostAsked"), (115.0, "ServerStarted"),
        (116.0, "HostAsked"), (120.0, "ServerStarted"),
    )  # fmt: skip
    assert downtimes(log) == [(15.0, 115.0), (116.0, 120.0)]


def test_only_the_part_within_a_job_counts():
    spans = [(0.0, 10.0), (20.0, 30.0), (50.0, 60.0)]
    assert within(spans, 5.0, 25.0) == 10.0
    assert within(spans, 11.0, 19.0) == 0.0
