"""Only its holder says how an attempt ended."""

from __future__ import annotations

import pytest

from tests.support.engine.hand import Hand
from windfall.core.decisions import ACCEPTED


@pytest.mark.parametrize("reporter", ["h2", "nobody"])
def test_nobody_ends_an_attempt_of_another_host(reporter):
    hand = Hand()
    hand.submit(2)
    keys = hand.tasks("h1")
    hand.tasks("h2")
    for cause in ("exit", "cancelled", "lost", "done"):
        hand.report(reporter, *keys, cause=cause)
    assert keys[0] in hand.state.hosts.by_name["h1"].held
    assert hand.report("h1", *keys) == [ACCEPTED]
