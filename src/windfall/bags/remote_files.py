"""Files that stay where they lie: addresses of inputs and outputs in object stores and on the web. Pure.

Hosts fetch and store them with credentials of their own: an address that holds any is refused, because it is kept.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from windfall.errors import BadInput

SCHEMES = ("s3", "gs", "az", "https", "http")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
_DIGEST = re.compile(r"sha256=([0-9a-f]{64})")
_SECRETS = re.compile(r"sig$|signature|token|secret|password|credential|access_?key|api_?key|^key$", re.IGNORECASE)
MOST_CHARACTERS = 2048


def is_address(text: str) -> bool:
    """Is this an address, and no path?"""
    return _ADDRESS.match(text) is not None


def split_named(text: str) -> tuple[str, str] | None:
    """`NAME=URL`, or `URL` with the last part of its path as its name; None if it is no address."""
    if is_address(text):
        return urlsplit(text).path.rstrip("/").rpartition("/")[2], text
    name, equals, address = text.partition("=")
    return (name, address) if equals and is_address(address) else None


def split_digest(address: str, what: str) -> tuple[str, str]:
    """An address without `#sha256=...`, and that digest ("" if none is said)."""
    plain, mark, fragment = address.partition("#")
    if not mark:
        return plain, ""
    match = _DIGEST.fullmatch(fragment)
    if match is None:
        raise BadInput(f"{what}: '#{fragment[:40]}' is no digest", hint="as in: s3://bucket/file#sha256=0123...")
    return plain, match[1]


def check_address(address: str, what: str, *, output: bool = False) -> None:
    """Refuse what no host could use, and whatever holds a credential."""
    parts = urlsplit(address)
    shown = f"{parts.scheme}://{parts.hostname or ''}/..."
    if parts.scheme not in SCHEMES:
        raise BadInput(f"{what}: {shown} is of a kind that hosts do not know", hint=f"known are: {', '.join(SCHEMES)}")
    if parts.username is not None or parts.password is not None or _query_secrets(parts.query):
        raise BadInput(
            f"{what}: {shown} holds a credential, which would be kept in the log",
            hint="give credentials to the workers instead: roles, or variables such as AWS_ACCESS_KEY_ID",
        )
    if not parts.netloc or len(parts.path) < 2 or len(address) > MOST_CHARACTERS or "\0" in address:
        raise BadInput(f"{what}: {shown} names no file", hint="as in: s3://bucket/folder/file")
    if output and parts.scheme in ("http", "https"):
        raise BadInput(f"{what}: {shown} cannot be written to", hint="write to s3://, gs:// or az://")
    if output and "#sha256=" in address:
        raise BadInput(f"{what}: an output has no digest yet", hint="leave '#sha256=...' out")


def _query_secrets(query: str) -> bool:
    return any(_SECRETS.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))


def destination(output: str) -> tuple[str, str]:
    """The path or pattern of a declared output, and the address that it goes to ("": to the server)."""
    return split_named(output) or (output, "") if not is_address(output) else ("", output)
