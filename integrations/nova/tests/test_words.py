"""Who is preemptible, as Nova's API lets it be said: flavor, image, scheduler hint, and policy."""

from __future__ import annotations

import pytest

LARGE = {"vcpu": 8, "ram_mb": 16000}


@pytest.mark.parametrize(
    ("flavor", "image", "hint", "goes"),
    [
        ("true", "false", "false", True),
        ("false", "true", "true", False),
        ("", "true", "false", True),
        ("", "false", "true", False),
        ("", "", "true", True),
    ],
)
def test_the_first_of_flavor_image_and_hint_decides(cloud, flavor, image, hint, goes):
    cloud.hosts("host-A")
    cloud.boot("first", LARGE, flavor=flavor, image=image, hint=hint)
    cloud.boot("n", LARGE, status="ACTIVE" if goes else "ERROR")
    assert ("first" in cloud.names()) is not goes


@pytest.mark.parametrize(("image", "hint"), [("true", ""), ("", "true")])
def test_a_request_that_says_so_by_image_or_hint_evicts_nobody(cloud, said, image, hint):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    cloud.boot("q", LARGE, image=image, hint=hint, status="ERROR")
    assert "p" in cloud.names()
    assert any(f"which is preemptible (by its {'image' if image else 'hint'})" in line for line in said())


def test_policy_closes_a_source(cloud, said):
    cloud.hosts("host-A")
    cloud.boot("p", LARGE, preemptible=True)
    cloud.nova.policy.set_rules({"windfall:preemptible:hint": "role:nobody"}, overwrite=False)
    new = cloud.boot("n", LARGE, hint="true")
    cloud.nova.policy.set_rules({"windfall:preemptible:hint": "@"}, overwrite=False)
    assert set(cloud.names()) == {"n"}
    assert f"windfall: policy does not let the hint of server {new['id']} say whether it is preemptible" in said()
