"""A server and its standby on one PostgreSQL database: real processes, killed, stopped, cut off."""

from __future__ import annotations

import pytest

from tests.e2e.server.takeovers import campaign
from tests.support.server import postgres
from tests.support.server.pair import eventually, pair
from windfall.client.transport import Transport
from windfall.errors import WindfallError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _needs_postgres():
    postgres.require()


def test_a_server_that_is_killed_and_one_that_is_stopped_lose_nothing_and_count_nothing_twice(tmp_path):
    """`make takeovers` has partitions and jumping clocks, too, and 200 of them."""
    counts = campaign(tmp_path, 2, seed=7, faults=("stop", "kill")).counts
    assert (counts["stop"], counts["kill"], counts["attempts lost"]) == (1, 1, 0)


def test_a_standby_answers_questions_and_takes_nothing_on(tmp_path):
    with pair(tmp_path) as made:
        job = made.client().submit("true", params=range(5), name="asked for")
        standby = Transport(made.other.url, made.token, patience_s=30.0)
        eventually(lambda: standby.get("/healthz")["standby_of"] == made.active.url, what="it knows its server")
        eventually(lambda: standby.get("/v1/jobs")["jobs"], what="it has seen the job")
        assert standby.get(f"/v1/jobs/{job.id}")["name"] == "asked for"
        standby.patience_s = 0.0
        for method, path, body in (
            ("POST", "/v1/jobs", b"{}"),
            ("POST", "/v1/jobs/1/cancel", b"{}"),
            ("PUT", f"/v1/blobs/{'0' * 64}", b"x"),
            ("POST", "/v1/tokens", b'{"role": "read", "name": "x"}'),
            ("GET", "/readyz", None),
        ):
            with pytest.raises(WindfallError, match=r"standby|starts") as error:
                standby.request(method, path, body=body)
            assert error.value.retryable, (path, error.value)
        standby.close()
