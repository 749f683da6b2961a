"""Placeholders in commands, compiled once and filled in by us, never by a shell. Pure.

    {}    the parameter         {/}   its last part (a/b.txt -> b.txt)        {column}  a column of a row; also
    {.}   without extension     {//}  its directory (. if there is none)                {column.} {column/} ...
    {#}   its number, from 0    {/.}  last part without extension             {{x}}     a literal {x}

Braces round anything else, as in awk '{print $1}', are left alone.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from windfall.errors import BadInput

BRACES = re.compile(r"\{\{([^{}]*)\}\}|\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][\w-]*)(/\.|//|/|\.)?\Z")
_NUMBERED = re.compile(r"\{(\d+)\}")
"""A word as GNU parallel has it for a column: {2}. Inside of a word it is a literal, as in the pattern x{2}."""

Getter = Callable[[int, Any], str]


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


OPERATIONS: dict[str, Callable[[str], str]] = {
    ".": _stem,
    "/": posixpath.basename,
    "//": lambda path: posixpath.dirname(path) or ".",
    "/.": lambda path: _stem(posixpath.basename(path)),
}


class Template:
    """Texts with placeholders. `fill(index, parameter)` gives the texts of one task.

    All texts are one format string with NUL between them (no parameter contains a NUL): one formatting and one split
    cost about a microsecond, whatever the number of texts.
    """

    def __init__(self, texts: Sequence[str], getters: Sequence[Getter]) -> None:
        self.texts = list(texts)
        self._format = "\0".join(texts)
        self._getters = list(getters)

    @property
    def has_placeholders(self) -> bool:
        return bool(self._getters)

    def fill(self, index: int, parameter: Any) -> list[str]:
        """The texts of the task `index` (from 0)."""
        return (self._format % tuple([get(index, parameter) for get in self._getters])).split("\0")


class Scope:
    """What placeholders may stand for: the one parameter of a line, or columns. `where` names the source in errors."""

    def __init__(self, columns: Sequence[str] = (), *, single: bool = False, where: str = "") -> None:
        self.columns = list(columns)
        self.single = single
        self.where = where

    def getter(self, inner: str) -> Getter | None:
        """What `{inner}` stands for; None if it is no placeholder at all."""
        if inner == "#":
            return lambda index, _: str(index)
        if self.single and inner == "":
            return lambda _, parameter: parameter
        if self.single and (operation := OPERATIONS.get(inner)):
            return lambda _, parameter: operation(parameter)
        if inner in self.columns:
            column = self.columns.index(inner)
            return lambda _, row: row[column]
        for suffix in ("/.", "//", "/", "."):
            name = inner.removesuffix(suffix)
            if name != inner and name in self.columns:
                column, change = self.columns.index(name), OPERATIONS[suffix]
                return lambda _, row: change(row[column])
        return None

    def looks_meant(self, inner: str) -> bool:
        """Would a person have meant `{inner}` as a placeholder?"""
        if inner in OPERATIONS or inner in ("", "#") or _NAME.match(inner):
            return True
        # Columns may have names that are no words, as in {wall time}: a name close to one of them is a typing error,
        # not a literal.
        return bool(get_close_matches(inner, self.columns, n=1, cutoff=0.8))

    def unknown(self, inner: str, what: str) -> BadInput:
        """The error about a placeholder that stands for nothing here."""
        match = _NAME.match(inner)
        name = match[1] if match else inner
        if self.columns and name:
            near = get_close_matches(name, self.columns, n=1)
            hint = f"did you mean {{{near[0]}}}?" if near else f"{{{{{inner}}}}} is a literal {{{inner}}}."
            columns = ", ".join(self.columns)
            message = (
                f"{self.where or 'the source'} has no column '{name}' (used in {what}); its columns are: {columns}"
            )
            return BadInput(message, hint=f"{hint}  Nothing was started.")
        if self.columns:
            wanted = " ".join(f"{{{column}}}" for column in self.columns[:8])
            return BadInput(
                f"{{{inner}}} in {what} says nothing about which column of {self.where or 'the source'} is meant",
                hint=f"use its columns: {wanted}.  Nothing was started.",
            )
        known = "{} {.} {/} {//} {/.} {#}" if self.single else "{#}"
        return BadInput(
            f"unknown placeholder {{{inner}}} in {what}",
            hint=f"known here: {known}; {{{{{inner}}}}} is a literal {{{inner}}}.  Nothing was started.",
        )


def compile_texts(texts: Sequence[str], scope: Scope, what: str = "the command") -> Template:
    """Texts with their placeholders found. BadInput if one stands for nothing in this scope."""
    getters: list[Getter] = []
    compiled = [_compile_text(text, scope, what, getters) for text in texts]
    return Template(compiled, getters)


def _compile_text(text: str, scope: Scope, what: str, getters: list[Getter]) -> str:
    """A text as a format string; what fills it is added to `getters`."""
    pieces, position = [], 0
    for match in BRACES.finditer(text):
        quoted, inner = match.groups()
        pieces.append(text[position : match.start()].replace("%", "%%"))
        position = match.end()
        if quoted is not None:
            literal = f"{{{quoted}}}" if scope.looks_meant(quoted) else match[0]
            pieces.append(literal.replace("%", "%%"))
        elif getter := scope.getter(inner):
            getters.append(getter)
            pieces.append("%s")
        elif scope.looks_meant(inner):
            raise scope.unknown(inner, what)
        else:
            pieces.append(match[0].replace("%", "%%"))
    pieces.append(text[position:].replace("%", "%%"))
    return "".join(pieces)


def with_parameter(command: Sequence[str], scope: Scope, elsewhere: Sequence[str] = ()) -> list[str]:
    """The command, with `{}` behind it if nothing says where the parameter goes, as GNU parallel does.

    `elsewhere`: other templates of the task (standard input, outputs) in which it may be used instead. With columns
    there is no telling which one is meant: BadInput.
    """
    for word in command:
        if (numbered := _NUMBERED.fullmatch(word)) and scope.getter(numbered[1]) is None:
            raise BadInput(
                f"{word} in the command: columns have no numbers here",
                hint=f"write {' '.join(f'{{{column}}}' for column in scope.columns) or '{}'}.  Nothing was started.",
            )
    if compile_texts([*command, *elsewhere], scope).has_placeholders:
        return list(command)
    if scope.single:
        return [*command, "{}"]
    columns = ", ".join(f"{{{column}}}" for column in scope.columns)
    raise BadInput(
        f"the command uses no column of {scope.where or 'the source'}: {' '.join(command)}",
        hint=f"its columns are {columns}; {{#}} is the number of the task.  Nothing was started.",
    )
