"""How long a text can become that an expression makes, whatever the ads say. Pure.

A few functions multiply: nine nested replaceAll() would make ten billion characters of ten, in the server's memory and
on its loop. An expression that could make more than `MAX_CHARACTERS` is refused before anything evaluates it.
"""

from __future__ import annotations

from windfall.policy.names import resolve
from windfall.policy.syntax import Node

MAX_CHARACTERS = 4 << 20
OF_ATTRIBUTE = 32 << 10
"""The longest value of an attribute: an ad has no more than that."""
OF_NUMBER = 400
"""The longest text of a number."""
REPLACING = frozenset({"replace", "replaceall", "regexps"})
MATCHING = REPLACING | {"regexp", "regexpmember"}
"""Functions whose first argument is a pattern."""


def longest(node: Node) -> int:
    """The most characters of the node's value; of a list, of all its elements together."""
    if node.kind == "literal":
        return node.end - node.start
    if node.kind == "ref":
        return MAX_CHARACTERS // 2 if resolve(node.path).ad == "Policy" else OF_ATTRIBUTE
    sizes = [longest(each) for each in node.args]
    name = node.op.lower() if node.kind == "call" else ""
    if name in REPLACING and len(sizes) >= 3:
        # Each match is replaced by the text, and each mark in it (\1) by no more than the match.
        return (sizes[1] + 1) * (2 * sizes[2] + 1)
    if name == "join" and sizes:
        return sum(sizes) + sizes[0] * sum(_elements(each) for each in node.args[1:])
    return sum(sizes) + OF_NUMBER


def _elements(node: Node) -> int:
    """The most elements of a list."""
    if node.kind == "list":
        return sum(_elements(each) for each in node.args)
    return OF_ATTRIBUTE // 2 if node.kind in ("ref", "call", "ternary", "select", "subscript") else 1
