"""Errors as answers: problem details (RFC 9457), with the older form beside them. Touches nothing."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from windfall.errors import WindfallError

PROBLEM = "application/problem+json"


class TooSlow(WindfallError):
    """A simulation takes too long for a page."""

    code = "too-slow"


def problem(error: dict[str, Any], status: int) -> Response:
    """`error`: code, kind, message, hint and perhaps more. All of them are members of the problem, too."""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    more = {name: value for name, value in error.items() if name != "message"}
    told = {
        "type": f"urn:windfall:error:{error['code']}", "title": title, "status": status, "detail": error["message"],
        **more, "error": error,
    }  # fmt: skip
    return Response(msgspec.json.encode(told), status, media_type=PROBLEM)
