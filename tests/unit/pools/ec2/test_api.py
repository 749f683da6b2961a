"""Errors, pages, budgets and credentials of calls; and machines as the answers show them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from windfall.errors import BadInput
from windfall.pools.contract import (
    CAPACITY,
    CREDENTIALS,
    ENDED,
    FAILED,
    HIBERNATED,
    INVALID,
    PENDING,
    QUOTA,
    RELEASED,
    RUNNING,
    TAKEN,
    TRANSIENT,
    PoolError,
)
from windfall.pools.ec2.api import Account, ApiError, Budget, Region
from windfall.pools.ec2.settings import Ec2Settings
from windfall.pools.ec2.sight import failed, sighted, worker_words

boto = pytest.importorskip("botocore.exceptions", reason="it comes with the test tools: make .venv/.installed")


class FakeClient:
    """A client that raises, or answers in pages."""

    def __init__(self, error: Exception | None = None, pages: list[dict] | None = None) -> None:
        self._error, self._pages = error, pages or []

    def can_paginate(self, method: str) -> bool:
        return bool(self._pages)

    def get_paginator(self, method: str) -> FakeClient:
        return self

    def paginate(self, **arguments: object) -> list[dict]:
        return self._pages

    def describe(self, **arguments: object) -> dict:
        if self._error is not None:
            raise self._error
        return {"Rows": [1]}


def refused(code: str, status: int = 400) -> Exception:
    meta = {"HTTPStatusCode": status}
    return boto.ClientError({"Error": {"Code": code, "Message": "said so"}, "ResponseMetadata": meta}, "Describe")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("InsufficientInstanceCapacity", 500), CAPACITY),
        (refused("VcpuLimitExceeded"), QUOTA),
        (refused("MaxSpotInstanceCountExceeded"), QUOTA),
        (refused("UnauthorizedOperation", 403), CREDENTIALS),
        (refused("RequestExpired"), CREDENTIALS),
        (refused("InvalidAMIID.NotFound"), INVALID),
        (refused("RequestLimitExceeded", 503), TRANSIENT),
        (refused("SomethingNew", 500), TRANSIENT),
        (boto.NoCredentialsError(), CREDENTIALS),
        (boto.EndpointConnectionError(endpoint_url="https://x"), TRANSIENT),
        (boto.ReadTimeoutError(endpoint_url="https://x"), TRANSIENT),
        (boto.TokenRetrievalError(provider="sso", error_msg="expired"), CREDENTIALS),
        (boto.ParamValidationError(report="Missing"), INVALID),
    ],
)
def test_every_error_has_a_kind_and_the_words_of_aws(error, kind):
    region = Region("r1", lambda attempts: FakeClient(error), 100.0)
    for answer in (region.call("describe"), region.pages("describe", "Rows")):
        assert isinstance(answer, ApiError) and answer.kind == kind and answer.error.startswith("r1: ")
        assert not isinstance(error, boto.ClientError) or "said so" in answer.error


def test_pages_are_read_to_the_last_and_each_is_a_call_of_the_budget():
    region = Region("r1", lambda attempts: FakeClient(pages=[{"Rows": [1, 2]}, {"Rows": []}, {"Rows": [3]}]), 100.0)
    taken = []
    region._budget.take = lambda: taken.append(1)
    assert region.pages("describe", "Rows") == [1, 2, 3] and len(taken) == 3


def test_calls_that_change_something_are_made_once():
    attempts: list[int] = []
    region = Region("r1", lambda number: attempts.append(number) or FakeClient(), 100.0)
    region.call("describe")
    region.pages("describe", "Rows")
    assert attempts == [1, 3]


def test_a_budget_allows_a_burst_and_then_so_many_calls_a_second():
    now = [0.0]
    budget = Budget(2.0, lambda: now[0])
    assert [budget.wait_s() for _ in range(8)] == [0.0] * 8
    assert [budget.wait_s() for _ in range(2)] == [0.5, 1.0]
    now[0] = 1.0
    assert budget.wait_s() == 0.5
    now[0] = 1000.0
    assert budget.wait_s() == 0.0


def test_without_a_region_the_error_says_where_to_name_one(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="no region") as caught:
        Account(Ec2Settings(types=["c7g.*"]))
    assert "regions" in caught.value.hint


def test_an_unknown_profile_is_an_error_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="nobody"):
        Account(Ec2Settings(regions=["r1"], profile="nobody"))


# --- machines -------------------------------------------------------------------------------------------------------

AT = datetime(2026, 11, 16, 16, 0, 0, tzinfo=UTC)


def instance(state: str, code: str = "", said: str = "", **other: object) -> dict:
    tags = {"windfall:state": "me", "windfall:pool": "p", "windfall:host": "p-m1"}
    return {
        "InstanceId": "i-1", "State": {"Name": state}, "StateReason": {"Code": code, "Message": f"{code}: why"},
        "StateTransitionReason": said, "LaunchTime": AT, "SpotInstanceRequestId": "sir-1",
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()], **other,
    }  # fmt: skip


def request(status: str, kind: str = "one-time", state: str = "active") -> dict:
    return {"Type": kind, "State": state, "Status": {"Code": status, "UpdateTime": AT}}


@pytest.mark.parametrize(
    ("row", "spot", "phase", "cause"),
    [
        (instance("pending"), None, PENDING, ""),
        (instance("running"), request("fulfilled"), RUNNING, ""),
        (instance("shutting-down", "Client.UserInitiatedShutdown"), None, ENDED, RELEASED),
        (instance("terminated", "Server.SpotInstanceTermination"), None, ENDED, TAKEN),
        (instance("terminated"), request("instance-terminated-by-price"), ENDED, TAKEN),
        (instance("terminated"), request("instance-terminated-by-user"), ENDED, ""),
        (instance("terminated", "Server.InternalError"), None, ENDED, FAILED),
        (instance("terminated", "Client.InstanceInitiatedShutdown"), None, ENDED, ""),
        (instance("stopping", "Server.SpotInstanceShutdown"), request("marked-for-stop"), HIBERNATED, ""),
        (instance("stopped", "Client.UserInitiatedHibernate"), None, HIBERNATED, ""),
        (instance("stopped", "Client.InstanceInitiatedShutdown"), request("x", "persistent"), ENDED, ""),
    ],
)
def test_states_of_ec2_are_phases_with_causes(row, spot, phase, cause):
    found = sighted(row, spot, "r1")
    assert (found.phase, found.cause, found.host, found.owner) == (phase, cause, "p-m1", "me")


def test_the_time_of_a_change_is_that_of_ec2():
    by_us = sighted(
        instance("terminated", "Client.UserInitiatedShutdown", "User initiated (2026-11-16 15:59:30 GMT)"), None, "r1"
    )
    by_ec2 = sighted(instance("stopped", "Server.SpotInstanceShutdown"), request("instance-stopped-no-capacity"), "r1")
    assert (by_us.changed_t, by_ec2.changed_t) == (AT.timestamp() - 30, AT.timestamp())
    assert sighted(instance("running"), request("fulfilled"), "r1").changed_t is None


def test_a_marked_request_is_a_notice_of_two_minutes():
    for status in ("marked-for-termination", "marked-for-stop"):
        assert sighted(instance("running"), request(status), "r1").taken_at_t == AT.timestamp() + 120.0
    assert sighted(instance("running"), request("fulfilled"), "r1").taken_at_t is None


def test_remains_of_machines_are_told():
    stopped = sighted(instance("stopped", "Client.InstanceInitiatedShutdown"), request("x", "persistent"), "r1")
    assert stopped.left_a_disk and stopped.persistent and stopped.request_open and stopped.by_itself
    gone = sighted(instance("terminated", "Client.InstanceInitiatedShutdown"), request("x", state="closed"), "r1")
    assert gone.by_itself and not (gone.left_a_disk or gone.persistent or gone.request_open)


def test_last_words_are_those_of_the_worker_and_say_whether_it_failed():
    console = (
        "[  1.0] kernel\nwindfall: no usable token given\nci-info: x\nwindfall: the worker ended with code 2; bye\n"
    )
    words = worker_words(console)
    assert words.splitlines() == ["windfall: no usable token given", "windfall: the worker ended with code 2; bye"]
    assert failed(words) and not failed("windfall: the worker ended with code 0; bye") and not failed("")
    assert isinstance(ApiError("x", CAPACITY, code="y"), PoolError)
