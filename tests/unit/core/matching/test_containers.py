"""Jobs in containers go to hosts that have an engine for them, and to no others."""

from __future__ import annotations

from tests.support.engine.engine_machine import Eager
from tests.support.engine.hand import Hand
from windfall.core.events import TaskClass
from windfall.core.explain.jobs import host_reasons

BOXED = TaskClass(container=True)


def test_a_host_without_an_engine_is_not_matched_and_is_told_so():
    hand = Hand()
    bag = hand.submit(2, [BOXED])
    assert hand.tasks("bare") == []
    assert len(hand.tasks("boxes", containers="podman")) == 1
    found = host_reasons(hand.state, hand.engine.policies, bag, None, hand.state.hosts.by_name["bare"], hand.t)
    assert [reason.what for reason in found] == ["container"]
    assert "neither Apptainer, Podman nor Docker" in found[0].detail


def test_a_replica_needs_an_engine_as_well():
    hand = Hand(Eager)
    hand.submit(1, [BOXED], policies={"ReplicationRequirements": "true"})
    assert len(hand.tasks("first", containers="podman")) == 1
    assert hand.tasks("bare") == []
    assert len(hand.tasks("second", containers="docker")) == 1
