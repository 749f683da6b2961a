"""The OpenAPI document and problem details: made from the routes, as the reference page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from windfall import __version__
from windfall.server.http import openapi, routes

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


def test_an_error_is_a_problem_and_what_older_clients_read(server):
    status, headers, body = server.run(server.full("GET", "/v1/jobs/77"))
    told = json.loads(body)
    assert status == 404 == told["status"] and headers["content-type"] == "application/problem+json"
    assert told["type"] == "urn:windfall:error:no-such-job" and told["title"] == "Not Found"
    assert told["detail"] == told["error"]["message"] and told["code"] == told["error"]["code"] == "no-such-job"
    status, headers, body = server.run(server.full("GET", "/v1/nothing"))
    assert (status, headers["content-type"]) == (404, "application/problem+json")
