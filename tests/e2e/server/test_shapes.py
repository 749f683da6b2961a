"""Answers of a real server with rented machines, a fleet and a site have the shapes that the document names."""

from __future__ import annotations

import pytest

from tests.support.clouds import cloud_server
from tests.support.clouds.cloud_server import until
from tests.support.pools.boinc_front import World
from tests.support.server.shapes import check_shape

pytestmark = pytest.mark.slow


def test_answers_about_jobs_money_fleets_and_sites_have_their_shapes(tmp_path):
    with cloud_server.served(tmp_path, cloud_server.pool()) as made:
        client = made.client()
        made.start_worker("desk", slots=1)
        failed = client.submit(["sh", "-c", "echo no >&2; exit 3"], range(2), name="failed", max_failures=1)
        rented = cloud_server.submit(made, 4, 0.2, name="rented")
        until(lambda: failed.status()["state"] == "failed" and rented.status()["state"] == "done")
        stuck = client.submit(["true"], range(3), name="stuck", policies={"JobRequirements": "Host.Slots > 99"})
        send = client._transport
        fleet = client.create_fleet("night", ["cloud"], budget_usd=9.0, owner_caps={"ann": 2})
        assert check_shape("POST", "/v1/fleets", fleet)
        workflow = client.workflow(name="two")
        workflow.task("true", name="second", after=workflow.task("false", name="first"))
        graph = workflow.submit(max_failures=1)
        until(lambda: graph.status()["state"] == "failed")
        made.kill_worker("desk")
        shared = client.submit(["sleep", "0.2"], range(2), name="shared", fleet="night", deadline=10, estimate=0.2)
        until(lambda: client.fleet("night")["there"])
        assert check_shape("GET", f"/v1/jobs/{graph.id}/workflow", graph.graph())
        site = send.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1.0}})
        assert check_shape("POST", "/v1/sites", site)
        asked = send.post("/v1/site/requests", {"resources": {"vcpu": 1.0}, "command": ["true"]})
        assert check_shape("POST", "/v1/site/requests", asked)
        jobs = [failed, rented, stuck, shared, graph]
        parts = ("", "/spec", "/tasks", "/groups", "/explain", "/cost", "/pools", "/commands",
                 "/usage", "/render/0", "/pictures", "/unfinished")  # fmt: skip
        paths = [f"/v1/jobs/{job.id}{part}" for job in jobs for part in parts]
        paths += ["/v1/jobs", "/v1/hosts", "/v1/hosts/desk", "/v1/pools", "/v1/machines", "/v1/machines/pictures",
                  "/v1/bills", "/v1/decisions", "/v1/fleets", "/v1/fleets/night", "/v1/fleets/night/cost", "/v1/sites",
                  "/v1/sites/lab", "/v1/site/requests", "/v1/site/requests/lab-1", "/v1/events", "/v1/timeouts",
                  "/v1/tokens", "/v1/classes", "/v1/market", "/v1/system", "/v1/volunteers", "/healthz",
                  "/readyz", "/v1/console/session"]  # fmt: skip
        for path in paths:
            assert check_shape("GET", path, send.get(path)), path
        for job in jobs:
            assert check_shape("GET", f"/v1/jobs/{job.id}/explain", send.get(f"/v1/jobs/{job.id}/explain", task=0))
        there = client.fleet("night")["there"][0]
        asked_of = {
            "/v1/policies/test": {"expression": "Host.Slots > 1 && Host.ErrorRate < 0.5"},
            "/v1/what-if": {"tasks": 4, "estimate_s": 0.2, "pool": "cloud", "deadlines_s": [0.001, 60.0]},
            "/v1/fleets/night/admission": {"deadline_s": 60.0, "tasks": [{"seconds": 1.0}], "every_s": 30.0},
            "/v1/pools/cloud/pause": {"reason": "lunch"},
            "/v1/pools/cloud/resume": {},
            "/v1/pools/cloud/doctor": {},
            f"/v1/pools/cloud/machines/m{there['machine']}/terminate": {},
            "/v1/market": {"offer": "cloud/spot", "source": "a.json", "digest": "0" * 64, "hours": 9.0, "ends": 1.0},
            "/v1/console/links": {},
        }
        for path, body in asked_of.items():
            assert check_shape("POST", path, send.post(path, body)), path
        assert client.job(rented.id).cost()["machines"] and client.fleet_cost("night")["machines"]
        assert send.get("/v1/decisions")["decisions"] and send.get("/v1/bills")["waste"]


def test_answers_of_the_front_for_volunteers_have_their_shapes(tmp_path):
    world = World(tmp_path)
    try:
        made = world.client.tell_front("boinc", "add-account", name="Ada", shows_name=True)
        account = made["account"]
        told = {
            "add-account": made, "show": world.client.tell_front("boinc", "show"),
            "invite": world.client.tell_front("boinc", "invite", uses=2),
            "new-key": world.client.tell_front("boinc", "new-key", account=account),
            "rotate": world.client.tell_front("boinc", "rotate"),
            "reload": world.client.tell_front("boinc", "reload"),
            "close": world.client.tell_front("boinc", "close", account=account),
        }  # fmt: skip
        for what, answer in told.items():
            assert check_shape("POST", f"/v1/pools/boinc/front/{what}", answer), what
        world.client.tell_front("boinc", "add-account", name="Ben", shows_name=True)
        volunteers = world.client.transport.get("/v1/volunteers")
        assert check_shape("GET", "/v1/volunteers", volunteers) and volunteers["volunteers"][0]["name"] == "Ben"
        paused = world.client.tell_pool("boinc", "pause")
        assert check_shape("POST", "/v1/pools/boinc/pause", paused)
    finally:
        world.cluster.close()
