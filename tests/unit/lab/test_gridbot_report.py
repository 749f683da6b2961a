"""What `windfall lab gridbot` says of each statement of the paper."""

from __future__ import annotations

import pytest

from windfall.lab.gridbot import worlds
from windfall.lab.gridbot.command import as_markdown
from windfall.lab.gridbot.experiments import condor
from windfall.lab.gridbot.finding import Finding, Means


def test_a_statement_is_reproduced_or_not_with_its_reason_or_not_checked():
    claims = [("a", True), ("b", False), ("c", False), ("d", None)]
    said = as_markdown(Finding("n", "t", "", [], [], claims, reasons={"b": "too few hosts"}), 1.0).splitlines()
    assert "- reproduced: a" in said and "- not checked: d" in said
    assert "- **not reproduced**: b. Why: too few hosts" in said
    assert "- **not reproduced**: c. Why: the cause was not found" in said


def test_the_rival_has_none_of_gridbots_mechanisms():
    rival, pool = worlds.condor_run("Condor-like", 0.1).bags[0], worlds.condor_run("Condor-like", 0.1).pools[0]
    assert rival.policy["ReplicationRequirements"] == "false" and "Rank" not in rival.policy
    assert float(rival.policy["Deadline"]) > 10 * 240 and pool.prefetch == 0
    same = worlds.condor_run("GridBot", 0.1)
    assert (same.bags[0].tasks, same.pools[0].hosts) == (rival.tasks, pool.hosts)


def test_gridbot_is_quicker_than_the_rival_in_the_same_world():
    found = condor(Means(0.1, 1))
    minutes = found.data["minutes"]
    assert minutes["GridBot"][0] < minutes["Condor-like"][0]
    assert [row[0] for row in found.rows] == ["GridBot", "GridBot without its policy", "Condor-like"]
    assert found.data["replicas"]["Condor-like"] == pytest.approx(0.0)
    assert set(found.reasons) <= {claim for claim, _ in found.claims}, "a reason of no statement is never told"
