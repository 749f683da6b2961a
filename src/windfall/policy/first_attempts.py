"""Whether a condition can hold for a task that has no running replicas. Pure.

JobRequirements is asked once for all such tasks of a bag: what differs from task to task (`Job.Losses`) is undefined
there. A condition that needs such a name would never be true, and no task of the bag would ever start.
"""

from __future__ import annotations

from typing import Literal

from windfall.policy.names import SHARED_BY_TASKS, Reference, resolve
from windfall.policy.syntax import Node

Surely = Literal["undefined", "not true"] | None
"""What the value is, whatever host asks; None: it depends. An error counts as undefined: neither is true."""
NEVER_UNDEFINED = ("=?=", "=!=", "is", "isnt")


def is_own_of_task(reference: Reference) -> bool:
    """Whether it names an attribute of Job that tasks without running replicas do not share."""
    return reference.ad == "Job" and bool(reference.steps) and reference.steps[0] not in SHARED_BY_TASKS


def surely(node: Node, text: str) -> Surely:
    """What is known of the node's value before any replica of the task runs."""
    if node.kind == "ref":
        return "undefined" if is_own_of_task(resolve(node.path)) else None
    if node.kind == "literal":
        word = text[node.start : node.end].lower()
        return "undefined" if word in ("undefined", "error") else "not true" if word == "false" else None
    values = [surely(each, text) for each in node.args]
    if node.kind in ("unary", "select"):
        return "undefined" if values[0] == "undefined" else None
    if node.kind == "binary":
        return _of_two(node.op, *values)
    if node.kind == "ternary":
        return _of_choice(values)
    return None


def _of_two(op: str, left: Surely, right: Surely) -> Surely:
    if op == "&&":
        return "not true" if left or right else None
    if op == "||":
        return "not true" if left and right else None
    if op in NEVER_UNDEFINED:
        return None
    return "undefined" if "undefined" in (left, right) else None


def _of_choice(values: list[Surely]) -> Surely:
    """`a ?: b` is b where a is undefined; `c ? a : b` is undefined where c is."""
    if len(values) == 2:
        return values[1] if values[0] == "undefined" else "not true" if all(values) else None
    if values[0] == "undefined":
        return "undefined"
    return "not true" if values[2] and (values[0] or values[1]) else None
