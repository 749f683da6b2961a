"""The page of the HTTP interface names every route of the server, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from windfall.server.http import routes

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "http-api.md").read_text()
ROW = re.compile(r"^\| (?P<requests>`.+?) \| (?P<roles>[a-z ]+) \| ", re.MULTILINE)
REQUEST = re.compile(r"(?P<methods>(?:(?:GET|POST|PUT|DELETE|HEAD)(?:`, `)?)+) (?P<path>/[\w/.-]*)")


def documented() -> list[tuple[str, str, str]]:
    """(method, path, roles) of every request that the tables name."""
    found = []
    for row in ROW.finditer(PAGE):
        for request in REQUEST.finditer(row["requests"]):
            found += [(method, request["path"], row["roles"]) for method in re.findall("[A-Z]+", request["methods"])]
    return found


def handler_of(method: str, path: str) -> tuple[str, str] | None:
    """Path and role of the first route that takes the request."""
    for route, takes, _, role, _ in routes.ROUTES:
        if takes == method and re.fullmatch(re.sub(r"\{\w+\}", r"[\\w.]+", route), path):
            return route, role
    return None


def test_every_request_of_the_page_has_a_route():
    assert [(method, path) for method, path, _ in documented() if handler_of(method, path) is None] == []


def test_every_route_is_on_the_page():
    named = {(method, found[0]) for method, path, _ in documented() if (found := handler_of(method, path))}
    assert [(method, route) for route, method, *_ in routes.ROUTES if (method, route) not in named] == []


def test_the_page_names_the_role_that_a_request_needs():
    said = {"": "none", "blobs": "worker or submit", "site": "worker"}
    wrong = []
    for method, path, roles in documented():
        if found := handler_of(method, path):
            role = said.get(found[1], found[1])
            wrong += [(method, path, roles, role)] * (roles.strip() != role)
    assert wrong == []
