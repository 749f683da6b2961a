"""The OpenAPI document and problem details: made from the routes, as the reference page says."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

import msgspec
import pytest

from tests.support.server.asgi import InProcess
from tests.support.server.shapes import UNTOLD, check_shape
from windfall import __version__
from windfall.api import about, answers, asking, explained, market, renting, requests, small
from windfall.bags.outline import Outline
from windfall.client import Client, Job
from windfall.errors import BadInput
from windfall.server.http import admin, openapi, routes, submission, workflows
from windfall.server.http.supply import fleets, machines, pools
from windfall.server.http.supply import market as of_market
from windfall.server.queries import by_pool, jobs
from windfall.server.queries.pictures import drawn
from windfall.server.queries.renting import admission, money

NAMES = {"Outline": Outline} | {
    name: value
    for room in (small, renting, explained, answers, asking, market, about)
    for name, value in vars(room).items()
}
"""What the annotations of the client name."""
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "http-api.md").read_text()


@pytest.fixture
def server(tmp_path):
    with InProcess(tmp_path) as made:
        yield made


def test_the_document_has_every_route_with_its_role_and_body(server):
    status, told = server.get("/openapi.json")
    assert status == 200 and told["openapi"].startswith("3.") and told["info"]["version"] == __version__
    for path, method, name, role, _ in routes.ROUTES:
        if path in openapi.PAGES:
            continue
        operation = told["paths"][path][method.lower()]
        assert ("security" in operation) == bool(role)
        assert {each["name"] for each in operation["parameters"] if each["in"] == "path"} == set(
            re.findall(r"{(\w+)}", path)
        )
        if routes.handler_of(name) in openapi.BODIES:
            reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            assert reference.rpartition("/")[2] in told["components"]["schemas"]
    names = [each["operationId"] for path in told["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))


def test_queries_are_those_of_the_reference_page():
    said = {}
    for path, query in re.findall(r"`GET (/[^`?]+)\?([^`]+)`", PAGE):
        route = next(row[0] for row in routes.ROUTES if row[1] == "GET" and matches(row[0], path))
        said[route] = {part.partition("=")[0] for part in query.split("&")}
    assert {route: names - set(openapi.QUERIES[route]) for route, names in said.items()} == {
        route: set() for route in said
    }
    assert set(openapi.QUERIES) == set(said)


def matches(route, path):
    return re.fullmatch(re.sub(r"{\w+}", "[A-Z]+", route), path)


def test_every_answer_in_json_has_a_shape_with_named_members():
    told = openapi.made()
    untyped = []
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            content = operation["responses"]["2XX"].get("content", {}).get("application/json")
            if content is not None and not all(map(has_members(told), alternatives(content["schema"]))):
                untyped.append(f"{method} {path}")
    assert untyped == []


def alternatives(schema):
    return schema.get("anyOf", [schema])


def has_members(told):
    def found(schema):
        name = schema.get("$ref", "").rpartition("/")[2]
        return bool((told["components"]["schemas"][name] if name else schema).get("properties"))

    return found


def test_no_shape_holds_an_object_of_which_nothing_is_said():
    told = openapi.made()["components"]["schemas"]
    shapes = {each.__name__ for shape in openapi.SHAPES.values() for each in shapes_in(shape)}
    bare = {
        f"{name}.{member}"
        for name in shapes
        for member, schema in told[name]["properties"].items()
        if not schema.keys() - {"default", "description"} or schema == {"type": "object"}
    }
    assert bare == FREE


FREE = {"EventRow.event", "EventRow.decided", "HostRow.ad", "OneHost.ad", "Rendered.overrides", "OneClass.spec"}
"""Records are told in docs/reference/protocol.md; the others hold what users and hosts named."""


def shapes_in(shape):
    """The dictionaries of a shape and of what it holds."""
    if typing.is_typeddict(shape):
        return {shape}.union(*map(shapes_in, typing.get_type_hints(shape).values()))
    return set().union(*map(shapes_in, typing.get_args(shape)))


def test_a_server_that_is_not_ready_says_so_as_a_problem(server):
    status, headers, body = server.run(server.full("GET", "/readyz"))
    told = json.loads(body)
    assert status == 503 == told["status"] and headers["content-type"] == "application/problem+json"
    assert told["ok"] is False and told["error"]["code"] == told["code"] == "not-ready"


def test_an_error_is_a_problem_and_what_older_clients_read(server):
    status, headers, body = server.run(server.full("GET", "/v1/jobs/77"))
    told = json.loads(body)
    assert status == 404 == told["status"] and headers["content-type"] == "application/problem+json"
    assert told["type"] == "urn:windfall:error:no-such-job" and told["title"] == "Not Found"
    assert told["detail"] == told["error"]["message"] and told["code"] == told["error"]["code"] == "no-such-job"
    status, headers, body = server.run(server.full("GET", "/v1/nothing"))
    assert (status, headers["content-type"]) == (404, "application/problem+json")


def test_answers_have_the_shapes_that_the_document_names(server):
    job = server.submit(3)
    server.exchange("desk", want=2)
    for path, handler in (
        ("/v1/jobs", jobs.jobs), (f"/v1/jobs/{job}", jobs.job), (f"/v1/jobs/{job}/tasks", jobs.tasks),
        ("/v1/hosts", jobs.hosts), ("/v1/hosts/desk", jobs.host), (f"/v1/jobs/{job}/pools", by_pool.pools),
        (f"/v1/jobs/{job}/pictures", drawn.of_job), ("/v1/pools", pools.listed),
    ):  # fmt: skip
        status, told = server.get(path)
        assert status == 200 and check_shape("GET", path, told), path
        assert set(told) - UNTOLD == set(openapi.SHAPES[handler].__annotations__), path
    told = server.post(f"/v1/jobs/{job}/change", {"priority": 3})[1]
    assert msgspec.convert(told, answers.JobStatus)["priority"] == 3
    assert set(told) == set(answers.JobStatus.__annotations__)
    rows = server.get(f"/v1/jobs/{job}/tasks")[1]["tasks"]
    assert {key for row in rows for key in row} <= set(answers.TaskRow.__annotations__)
    assert msgspec.convert(server.post(f"/v1/jobs/{job}/cancel", {})[1], answers.Cancelled)


def test_the_python_client_returns_and_sends_the_shapes_of_the_document():
    returned = {
        Job.status: jobs.job, Job.change: submission.change, Client.host: jobs.host,
        Client.create_token: admin.create_token, Client.pool_states: pools.listed, Client.fleet: fleets.one,
        Client.fleet_cost: fleets.cost, Client.create_fleet: fleets.create, Client.machines: machines.machines,
        Client.ask_fleet: admission.ask, Client.import_series: of_market.import_, Client.poke: machines.poke,
        Client.remove_pool: pools.remove, Job.unfinished: money.unfinished,
        Job.explain: jobs.explain, Job.cost: money.cost, Job.render: jobs.render, Job.graph: workflows.graph,
    }  # fmt: skip
    for method, handler in returned.items():
        hints = typing.get_type_hints(method, localns=NAMES)
        assert hints["return"] is openapi.SHAPES[handler], method
    for method, handler in ((Client.tell_pool, pools.switch), (Client.tell_front, pools.front)):
        assert typing.get_type_hints(method, localns=NAMES)["return"] == openapi.SHAPES[handler], method
    for method, item, handler in (
        (Client.jobs, "jobs", jobs.jobs), (Job.tasks, "tasks", jobs.tasks), (Job.groups, "groups", jobs.groups),
        (Client.fleets, "fleets", fleets.fleets), (Client.tokens, "tokens", admin.list_tokens),
        (Client.market, "offers", of_market.show),
    ):  # fmt: skip
        (row,) = typing.get_args(typing.get_type_hints(method, localns=NAMES)["return"])
        assert typing.get_args(typing.get_type_hints(openapi.SHAPES[handler])[item]) == (row,)
    for handler, body in {
        submission.cancel: requests.CancelBody, submission.retry: requests.RetryBody,
        submission.change: requests.Changes, admin.create_token: requests.TokenBody,
    }.items():  # fmt: skip
        assert openapi.BODIES[handler] is body


def test_a_change_that_cannot_be_is_refused_before_it_is_sent():
    with pytest.raises(BadInput, match="prioritie"):
        requests.changes_from({"prioritie": 3})
