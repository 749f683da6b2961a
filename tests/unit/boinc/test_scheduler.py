"""What the scheduler makes of uploads: validators that take long, transfers that stand still."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from types import SimpleNamespace

import pytest

from windfall.boinc import scheduler, uploads
from windfall.boinc.names import Bundle
from windfall.boinc.requests import FINISHED, Report, ReportedFile
from windfall.boinc.scheduler import Scheduler
from windfall.boinc.uploads import LATER, Refused, UploadHead, Uploads
from windfall.boinc.validators import NotYet

TWO = b"WF1 2\n" + b"".join(b"T %d done 0 0.100 0.050 1000 1 0 0 0 0\nx" % task for task in (0, 1)) + b"E\n"


def head_of(data: bytes, name: str = "w1_0_2_1_0") -> UploadHead:
    return UploadHead(name, 1000, len(data), hashlib.md5(data).hexdigest(), 0, "")


async def stream(*pieces: bytes, then_s: float = 0.0):
    for piece in pieces:
        yield piece
    await asyncio.sleep(then_s)


def test_what_a_slow_validator_has_judged_is_remembered_until_the_next_call(tmp_path, monkeypatch):
    stored = Uploads(tmp_path / "uploads", b"s" * 32)
    asyncio.run(stored.receive(head_of(TWO), b"", stream(TWO)))
    front = SimpleNamespace(uploads=stored, service=SimpleNamespace(store=None), output_cap=lambda job: 100)
    made = Scheduler(front)
    file = ReportedFile("w1_0_2_1_0", len(TWO), hashlib.md5(TWO).hexdigest())
    report = Report("w1_0_2_1", FINISHED, 0, files=[file])
    count = f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); print(1)"
    call = (report, Bundle(1, 0, 2, 1), {0: [], 1: []}, [sys.executable, "-c", count])
    # The first comes to its turn, the second does not: the clock is read once for the end and once for each task.
    clock = iter([0.0, 1.0, scheduler.JUDGING_S + 1, 200.0, 201.0])
    monkeypatch.setattr(scheduler, "monotonic", lambda: next(clock))
    with pytest.raises(NotYet):
        made._unpacked(*call)
    ends = made._unpacked(*call)
    assert ends is not None and ends[0][2] == ends[1][2] != ""
    assert (tmp_path / "asked").read_text() == "xx"


def test_a_transfer_that_stands_still_is_given_up_and_may_begin_again(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "STALLED_S", 0.05)
    stored, head = Uploads(tmp_path, b"s" * 32), head_of(b"whole")
    with pytest.raises(Refused, match="stands still") as refused:
        asyncio.run(stored.receive(head, b"wh", stream(then_s=60.0)))
    assert refused.value.status == LATER and stored.stored(head.name) == 2
    asyncio.run(stored.receive(head, b"", stream(b"wh", b"ole")))
    assert stored.whole(head.name, head.md5) is not None


def test_outputs_that_nobody_waits_for_are_removed_once_an_hour(tmp_path):
    stored = Uploads(tmp_path, b"s" * 32)
    for name in ("w1_0_2_1_0", "w2_0_2_1_0"):
        asyncio.run(stored.receive(head_of(b"x", name), b"x", stream()))
    awaited = {"w1_0_2_1_0", "w2_0_2_1_0"}
    for now, left in ((0.0, 2), (10.0, 2), (3599.0, 2), (3600.0, 1), (3601.0, 1), (100.0, 0)):
        stored.clear(now, awaited.__contains__)
        assert len(list(tmp_path.iterdir())) == left, now
        awaited.discard("w2_0_2_1_0" if now < 3600 else "w1_0_2_1_0")
