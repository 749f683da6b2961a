"""A short stream of jobs through a fleet in the emulated cloud and on EC2; `make stream` has the full size."""

from __future__ import annotations

import pytest

from tests.e2e.clouds.stream import emulated, on_ec2

pytestmark = pytest.mark.slow


def test_a_stream_of_jobs_keeps_the_promises_of_its_fleet_through_two_killed_servers(tmp_path):
    told = emulated(tmp_path, jobs=15, over_s=10.0, deadline_s=20.0)
    assert told["promised"] >= 12, told


def test_a_stream_of_jobs_on_ec2_keeps_the_promises_of_its_fleet_and_the_bill_is_that_of_the_calls(tmp_path):
    told = on_ec2(tmp_path, jobs=6, over_s=4.0, deadline_s=20.0)
    assert told["promised"] >= 4, told
