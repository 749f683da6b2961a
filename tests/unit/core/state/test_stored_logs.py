"""Logs that earlier versions wrote, replayed by this one. tests/data/logs holds one of each format."""

from __future__ import annotations

import json
from hashlib import sha256

from tests.support.engine.rich_logs import LOGS, stored
from windfall.core.engine import Engine
from windfall.core.formats import read_record
from windfall.core.records import FORMAT, encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.renting.fleet import owed_microusd
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State


def replayed(log: list[bytes], format_: int) -> State:
    engine, state = Engine(), State()
    for data in log:
        engine.apply(state, read_record(state, data, format_))
        # In format 1 a worker that outlived its machine came alive again.
        assert format_ == 1 or problems(state) == []
    return state


def seen_by_users(state: State) -> dict[str, object]:
    """Jobs with their tasks, attempts and results, and what machines cost."""
    jobs = {
        str(number): {
            "name": bag.rules.name, "state": bag.state, "counts": bag.counts, "tasks": list(bag.columns.state),
            "attempts": list(bag.columns.attempts), "exits": list(bag.columns.exit), "causes": list(bag.columns.cause),
            "failures": list(bag.columns.failures), "losses": list(bag.columns.losses), "finished_t": bag.finished_t,
            "ended_t": [round(value, 3) for value in bag.columns.end], "stopped": bag.stopped,
        }
        for number, bag in state.bags.items()
    }  # fmt: skip
    machines = {
        str(number): {
            "offer": machine.offer.name, "cause": machine.cause, "bill_microusd": owed_microusd(machine, state.t),
        }
        for number, machine in state.fleet.machines.items()
    }  # fmt: skip
    return {"jobs": jobs, "machines": machines}


def test_a_log_of_format_1_gives_what_users_saw_then():
    (log,) = stored("format-1.bin")
    state = replayed(log, 1)
    assert seen_by_users(state) == json.loads((LOGS / "format-1.json").read_text())


def test_a_log_of_format_1_learns_plans_and_stops_as_it_did_then():
    (log,) = stored("format-1.bin")
    engine, state, records = Engine(), State(), []
    for data in log:
        records.append(read_record(state, data, 1))
        engine.apply(state, records[-1])
    decided = [record.decided for record in records]
    for what in ("observed", "advice", "ran", "stopped", "planned"):
        assert any(getattr(decision, what, None) for decision in decided), what
    again = State()
    for record in records:
        engine.apply(again, read_record(again, encode_record(record), FORMAT))
    assert save(again) == save(state), "records that were completed are records of today"


def test_a_log_of_format_2_gives_the_same_bytes():
    digests = json.loads((LOGS / "format-2.json").read_text())
    found = [sha256(save(replayed(log, 2))).hexdigest() for log in stored("format-2.bin")]
    assert found == digests


def test_every_format_has_a_stored_log():
    assert {path.name for path in LOGS.glob("*.bin")} == {f"format-{number}.bin" for number in range(1, FORMAT + 1)}


def test_a_state_that_format_1_left_is_saved_and_loaded_as_one_of_today():
    (log,) = stored("format-1.bin")
    state = replayed(log, 1)
    assert save(load(save(state))) == save(state)
