"""Frames for schemathesis, which makes JSON by itself: chunks of tasks and exchanges of a site, right and wrong ones.

Schemathesis loads this module (SCHEMATHESIS_HOOKS).
"""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import strategies as st

from windfall.bags.chunks import encode_lines
from windfall.wire import OLDEST, frames

LINES = encode_lines(["a", "b"])
CHUNK = {"first": 0, "count": 2, "codec": "lines", "bytes": len(LINES)}
CHUNK_CHANGES: list[dict[str, Any]] = [
    {}, {"first": 2}, {"first": 4}, {"first": 9}, {"first": -1}, {"count": 3}, {"count": 0}, {"codec": "rows"},
    {"codec": "none"}, {"bytes": 1}, {"bytes": 10**9}, {"klass": 1}, {"odd": None},
]  # fmt: skip
"""Of a chunk of two tasks: the first are right."""
HEADERS: list[dict[str, Any]] = [{}, {"append": True}, {"append": 1}, {"seal": False}, {"chunks": None}]


@st.composite
def tasks(draw: Any) -> bytes:
    """What `POST /v1/jobs/JOB/tasks` takes, with one change or two."""
    header = {"chunks": [CHUNK | draw(st.sampled_from(CHUNK_CHANGES))]} | draw(st.sampled_from(HEADERS))
    return frames.join(json.dumps(header).encode(), [LINES])


REPORT = {"v": OLDEST, "site": "lab", "host": "rack-1", "boot": "first", "n": 1, "capacity": {"vcpu": 2.0}}
REPORT_CHANGES: list[dict[str, Any]] = [
    {}, {"n": 2}, {"n": 3, "tags": ["disk=ssd"]}, {"host": "rack-2"}, {"n": 4, "started": [[1, 0.5]]},
    {"n": 5, "ended": [[1, "exit", 1, 0.0, None, 0, 0, 0, ""]]}, {"n": 6, "leaving": "idle"}, {"v": 0},
    {"site": "none"}, {"host": ""}, {"host": "a/b"}, {"n": -1}, {"capacity": {"": 1.0}}, {"capacity": {"vcpu": -1.0}},
    {"tags": [7]}, {"started": [[1]]}, {"ended": [[1, "bad luck", 1, 0.0, None, 0, 9, 9, ""]]}, {"wait_s": "long"},
]  # fmt: skip
"""Of an exchange of an agent of the site `lab`: the first are right."""


@st.composite
def reports(draw: Any) -> bytes:
    """What `POST /v1/site/exchange` takes, with one change."""
    return frames.join(json.dumps(REPORT | draw(st.sampled_from(REPORT_CHANGES))).encode(), [])


schemathesis.openapi.media_type(frames.CONTENT_TYPE, st.one_of(reports(), tasks(), st.binary(max_size=64)))
