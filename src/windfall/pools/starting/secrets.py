"""Tokens taken out of texts that others wrote: an echoed script, a command line in an error. Pure."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"wfp_[A-Za-z0-9._-]{1,60}_[0-9a-f]+_[0-9a-f]+_[0-9a-f]{64}|wf_[0-9a-f]{8}_[A-Za-z0-9_-]{20,}")


def without_tokens(text: str) -> str:
    """The text without access tokens of ours: what a provider says is logged and shown to people."""
    return _TOKEN.sub("wf_(a token)", text)
