"""Texts that tasks, hosts or users named, made harmless: to look at, to compute, to use as a path. Pure.

A terminal obeys sequences of control characters: they move the cursor, change the title, type into the keyboard's
buffer. Invisible characters reorder what is read. Both are shown as signs instead.
"""

from __future__ import annotations

import re
from typing import Any

_INVISIBLE = "\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_CONTROL = re.compile(f"[{_INVISIBLE}]")
# Kept on a terminal: ends of lines, tabs, and sequences that only choose a colour or a weight.
_ON_TERMINALS = re.compile(rf"\r\n|\n|\t|\x1b\[[0-9;:]*m|(?P<sign>[{_INVISIBLE}])")


def visible(text: str) -> str:
    """One line: every control character, the end of a line too, becomes a sign."""
    return _CONTROL.sub(lambda found: _sign(found[0]), text)


def for_terminal(text: str) -> str:
    """The text without anything that a terminal would obey, apart from colours, tabs and ends of lines."""
    if text.isascii() and text.isprintable():
        return text
    return _ON_TERMINALS.sub(lambda found: _sign(found["sign"]) if found["sign"] else found[0], text)


def for_spreadsheet(text: str) -> str:
    """A cell that a spreadsheet shows and does not compute. Numbers stay numbers."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def as_folder(name: str) -> str:
    """The name of one folder, which lies in the folder where it is made."""
    safe = visible(name).replace("/", "_")
    return f"_{safe}" if safe in ("", ".", "..") else safe


def harmless(document: Any) -> Any:
    """A JSON document whose texts are `visible`."""
    if isinstance(document, str):
        return visible(document)
    if isinstance(document, dict):
        return {key: harmless(value) for key, value in document.items()}
    return [harmless(value) for value in document] if isinstance(document, list) else document


def _sign(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 32 else f"\\u{code:04x}"
