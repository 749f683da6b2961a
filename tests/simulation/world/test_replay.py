"""A log is replayed by `apply` alone: no constant of any version that replays it changes what comes of it."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from tests.support.engine.rich_logs import WORLDS
from windfall.core.engine import Engine
from windfall.core.records import decode_record, encode_record
from windfall.core.state.snapshot import save
from windfall.core.state.state import State

PACKAGES = ("windfall.core", "windfall.planning", "windfall.timeouts", "windfall.placement")
CODES = (
    "windfall.core.decisions",
    "windfall.core.records",
    "windfall.core.state.jobs.columns",
    "windfall.core.state.jobs.causes",
    "windfall.core.state.renting.fleets",
    "windfall.planning.counts",
    "windfall.wire.messages",
)
"""What stands here are codes of the log's format, not constants that anybody would tune."""


def modules():
    for package in PACKAGES:
        root = importlib.import_module(package)
        yield root
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            yield importlib.import_module(found.name)


def constants() -> list[tuple[object, str, float]]:
    """(module, name, value) of every number in capitals that could be tuned."""
    codes = {name for module in CODES for name in vars(importlib.import_module(module)) if name.isupper()}
    return [
        (module, name, value)
        for module in modules()
        if module.__name__ not in CODES
        for name, value in vars(module).items()
        if name.isupper() and name not in codes and type(value) in (int, float)
    ]


def states_of(log: list[bytes], every: int = 1) -> list[bytes]:
    engine, state, found = Engine(), State(), []
    for place, data in enumerate(log):
        engine.apply(state, decode_record(data))
        if place % every == 0 or place == len(log) - 1:
            found.append(save(state))
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_no_tuning_constant_changes_what_a_replayed_log_gives(world, monkeypatch):
    log = [encode_record(record) for record in WORLDS[world]()]
    every = max(1, len(log) // 300)
    before = states_of(log, every)
    changed = constants()
    assert len(changed) > 100
    for module, name, value in changed:
        monkeypatch.setattr(module, name, type(value)(value * 1.7 + 1))
    assert states_of(log, every) == before


def test_the_logs_hold_what_used_to_be_chosen_while_applying():
    records = [record for world in WORLDS.values() for record in world()]
    decided = [record.decided for record in records]
    for what in ("observed", "advice", "ran", "replan", "stopped", "lessons", "tested_until", "breaker", "refusals"):
        assert any(getattr(decision, what, None) for decision in decided), what
    lessons = [found for decision in decided if (found := getattr(decision, "lessons", None)) is not None]
    assert any(found.silences for found in lessons) and any(found.interrupted for found in lessons)
    assert any(getattr(decision, "planned", False) and decision.replan_t for decision in decided)
