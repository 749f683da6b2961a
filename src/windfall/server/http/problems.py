"""Errors as answers: problem details (RFC 9457), with the older form beside them. Touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.responses import Response

from windfall.api.asking import Admission
from windfall.errors import Missed, WindfallError

PROBLEM = "application/problem+json"
EMPTY: Mapping[str, Any] = MappingProxyType({})


class TooLate(Missed):
    """A job that was to be rejected if its fleet is not in time. `admission`: what was found."""

    code = "too-late"

    def __init__(self, message: str, *, hint: str = "", admission: Admission) -> None:
        super().__init__(message, hint=hint)
        self.admission = admission


class TooSlow(WindfallError):
    """A simulation takes too long for a page."""

    code = "too-slow"


def problem(error: dict[str, Any], status: int, beside: Mapping[str, Any] = EMPTY) -> Response:
    """`error`: code, kind, message, hint and perhaps more. All of them are members of the problem, too.

    `beside`: more members of the problem alone.
    """
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    more = {name: value for name, value in error.items() if name != "message"}
    told = {
        "type": f"urn:windfall:error:{error['code']}", "title": title, "status": status, "detail": error["message"],
        **more, **beside, "error": error,
    }  # fmt: skip
    return Response(msgspec.json.encode(told), status, media_type=PROBLEM)
