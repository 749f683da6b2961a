"""What `windfall lab gridbot` says of each statement of the paper."""

from __future__ import annotations

import pytest

from windfall.lab.gridbot import worlds
from windfall.lab.gridbot.command import as_markdown
from windfall.lab.gridbot.experiments import condor, table
from windfall.lab.gridbot.finding import Finding, Means
from windfall.sim.run import run


def test_a_statement_is_reproduced_or_not_with_its_reason_or_not_checked():
    claims = [("a", True), ("b", False), ("c", False), ("d", None)]
    finding = Finding("n", "t", "", [], [], claims, reasons={"b": "too few hosts"})
    said = as_markdown(finding, 1.0).splitlines()
    assert "- reproduced: a" in said and "- not checked: d" in said
    assert "- **not reproduced**: b. Why: too few hosts" in said
    assert "- **not reproduced**: c. Why: the cause was not found" in said
    small = as_markdown(finding, 0.05)
    assert "c. Why: hosts and tasks are 0.05 of the paper's; whether it comes out with all of them" in small
    assert "- **not reproduced**: b. Why: too few hosts" in small


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


def test_a_run_of_the_table_that_can_never_end_is_stopped_and_named():
    outcome, world = run(worlds.replication_run("disabled", "restrictive", 0.01), 9)
    assert not outcome.finished and outcome.turnaround_s == worlds.TABLE_UNTIL_H * 3600
    assert world.driver.state.bags[1].waiting == 1, "its last task waits for a host that is called reliable"
    rows = {tuple(row[:3]): row[-1] for row in table(Means(0.01, 9)).rows}
    assert "1 of 9 never end" in rows["queued", "disabled", "restrictive"]
    assert "never" not in rows["queued", "disabled", "permissive"]
