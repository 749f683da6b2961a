"""What agents may say, what they are told, and which cores instances get."""

from __future__ import annotations

import json
import os

import pytest

from windfall import wire
from windfall.core.sites.checks import check_amounts
from windfall.errors import BadInput, WindfallError
from windfall.server.http.workers.exchange import WrongVersion
from windfall.server.sites.exchange import TurnedAway, read, reported
from windfall.wire import VERSION, frames
from windfall.wire.messages import MAX_TEXT_CHARS
from windfall.worker.site.agent import _row
from windfall.worker.site.instances import Cores, End


def frame(*attachments: bytes, **changes) -> bytes:
    header = {"v": VERSION, "site": "", "host": "h", "boot": "b", "n": 1, "capacity": {"vcpu": 2}, "tags": []}
    return frames.join(json.dumps({**header, **changes}).encode(), list(attachments))


@pytest.mark.parametrize(
    ("changes", "error", "what"),
    [
        ({"v": VERSION + 1}, WrongVersion, "version"),
        ({"capacity": {"vcpu": -1}}, TurnedAway, "'vcpu': -1"),
        ({"capacity": {"vcpu": 1e300}}, TurnedAway, "'vcpu': 1e[+]300"),
        ({"capacity": {"": 1}}, TurnedAway, "offers"),
        ({"capacity": {}}, TurnedAway, "offers"),
        ({"capacity": {"vcpu": "two"}}, BadInput, "capacity"),
        ({"host": ""}, BadInput, "host's id"),
        ({"n": 0}, BadInput, "n is 1 or more"),
        ({"ended": [[1, "bored", 0, 0, 0, 0, 0, 0, ""]]}, BadInput, "unknown cause 'bored'"),
        ({"ended": [[1, "done"]]}, BadInput, "ended"),
        ({"ended": [[1, "done", 0, 0, 0, 0, 0, 0, "x" * 10_001]]}, BadInput, "length <= 10000.*ended"),
    ],
)
def test_what_an_agent_says_wrongly_is_named(changes, error, what):
    with pytest.raises(error, match=what):
        read(frame(**changes))


def test_bytes_that_are_no_frame_are_refused():
    for body in (b"", b"\0\0\0\xffx", frames.join(b"[]", [])):
        with pytest.raises(WindfallError, match="not an exchange of a site"):
            read(body)


def test_an_agent_cuts_a_text_that_the_server_would_refuse():
    row = _row(End(1, "cancelled", text="x" * 20_000), now_s=1.0)
    ask, _ = read(frame(ended=[row]))
    assert ask.ended[0][8] == "x" * MAX_TEXT_CHARS


def test_times_of_an_agent_are_put_onto_the_clock_of_the_server():
    ask, _ = read(
        frame(
            started=[[4, 1.5]],
            ended=[[3, "done", 0, 2.0, 5.0, 7, 0, 0, ""], [5, "cancelled", None, 0, None, 0, 0, 0, ""]],
        )
    )
    event = reported(ask, "lab", 100.0)
    assert event.started == [(4, 98.5)]
    assert [(end.start, end.end) for end in event.ended] == [(93.0, 98.0), (None, 100.0)]


@pytest.mark.parametrize(
    "amounts", [{}, {"vcpu": 0.0}, {"vcpu": -1.0}, {"ram_mb": float("nan")}, {"ram_mb": float("inf")}]
)
def test_amounts_that_are_none_are_refused_with_the_path_to_the_field(amounts):
    with pytest.raises(BadInput, match="request" + "".join(rf"\.{name}" for name in amounts)):
        check_amounts(amounts, "request")


def test_instances_share_the_cores_evenly_and_one_that_wants_them_all_is_not_held_to_any(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    cores = Cores()
    taken = [cores.take(1), cores.take(1.5), cores.take(1)]
    assert taken == [[0], [1, 2], [3]]
    assert cores.take(4) == [] == cores.take(9)
    cores.give_back(taken[1])
    assert cores.take(2) == [1, 2]


def test_the_protocol_before_is_served_and_no_other():
    assert read(frame(v=VERSION))[0].v == VERSION and read(frame(v=VERSION - 1))[0].v == VERSION - 1 == wire.OLDEST
    for other in (0, VERSION - 2, VERSION + 1):
        with pytest.raises(WrongVersion, match=f"speaks version {other} "):
            read(frame(v=other))
