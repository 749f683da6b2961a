"""The web pages that a server shows at `/`: plain HTML, CSS and JavaScript, read from this package. Decides nothing.

There is no build step and nothing comes from other hosts. The pages ask the HTTP API, as every other program does, and
show pictures that `windfall.figures` draws.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def read_static() -> dict[str, tuple[bytes, str, str]]:
    """By file name: the content, its type, and a tag that changes with it."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for entry in files(__name__).joinpath("static").iterdir():
        kind = KINDS.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            data = entry.read_bytes()
            found[entry.name] = (data, kind, f'"{sha256(data).hexdigest()[:16]}"')
    return found
