"""The provider of kind `kubernetes` and its watch, against an API server that is a few dictionaries."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.pools.fake_kubernetes import FakeApi
from windfall.pools.contract import (
    ENDED,
    FAILED,
    INVALID,
    PENDING,
    QUOTA,
    RELEASED,
    RUNNING,
    TAKEN,
    TRANSIENT,
    Order,
    PoolError,
    Seen,
    Told,
)
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.kubernetes import pool as module
from windfall.pools.kubernetes.answers import ApiError, failure
from windfall.pools.kubernetes.manifest import HOST
from windfall.pools.kubernetes.pool import KubernetesPool
from windfall.pools.kubernetes.settings import KubernetesSettings
from windfall.pools.starting.secrets import ticket
from windfall.server.pool_tokens import PoolTokens

ORDER = Order("k-1-1", 2)
NOW_T = 1000.0
CHANGED = threading.Event()
TOKENS = PoolTokens(b"k" * 32)


class Stand:
    """A pool, its API server, and the clock of both."""

    def __init__(self, folder: Path) -> None:
        self.api, self.folder, self.now_t = FakeApi(), folder, NOW_T
        (folder / "token").write_text(TOKENS.make("k", 60.0, 1.0))
        self._pools: list[KubernetesPool] = []

    def pool(self, directory: str = "pool", **settings: object) -> KubernetesPool:
        config = PoolConfig("k", "kubernetes", settings=KubernetesSettings(**{"time_limit": "5s", **settings}))
        place = Place("http://127.0.0.1:1", self.folder / "token", self.folder / directory, owner="me")
        self._pools.append(KubernetesPool(config, place, lambda: self.now_t, self.api))
        self._pools[-1].watch(CHANGED.set)
        return self._pools[-1]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()

    def pod(self, id: str, phase: str, **status: object) -> None:
        owner = [{"name": id, "uid": f"uid-jobs-{id}"}]
        metadata = {"annotations": {HOST: ORDER.host}, "ownerReferences": owner}
        self.api.put("pods", f"{id}-x", {"metadata": metadata, "status": {"phase": phase, **status}})


@pytest.fixture
def stand(tmp_path):
    made = Stand(tmp_path)
    yield made
    made.close()


def rows(pool: KubernetesPool) -> list[Seen]:
    found = pool.list()
    assert not isinstance(found, PoolError), found
    return found


def until(condition: Callable[[], object]) -> None:
    """What has changed is told by another thread."""
    for _ in range(1000):
        if condition():
            return
        CHANGED.wait(0.01)
        CHANGED.clear()
    raise AssertionError("it did not come")


def wait_for(pool: KubernetesPool, phase: str) -> Seen:
    until(lambda: [row.phase for row in rows(pool)] == [phase])
    return rows(pool)[0]


def started(pool: KubernetesPool) -> str:
    id = pool.start(ORDER)
    assert isinstance(id, str), id
    return id


def test_an_order_that_comes_again_makes_one_job_and_one_secret(stand):
    pool = stand.pool()
    id = started(pool)
    assert started(pool) == id and started(stand.pool("another")) == id
    assert stand.api.names("jobs") == stand.api.names("secrets") == [id]


def test_an_order_is_not_started_again_after_its_end(stand):
    pool = stand.pool()
    id = started(pool)
    stand.pod(id, "Succeeded")
    assert wait_for(pool, ENDED).cause == ""
    assert started(pool) == id and stand.api.names("jobs") == []


def test_an_order_whose_secret_was_not_made_leaves_no_job_and_may_be_repeated(stand):
    stand.api.fail["POST", "secrets"] = [failure(503, b"")]
    pool = stand.pool()
    answer = pool.start(ORDER)
    assert isinstance(answer, PoolError) and answer.kind == TRANSIENT
    assert stand.api.names("jobs") == []
    assert [started(pool)] == stand.api.names("jobs") == stand.api.names("secrets")


@pytest.mark.parametrize("repeated", [True, False])
def test_a_job_whose_server_was_killed_before_it_made_the_secret_gets_one(stand, repeated):
    id = started(stand.pool())
    del stand.api.objects["secrets", id]
    pool = stand.pool("another")
    wait_for(pool, PENDING)
    if repeated:
        assert started(pool) == id
    until(lambda: rows(pool) and stand.api.names("secrets") == [id])


def test_a_job_whose_secret_is_refused_for_good_does_not_stay(stand):
    stand.api.fail["POST", "secrets"] = [failure(403, b'{"message": "exceeded quota: q, requested: secrets=1"}')]
    answer = stand.pool().start(ORDER)
    assert isinstance(answer, PoolError) and answer.kind == QUOTA
    assert stand.api.names("jobs") == []


def test_a_pod_that_admission_refuses_is_never_ordered(stand):
    stand.api.fail["TRY", "pods"] = [failure(403, b'{"message": "violates PodSecurity"}')]
    answer = stand.pool().start(ORDER)
    assert isinstance(answer, PoolError) and (answer.kind, answer.error) == (INVALID, "violates PodSecurity")
    assert stand.api.count("POST", "jobs") == 0


@pytest.mark.parametrize(
    "message",
    ['pods is forbidden: User "x" cannot create resource "pods"', "admission webhook w does not support dry run"],
)
def test_a_dry_run_that_is_not_possible_hinders_nothing(stand, message):
    code = 400 if "webhook" in message else 403
    stand.api.fail["TRY", "pods"] = [failure(code, b'{"message": %s}' % _quoted(message))]
    assert started(stand.pool())


def _quoted(text: str) -> bytes:
    return b'"' + text.replace('"', '\\"').encode() + b'"'


def test_a_refusal_says_when_to_come_back():
    assert failure(429, b'{"message": "too many requests"}', "7").retry_after_s == 7.0
    assert failure(503, b"", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s == 0.0


def test_what_changes_is_told_and_not_asked_for(stand):
    pool, told = stand.pool(), threading.Event()
    assert isinstance(pool, Told)
    pool.watch(told.set)
    id = started(pool)
    assert told.wait(10)
    wait_for(pool, PENDING)
    told.clear()
    stand.pod(id, "Running")
    assert told.wait(10)
    wait_for(pool, RUNNING)
    assert stand.api.calls.count(("GET", "pods")) == 1, "the list is read once"


def test_a_watch_that_is_too_old_reads_the_list_again_without_a_failure(stand):
    pool = stand.pool()
    id = started(pool)
    wait_for(pool, PENDING)
    stand.api.break_watches(failure(410, b'{"message": "too old resource version"}'))
    stand.pod(id, "Running")
    wait_for(pool, RUNNING)


def test_an_api_server_that_is_gone_is_an_error_and_never_an_empty_list(stand):
    pool = stand.pool(time_limit="1h")
    started(pool)
    wait_for(pool, PENDING)
    gone = ApiError("the API server cannot be reached: refused", TRANSIENT)
    stand.api.fail["GET", "jobs"] = [gone] * 3
    stand.api.break_watches(gone)
    answers: list[list[Seen] | PoolError] = []  # none of these calls waits for the API server
    until(lambda: answers.append(pool.list()) or isinstance(answers[-1], PoolError))
    assert isinstance(answers[-1], PoolError) and "cannot be reached" in answers[-1].error
    until(lambda: answers.append(pool.list()) or not isinstance(answers[-1], PoolError))
    assert all(isinstance(answer, PoolError) or len(answer) == 1 for answer in answers), "and it goes on by itself"


def test_an_api_server_that_is_back_is_found_by_the_next_call(stand):
    gone = ApiError("the API server cannot be reached: refused", TRANSIENT)
    stand.api.fail["GET", "jobs"] = [gone] * 9  # after so many the mirror itself tries every quarter of a minute
    pool = stand.pool(time_limit="1h")
    answers = [pool.list() for _ in range(12)]
    assert isinstance(answers[0], PoolError) and answers[-1] == []


def test_a_pod_that_is_taken_away_ends_its_job_with_the_reason(stand):
    pool = stand.pool()
    id = started(pool)
    stand.pod(id, "Running")
    wait_for(pool, RUNNING)
    event = {"involvedObject": {}, "reason": "Preempted", "message": "by ns/urgent on node n"}
    stand.api.put("events", "e", event)
    stand.api.put("pods", f"{id}-x", {"metadata": {"deletionTimestamp": "2026-11-16T16:30:00Z"}})
    row = wait_for(pool, ENDED)
    assert row.cause == TAKEN and "Preempted: by ns/urgent on node n" in row.about
    assert stand.api.names("jobs") == [] and stand.api.names("secrets") == []


def test_a_worker_that_ends_in_good_order_when_its_pod_is_taken_was_taken(stand):
    pool = stand.pool(keep="1h")
    id = started(pool)
    stand.pod(id, "Running")
    wait_for(pool, RUNNING)
    stand.api.fail["DELETE", "jobs"] = [failure(503, b"")]
    stand.api.put("pods", f"{id}-x", {"metadata": {"deletionTimestamp": "2026-11-16T16:30:00Z"}})
    until(lambda: stand.api.count("DELETE", "jobs"))
    stand.api.put("jobs", id, {"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    row = wait_for(pool, ENDED)
    assert row.cause == TAKEN and "its pod was deleted" in row.about


def test_a_pod_with_our_labels_that_no_job_of_ours_has_made_ends_nothing(stand):
    pool = stand.pool()
    id = started(pool)
    metadata = {"deletionTimestamp": "2026-11-16T16:30:00Z", "ownerReferences": []}
    stand.api.put("pods", "by-hand", {"metadata": metadata, "status": {"phase": "Running"}})
    stand.pod(id, "Running")
    wait_for(pool, RUNNING)
    assert stand.api.count("DELETE", "jobs") == 0


def test_one_that_was_told_to_end_is_released_whatever_its_pod_says(stand):
    pool = stand.pool()
    id = started(pool)
    stand.pod(id, "Running")
    wait_for(pool, RUNNING)
    assert pool.stop(id, gently=True) is None
    row = wait_for(pool, ENDED)
    assert (row.cause, row.about) == (RELEASED, "")
    assert wait_for(stand.pool(), ENDED).cause == RELEASED, "the next server knows it, too"
    assert pool.stop(id) is None and pool.stop("somebody-elses") is None


def test_a_job_of_the_same_labels_and_another_name_is_not_ours(stand):
    pool = stand.pool()
    id = started(pool)
    annotations = stand.api.objects["jobs", id]["metadata"]["annotations"]
    stand.api.put("jobs", "copy", {"metadata": {"annotations": annotations}, "status": {}})
    assert [row.id for row in rows(pool)] == [id]
    pool.stop("copy")
    assert "copy" in stand.api.names("jobs")


def test_a_worker_that_waits_for_long_gets_the_token_of_now(stand):
    pool = stand.pool()
    id = started(pool)
    now = TOKENS.make("k", 60.0, 2.0)
    (stand.folder / "token").write_text(now)
    until(lambda: rows(pool) and stand.api.count("PATCH", "secrets"))
    data = stand.api.objects["secrets", id]["data"]
    assert base64.b64decode(data["token"]).decode() == ticket(now, "k-1-1")
    rows(pool)
    assert stand.api.count("PATCH", "secrets") == 1


def test_a_job_for_which_kubernetes_makes_no_pod_is_refused_in_its_words(stand):
    pool = stand.pool()
    started(pool)
    wait_for(pool, PENDING)
    words = 'Error creating: pods "x" is forbidden: exceeded quota: team'
    stand.api.put("events", "e", {"reason": "FailedCreate", "message": words})
    stand.now_t += module.PODLESS_S + 1
    row = wait_for(pool, ENDED)
    assert row.cause == FAILED and words in row.about and stand.api.names("jobs") == []


def test_a_worker_that_finds_no_node_is_given_up_after_its_time(stand):
    pool = stand.pool(pending="10m")
    id = started(pool)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    stand.pod(id, "Pending", conditions=[condition])
    stand.now_t += 599
    until(lambda: rows(pool)[0].about == "Unschedulable: 0/1 nodes")
    assert rows(pool)[0].phase == PENDING
    stand.now_t += 2
    row = wait_for(pool, ENDED)
    assert row.cause == FAILED and "600 s for a node: Unschedulable: 0/1 nodes" in row.about
    assert stand.api.names("jobs") == []


def test_a_job_is_kept_for_a_while_if_that_is_wished(stand):
    pool = stand.pool(keep="1h")
    id = started(pool)
    stand.pod(id, "Succeeded")
    wait_for(pool, ENDED)
    assert stand.api.names("jobs") == [id]
    stand.now_t += 3601
    until(lambda: rows(pool) and not stand.api.names("jobs"))


def test_what_has_ended_is_listed_for_some_minutes_and_then_forgotten(stand):
    pool = stand.pool()
    id = started(pool)
    stand.pod(id, "Succeeded")
    wait_for(pool, ENDED)
    stand.now_t += module.SHOWN_S - 1
    assert len(rows(pool)) == 1
    stand.now_t += 2
    until(lambda: not rows(pool))
    assert list((stand.folder / "pool").iterdir()) == []
