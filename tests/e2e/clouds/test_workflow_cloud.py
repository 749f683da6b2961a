"""A workflow by a deadline on machines of the emulated cloud: planned, rented, executed with real files, and billed."""

from __future__ import annotations

from tests.support.clouds.bills import bills, records_of
from tests.support.clouds.cloud_server import busy, machines, pool, served, until
from tests.support.clouds.providers import sweep

DEADLINE_S = 120
WIDTH = 6


def test_a_workflow_is_done_by_its_deadline_although_a_machine_is_killed(tmp_path):
    with served(tmp_path, pool()) as made:
        flow = made.client().workflow(name="sums", deadline=DEADLINE_S, pools=["cloud"])
        script = ["sh", "-c", "echo $1 > part-$1; sleep 1", "sh", "{}"]
        parts = flow.map(script, range(WIDTH), outputs=["part-{}"])
        flow.task("cat part-* | sort | tr -d '\\n'", inputs=parts)
        job = flow.submit()
        killed = busy(made)
        made.client().poke("cloud", killed, "terminate")
        status = job.wait(timeout=DEADLINE_S + 60)
        assert status["tasks"]["done"] == WIDTH + 1, status
        assert status["finished_s"] <= status["deadline_s"], "the deadline was missed"
        assert job.output(WIDTH)["stdout"] == b"012345"
        until(lambda: not machines(made, there=True))
        rows = machines(made)
        made.stop_server()
        assert sweep(made.state) == 0, "machines were left running"
        assert set(made.accepted().values()) == {1}
        counted = {number: bill.microusd() for number, bill in bills(records_of(made.state)).items()}
        assert {row["machine"]: round(row["cost_usd"] * 1e6) for row in rows} == counted
