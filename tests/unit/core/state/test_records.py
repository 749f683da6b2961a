"""The bytes of records: what is read back is what was written, and defaults at the end take no room."""

from __future__ import annotations

import msgspec
import pytest

from windfall.core.decisions import Assigned, Checked, GangFormed, HostAnswered, Lessons, ResultsJudged
from windfall.core.events import HostAsked, Result, ResultsReported
from windfall.core.records import RecordOf, decode_record, encode_record
from windfall.core.state.hosts.learned import Advice
from windfall.core.state.hosts.pools import Breaker
from windfall.timeouts.learning.online import Sketch

GIVEN = HostAnswered(5, assigned=[Assigned(1, 0, 1, 1)])
OTHERS = {
    "repeat": True, "lost": [(1, 2, 3, 4)], "cancel": [(1, 2, 3)], "refused": "why", "tails": ((1, True),),
    "probation": (1.0, "why"), "test": True, "tell": True, "stop": "drained", "stopped": ((1, "why"),),
    "tested_until": 0.0, "breaker": Breaker(), "lessons": Lessons(), "given_back": 3, "hand_back": ((1, 2, 3),),
    "taken_back": ((4, 1, 2, 3),), "gang": GangFormed(1, 0, 1, [5]), "begin": ((1, 2, 3),), "all_joined": (1, 2, 3),
    "is_another": True,
}  # fmt: skip


def record(decided: HostAnswered) -> RecordOf:
    return RecordOf(9, HostAsked(1.0, "h", "b", 1, 1, 1), decided)


def test_every_field_of_an_answer_and_of_judged_results_is_tried_here():
    """One that is not looked at when a record is written would be lost with a restart."""
    assert {*OTHERS, "host", "assigned"} == {*HostAnswered.__struct_fields__}
    assert {*FINDINGS, "verdicts", "observed"} == {*ResultsJudged.__struct_fields__}


def test_an_answer_that_only_hands_tasks_out_is_written_without_its_defaults():
    data = encode_record(record(GIVEN))
    assert decode_record(data) == record(GIVEN)
    assert len(msgspec.msgpack.decode(data)[2]) == 5


@pytest.mark.parametrize("field", OTHERS)
def test_an_answer_is_read_back_whichever_of_its_fields_is_set(field: str):
    decided = msgspec.structs.replace(GIVEN, **{field: OTHERS[field]})
    assert decode_record(encode_record(record(decided))) == record(decided)


JUDGED = ResultsJudged([0], [0])
ADVICE = Advice("pool", "bag", Sketch().best_timeout(prior_s=60.0))
FINDINGS = {
    "ran": ((0, 1.5),), "replan": (1,), "stopped": ((1, "why"),), "memory": ((0, 1 << 30),), "advice": (ADVICE,),
    "checked": (Checked(5, 1),),
}  # fmt: skip


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
