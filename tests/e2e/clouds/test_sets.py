"""Tasks of several machines at once on an emulated cloud: real servers, workers and processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clouds.bills import bills, records_of
from tests.support.clouds.cloud_server import DEADLINE_S, machines, pool, served, until
from tests.support.clouds.providers import sweep
from tests.support.commands.command import windfall
from windfall.errors import BadInput

pytestmark = pytest.mark.slow

SPOT_THAT_ENDS = 'when_taken = "terminate"\ninterruptions_per_h = 0.001'
SAY = "echo $WINDFALL_NODE_RANK of $WINDFALL_NODES on $WINDFALL_NODE_LIST"


def test_a_lost_machine_is_replaced_and_each_task_has_its_machines_at_once(tmp_path):
    with served(tmp_path, pool().replace('when_taken = "hibernate"', SPOT_THAT_ENDS)) as made:
        gate = tmp_path / "gate"
        wait = f"while [ ! -e '{gate}' ]; do sleep 0.1; done"
        job = made.client().submit(
            ["sh", "-c", f"{wait}; {SAY}; : {{}}"], [1, 2], nodes=2, pools=["cloud"], deadline=DEADLINE_S, estimate=2
        )
        until(lambda: sum(row["running"] > 0 for row in machines(made, there=True)) >= 2)
        begun = [row for row in machines(made, there=True) if row["running"]]
        lost = str(begun[0]["machine"])
        made.client().poke("cloud", lost, "terminate")
        known = {row["machine"] for row in begun}
        until(lambda: {row["machine"] for row in machines(made)} - known)
        gate.touch()
        status = job.wait(timeout=DEADLINE_S + 60)
        assert status["tasks"]["done"] == 2 and status["finished_s"] <= status["deadline_s"], status
        for task in range(2):
            assert job.output(task)["stdout"].startswith(b"0 of 2 on ")
        until(lambda: not machines(made, there=True))
        rows = machines(made)
        made.stop_server()
        assert sweep(made.state) == 0
        assert set(made.accepted().values()) == {1}
        counted = {number: bill.microusd() for number, bill in bills(records_of(made.state)).items()}
        assert {row["machine"]: round(row["cost_usd"] * 1e6) for row in rows} == counted
        assert next(row["cause"] for row in rows if str(row["machine"]) == lost) == "taken"


def test_a_workflow_rents_a_set_when_its_task_may_begin_and_replaces_a_lost_machine(tmp_path):
    with served(tmp_path, pool()) as made:
        gate = tmp_path / "gate"
        wait = f"while [ ! -e '{gate}' ]; do sleep 0.1; done"
        flow = made.client().workflow(name="mixed", deadline=DEADLINE_S, pools=["cloud"], estimate=2.0)
        first = flow.task(["true"], name="prepare")
        wide = flow.task(["sh", "-c", f"{wait}; {SAY}"], name="solve", after=first, nodes=2)
        flow.task(["true"], name="draw", after=wide)
        job = flow.submit()
        until(lambda: sum(row["running"] > 0 for row in machines(made, there=True)) >= 2)
        begun = [row for row in machines(made, there=True) if row["running"]]
        known = {row["machine"] for row in machines(made)}
        made.client().poke("cloud", str(begun[0]["machine"]), "terminate")
        until(lambda: {row["machine"] for row in machines(made)} - known)
        gate.touch()
        status = job.wait(timeout=DEADLINE_S + 60)
        assert status["tasks"]["done"] == 3 and status["finished_s"] <= status["deadline_s"], status
        assert job.output("solve")["stdout"].startswith(b"0 of 2 on ")
        until(lambda: not machines(made, there=True))
        offers = {row["machine"]: row["offer"] for row in machines(made)}
        assert {offers[row["machine"]] for row in begun} == {"steady"}
        made.stop_server()
        assert sweep(made.state) == 0 and set(made.accepted().values()) == {1}


def test_workflows_whose_sets_no_pool_or_fleet_rents_are_refused(tmp_path):
    with served(tmp_path, pool()) as made:
        flow = made.client().workflow(deadline=DEADLINE_S, pools=["cloud"])
        flow.task(["true"], name="prepare")
        flow.task(["true"], name="solve", nodes=6)
        with pytest.raises(
            BadInput, match="takes 6 machines at once, other tasks of the workflow take one more"
        ) as caught:
            flow.submit()
        assert "ask for at most 5" in caught.value.hint
        assert machines(made) == []


def test_more_machines_than_a_pool_rents_are_refused_before_anything_is_rented(tmp_path, monkeypatch, capsys):
    with served(tmp_path, pool()) as made:
        with pytest.raises(BadInput, match="takes 7 machines at once, and cloud rents at most 6") as caught:
            made.client().submit(["true", "{}"], [1], nodes=7, pools=["cloud"], deadline=60)
        assert "ask for at most 6" in caught.value.hint
        ended = windfall(
            monkeypatch, capsys, "submit", "--range", "1-2", "--nodes", "9", "--pool", "cloud", "--deadline", "1m",
            "--server", made.url, "--token", made.token, "--", "true",
        )  # fmt: skip
        page = Path("docs/howto/resources.md").read_text()
        assert ended.code == 2 and all(line in page for line in ended.err.splitlines()), ended
        assert "9 machines at once" in ended.err
        assert machines(made) == []
