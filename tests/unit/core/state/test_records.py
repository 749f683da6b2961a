"""The bytes of records: what is read back is what was written, and defaults at the end take no room."""

from __future__ import annotations

import msgspec
import pytest

from windfall.core.decisions import Assigned, HostAnswered, ResultsJudged
from windfall.core.events import HostAsked, Result, ResultsReported
from windfall.core.records import RecordOf, decode_record, encode_record
from windfall.core.state.hosts.pools import Breaker

GIVEN = HostAnswered(5, assigned=[Assigned(1, 0, 1, 1)])
OTHERS = {
    "repeat": True, "lost": [(1, 2, 3, 4)], "cancel": [(1, 2, 3)], "refused": "why", "tails": ((1, True),),
    "probation": (1.0, "why"), "test": True, "tell": True, "stop": "drained", "stopped": ((1, "why"),),
    "tested_until": 3.0, "breaker": Breaker(),
}  # fmt: skip


def record(decided: HostAnswered) -> RecordOf:
    return RecordOf(9, HostAsked(1.0, "h", "b", 1, 1, 1), decided)


def test_an_answer_that_only_hands_tasks_out_is_written_without_its_defaults():
    data = encode_record(record(GIVEN))
    assert decode_record(data) == record(GIVEN)
    assert len(msgspec.msgpack.decode(data)[2]) == 5


@pytest.mark.parametrize("field", OTHERS)
def test_an_answer_is_read_back_whichever_of_its_fields_is_set(field: str):
    decided = msgspec.structs.replace(GIVEN, **{field: OTHERS[field]})
    assert decode_record(encode_record(record(decided))) == record(decided)


JUDGED = ResultsJudged([0], [0])
FINDINGS = {"ran": ((0, 1.5),), "replan": (1,), "stopped": ((1, "why"),), "memory": ((0, 1 << 30),)}


def report(decided: ResultsJudged) -> RecordOf:
    return RecordOf(9, ResultsReported(1.0, "h", [Result(1, 0, 1, 0, 0, 0.5, 1.0)]), decided)


def test_results_that_are_only_accepted_are_written_without_their_defaults():
    data = encode_record(report(JUDGED))
    assert decode_record(data) == report(JUDGED)
    assert len(msgspec.msgpack.decode(data)[2]) == 3


@pytest.mark.parametrize("field", FINDINGS)
def test_judged_results_are_read_back_whichever_of_their_fields_is_set(field: str):
    decided = msgspec.structs.replace(JUDGED, **{field: FINDINGS[field]})
    assert decode_record(encode_record(report(decided))) == report(decided)
