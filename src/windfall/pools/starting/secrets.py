"""Tokens of pools: narrowed to one host, made tickets, and taken out of texts that others wrote. Pure."""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

_TOKEN = re.compile(
    r"wfp_[A-Za-z0-9._-]{1,60}_[0-9a-f]+_[0-9a-f]+(?:~[A-Za-z0-9._-]+(?:~once)?)?_[0-9a-f]{64}|wf_[0-9a-f]{8}_[A-Za-z0-9_-]{20,}"
)
ONCE = "once"
"""Marks a ticket."""
_OF_POOL = re.compile(r"(?P<said>wfp_[A-Za-z0-9._-]{1,60}_[0-9a-f]+_[0-9a-f]+)_(?P<signature>[0-9a-f]{64})\s*")


def without_tokens(text: str) -> str:
    """The text without access tokens of ours: what a provider says is logged and shown to people."""
    return _TOKEN.sub("wf_(a token)", text)


def narrowed(token: str, host: str) -> str:
    """The token of a pool made good for one host alone: who has it cannot widen it again. Other texts stay as they are.

    The signature of the whole token is the key of the narrow one's, so that no key of the server is needed here.
    """
    return _for(token, host)


def ticket(token: str, host: str) -> str:
    """The token of a pool made good for one enrolment of one host, for places that tasks can read.

    Once the host has shown a secret, the ticket is good together with that secret alone.
    """
    return _for(token, f"{host}~{ONCE}")


def _for(token: str, limits: str) -> str:
    found = _OF_POOL.fullmatch(token)
    if found is None:
        return token
    return f"{found['said']}~{limits}_{narrowed_signature(found['signature'], limits)}"


def narrowed_signature(signature: str, limits: str) -> str:
    return hmac.new(signature.encode(), limits.encode(), sha256).hexdigest()
