"""Logs that earlier versions wrote, replayed by this one. tests/data/logs holds some of each format."""

from __future__ import annotations

import json
from math import inf
from typing import get_args

import pytest
from msgspec.structs import replace

from tests.support.engine.rich_logs import LOGS, described, holds_all_of, state_then, stored
from windfall.core import formats
from windfall.core.engine import Engine
from windfall.core.events import AnyEvent, OverlayDue, ServerStarted
from windfall.core.formats import read_record
from windfall.core.records import FORMAT, decode_record, encode_record
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
    """Jobs, machines and their bills, pools, sites, plans and hosts, as far as commands show them."""
    jobs = {
        number: {
            "name": bag.rules.name, "state": bag.state, "counts": bag.counts, "tasks": list(bag.columns.state),
            "attempts": list(bag.columns.attempts), "exits": list(bag.columns.exit), "causes": list(bag.columns.cause),
            "failures": list(bag.columns.failures), "losses": list(bag.columns.losses), "finished_t": bag.finished_t,
            "ended_t": [round(value, 3) for value in bag.columns.end], "stopped": bag.stopped,
            "saved": bag.progress.saved, "estimates": [round(value, 3) for value in bag.progress.estimates],
        }
        for number, bag in state.bags.items()
    }  # fmt: skip
    machines = {
        number: {
            "offer": machine.offer.name, "cause": machine.cause, "bill_microusd": owed_microusd(machine, state.t),
            "error": machine.error, "queue": machine.queue,
        }
        for number, machine in state.fleet.machines.items()
    }  # fmt: skip
    pools = {
        name: {
            "queued": pool.queued, "errors": pool.errors, "closed_until": pool.closed_until,
            "last_error": pool.last_error,
        }
        for name, pool in state.supply.pools.items()
    }  # fmt: skip
    sites = {
        name: {
            "hosts": {host.name: [host.state, host.left] for host in site.hosts.values()},
            "instances": {
                number: [one.state, one.host, one.cause, one.text, one.exit] for number, one in site.instances.items()
            },
        }
        for name, site in state.sites.items()
    }
    plans = {
        number: {
            "plans": plan.plans, "error": plan.error, "refused": plan.refused,
            # When exactly is not in the records of format 1: the estimates of today say it.
            "is_reviewed": plan.replan_t < inf,
        }
        for number, plan in state.fleet.plans.items()
    }  # fmt: skip
    offers = {
        key: [seen.refused, seen.refusals, seen.reclaimed, seen.hibernated, seen.spells]
        for key, seen in state.fleet.markets.items()
    }
    hosts = {
        host.name: [host.state, host.pool, host.access.blocked, host.access.draining, host.record.probation_until]
        for host in state.hosts.values()
    }
    seen = {
        "jobs": jobs, "machines": machines, "pools": pools, "sites": sites, "plans": plans, "offers_refused": offers,
        "hosts": hosts,
    }  # fmt: skip
    return json.loads(json.dumps(seen))


def then() -> list[dict[str, object]]:
    """What the version that wrote the logs of format 1 showed when it had written them."""
    seen = json.loads((LOGS / "format-1" / "seen.json").read_text())
    for plan in (plan for each in seen for plan in each["plans"].values()):
        plan["is_reviewed"] = plan.pop("replan_t") is not None
    return seen


def test_logs_of_format_1_give_what_users_saw_then():
    assert len(stored(1)) == 2
    for log, seen in zip(stored(1).values(), then(), strict=True):
        assert seen_by_users(replayed(log, 1)) == seen


@pytest.mark.parametrize("event", [event for event in formats.COMPLETE if event not in (ServerStarted, OverlayDue)])
def test_the_stored_logs_need_every_choice_that_is_added_to_records_of_format_1(event, monkeypatch):
    """Without what completes records of this event, a log cannot be applied, or gives something else."""
    monkeypatch.delitem(formats.COMPLETE, event)
    try:
        found = [seen_by_users(replayed(log, 1)) for log in stored(1).values()]
    except AttributeError:
        return  # a decision that is not there
    assert found != then()


def test_a_log_of_format_1_counts_with_the_parameters_of_its_time(monkeypatch):
    then_kept = replace(formats.BOOKKEEPING_1, run_times_kept=7)
    monkeypatch.setattr(formats, "BOOKKEEPING_1", then_kept)
    for log in stored(1).values():
        assert replayed(log, 1).settings.bookkeeping == then_kept


def test_the_pools_of_a_format_1_log_are_reviewed_every_two_seconds_as_they_were_then():
    looks = []
    for log in stored(1).values():
        engine, state = Engine(), State()
        for data in log:
            record = read_record(state, data, 1)
            engine.apply(state, record)
            if isinstance(record.event, OverlayDue):
                looks.append(state.supply.look_t - record.event.t)
    assert looks and set(looks) == {2.0}


def test_logs_of_format_1_learn_plan_and_stop_as_they_did_then():
    decided = []
    for log in stored(1).values():
        engine, state, records = Engine(), State(), []
        for data in log:
            records.append(read_record(state, data, 1))
            engine.apply(state, records[-1])
        decided += [record.decided for record in records]
        again = State()
        for record in records:
            engine.apply(again, read_record(again, encode_record(record), FORMAT))
        assert save(again) == save(state), "records that were completed are records of today"
    for what in ("observed", "advice", "ran", "stopped", "planned", "lessons", "breaker", "refusals"):
        assert any(getattr(decision, what, None) for decision in decided), what


@pytest.mark.parametrize("name", stored(2))
def test_a_log_of_format_2_gives_the_state_that_it_gave_then(name):
    state = replayed(stored(2)[name], 2)
    assert holds_all_of(described(state), state_then(2, name))


def test_a_state_that_differs_from_the_one_of_then_is_noticed():
    state = replayed(stored(2)["rented"], 2)
    then = described(state)
    state.bags[1].columns.end[0] += 1.0
    assert not holds_all_of(described(state), then)


def test_a_state_and_what_is_loaded_from_its_snapshot_are_the_same_bytes_after_every_record():
    for name in ("by-hand", "every-event"):
        engine, state = Engine(), State()
        for data in stored(2)[name]:
            engine.apply(state, decode_record(data))
            saved = save(state)
            assert save(load(saved)) == saved


def test_the_stored_logs_of_today_hold_every_kind_of_event():
    kinds = {type(decode_record(data).event) for log in stored(FORMAT).values() for data in log}
    assert kinds == set(get_args(AnyEvent))


def test_every_format_has_a_stored_log():
    assert [path.name for path in sorted(LOGS.iterdir())] == [f"format-{number}" for number in range(1, FORMAT + 1)]
    assert all(stored(number) for number in range(1, FORMAT + 1))


def test_a_state_that_format_1_left_is_saved_and_loaded_as_one_of_today():
    for log in stored(1).values():
        state = replayed(log, 1)
        assert save(load(save(state))) == save(state)
