"""`GET /openapi.json`: the HTTP interface as an OpenAPI document, made from the table of routes and from the structs
that requests are read into. Touches nothing.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windfall import __version__
from windfall.api import requests
from windfall.bags.outline import Outline
from windfall.core.state.jobs.columns import STATE_NAMES
from windfall.server.auth import ALLOWED
from windfall.server.http import admin, submission
from windfall.server.http.console import sessions
from windfall.server.http.routes import ROUTES, handler_of
from windfall.server.http.shapes import SHAPES, parts_of
from windfall.server.http.supply import doctor, fleets, market, pools
from windfall.server.queries import trying
from windfall.server.queries.renting import admission, what_if
from windfall.server.service import Service
from windfall.server.sites import api as sites
from windfall.wire import frames
from windfall.wire.messages import CAUSES

Json = dict[str, Any]

FRAME, JSON, PROBLEM = frames.CONTENT_TYPE, "application/json", "application/problem+json"
WHOLE: Json = {"type": "integer", "minimum": 0}
SECONDS: Json = {"type": "number", "minimum": 0, "maximum": 30}
TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "string", "enum": ["0", "1"]}
PAGE = {"after": WHOLE, "limit": WHOLE}
QUERIES: dict[str, dict[str, Json]] = {
    "/v1/jobs": {"state": TEXT, "limit": WHOLE, "before": WHOLE},
    "/v1/jobs/{job}": {"wait_s": SECONDS, "version": WHOLE, "ended": FLAG},
    "/v1/jobs/{job}/parameters": {"tasks": WHOLE},
    "/v1/jobs/{job}/tasks": {
        "state": {"type": "string", "enum": [*STATE_NAMES]}, "cause": {"type": "string", "enum": [*CAUSES]},
        "host": TEXT, **PAGE, "name": TEXT,
    },
    "/v1/jobs/{job}/commands": PAGE,
    "/v1/jobs/{job}/usage": {"after": WHOLE},
    "/v1/jobs/{job}/results": {**PAGE, "tasks": TEXT},
    "/v1/jobs/{job}/completed": {**PAGE, "wait_s": SECONDS},
    "/v1/jobs/{job}/output/{task}": {
        "attempt": WHOLE, "stdout_from": WHOLE, "stderr_from": WHOLE, "wait_s": SECONDS,
    },
    "/v1/jobs/{job}/explain": {"task": TEXT},
    "/v1/events": {**PAGE, "job": TEXT, "wait_s": SECONDS},
    "/v1/timeouts": {"pool": TEXT},
    "/v1/hosts": {"state": TEXT, "limit": WHOLE, "after": TEXT},
    "/v1/machines": {"pool": TEXT, "job": TEXT, "there": FLAG, "limit": WHOLE},
    "/v1/machines/pictures": {"fleet": TEXT},
    "/v1/decisions": {"job": TEXT, "limit": WHOLE, "before": WHOLE, "acted": FLAG},
    "/v1/site/requests": {"site": TEXT, "state": TEXT},
    "/v1/site/requests/{request}": {"wait_s": SECONDS, "state": TEXT},
}  # fmt: skip
"""What may stand behind the question mark of a GET."""
BODIES: dict[Any, type] = {
    sessions.sign_in: sessions.SignInBody,
    submission.submit: requests.SubmitBody,
    submission.cancel: requests.CancelBody,
    submission.retry: requests.RetryBody,
    submission.change: requests.Changes,
    admission.ask: Outline,
    doctor.doctor: requests.DoctorBody,
    fleets.create: requests.FleetBody,
    fleets.change: requests.FleetChangeBody,
    market.import_: market.ImportBody,
    pools.add: requests.AddBody,
    pools.switch: requests.SwitchBody,
    pools.front: requests.FrontBody,
    pools.remove: requests.RemoveBody,
    sites.create: sites.SiteBody,
    sites.change: sites.SiteChangeBody,
    sites.ask: sites.RequestBody,
    sites.cancel: sites.CancelRequestBody,
    trying.test: trying.TryBody,
    what_if.what_if: what_if.WhatIfBody,
    admin.create_token: requests.TokenBody,
    admin.rotate_token: requests.RotateBody,
    admin.host_action: requests.HostBody,
}
"""What the JSON body of a request is read into."""
ANSWERS = {
    "/v1/jobs/{job}/results": FRAME, "/v1/jobs/{job}/completed": FRAME, "/v1/jobs/{job}/output/{task}": FRAME,
    "/v1/site/requests/{request}/output": FRAME, "/v1/site/exchange": FRAME, "/worker.pyz": "application/zip",
    "/v1/blobs/{sha}": "application/octet-stream", "/v1/stream": "text/event-stream", "/metrics": "text/plain",
}  # fmt: skip
"""What is answered other than JSON."""
SENT = {"/v1/jobs/{job}/tasks": FRAME, "/v1/site/exchange": FRAME, "/v1/blobs/{sha}": "application/octet-stream"}
"""What is sent other than JSON."""
PAGES = ("/", "/console/{file}")
"""For browsers: no part of the interface."""


async def document(service: Service, request: Request) -> Response:
    return Response(_encoded(), media_type=JSON)


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(made())


def made() -> Json:
    """The document."""
    answers = [part for shape in SHAPES.values() for part in parts_of(shape)]
    types = list(dict.fromkeys([*BODIES.values(), *answers]))
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shape = dict(zip(types, schemas, strict=True))
    paths: dict[str, Json] = {}
    for path, method, name, role, _ in ROUTES:
        if path not in PAGES:
            paths.setdefault(path, {})[method.lower()] = _operation(path, method, handler_of(name), role, shape)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windfall", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM_SHAPE},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "console": {"type": "apiKey", "in": "cookie", "name": sessions.COOKIE},
            },
        },
    }


def _operation(path: str, method: str, handler: Any, role: str, shape: dict[Any, Json]) -> Json:
    says = " ".join((handler.__doc__ or "").split())
    told: Json = {
        "operationId": f"{method.lower()}{re.sub(r'[^a-z]+', '_', path).rstrip('_')}",
        "summary": says.split(". ")[0] or f"{method} {path}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in re.findall(r"{(\w+)}", path)
        ] + [
            {"name": name, "in": "query", "schema": schema}
            for name, schema in (QUERIES.get(path, {}) if method == "GET" else {}).items()
        ],
        "responses": {
            "2XX": {"description": "done", **_answer(path, method, _shaped(handler, shape))},
            "default": {"description": "an error", "content": _problem()},
        },
    }  # fmt: skip
    if role:
        told["security"] = [{"token": []}, {"console": []}]
        told["x-roles"] = sorted(ALLOWED[role] - {"pool"})
    if handler in BODIES:
        told["requestBody"] = {"content": {JSON: {"schema": shape[BODIES[handler]]}}}
    elif method in ("POST", "PUT") and path in SENT:
        told["requestBody"] = {"content": {SENT[path]: {}}}
    return told


def _shaped(handler: Any, shape: dict[Any, Json]) -> Json:
    """The schema of what a handler answers; `anyOf` of a union, which msgspec does not read."""
    if handler not in SHAPES:
        return SELF_SHAPE if handler is document else {}
    parts = [shape[part] for part in parts_of(SHAPES[handler])]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _answer(path: str, method: str, shape: Json) -> Json:
    if method in ("HEAD", "PUT") or (path, method) == ("/v1/console/session", "DELETE"):
        return {}
    kind = ANSWERS.get(path, JSON) if method == "GET" or (path in SENT and ANSWERS.get(path)) else JSON
    return {"content": {kind: {"schema": shape} if kind == JSON else {}}}


def _problem() -> Json:
    return {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}


SELF_SHAPE: Json = {
    "type": "object",
    "description": "This document: OpenAPI 3.1.",
    "required": ["openapi", "info", "paths", "components"],
    "properties": {
        "openapi": TEXT,
        "info": {"type": "object", "required": ["title", "version"]},
        "paths": {"type": "object", "additionalProperties": {"type": "object"}},
        "components": {"type": "object", "required": ["schemas", "securitySchemes"]},
    },
}
PROBLEM_SHAPE: Json = {
    "type": "object",
    "description": "Problem details (RFC 9457); `error` holds the same, as clients of older versions read it.",
    "required": ["type", "title", "status", "detail", "code", "error"],
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "code": TEXT,
        "kind": TEXT,
        "hint": TEXT,
        "retryable": {"type": "boolean"},
        "error": {"type": "object"},
    },
}
