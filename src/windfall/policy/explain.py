"""Explains which clause of a condition decides, and by how much it fails. Touches classad2 through `evaluate` only.

Each clause is evaluated as an expression of its own by the code that decides, so the two cannot disagree: a condition
is true exactly when all of its clauses are `ok`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windfall.core.matching.policy import Clause
from windfall.policy.evaluate import Scopes, Special, expression, is_true, number, references
from windfall.policy.names import ADS
from windfall.policy.syntax import Node, flattened, parse, straighten, walk

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
EQUAL = ("==", "=?=", "is")
UNEQUAL = ("!=", "=!=", "isnt")


def clauses_of(policy: str, policies: Mapping[str, str], scopes: Scopes) -> list[Clause]:
    """The clauses of one condition of a bag, in the order of the text."""
    text = straighten(policies[policy])
    return _Explainer(policy, text, policies, scopes).clauses(parse(text), alone=True)


def shown(value: Any) -> str:
    """A value as a ClassAd writes it, short enough for a line."""
    if value is None or value is Special.UNDEFINED:
        return "undefined"
    if value is Special.ERROR:
        return "error"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f'"{value}"' if isinstance(value, str) else " ".join(str(value).split())


def plain(value: Any) -> Any:
    """A value that can be kept and sent: a number, a truth value, or a text."""
    return value if isinstance(value, (bool, int, float, str)) else shown(value)


class _Explainer:
    def __init__(self, policy: str, text: str, policies: Mapping[str, str], scopes: Scopes) -> None:
        self.policy, self.text, self.policies, self.scopes = policy, text, policies, scopes

    def clauses(self, node: Node, alone: bool) -> list[Clause]:
        """`alone`: the value is the condition itself, where a number is not true, as it is on a side of &&."""
        parts = flattened(node, "&&")
        alone = alone and len(parts) == 1
        return [clause for part in parts for clause in self.clause(part, alone)]

    def clause(self, node: Node, alone: bool) -> list[Clause]:
        if node.kind == "ternary" and node.op == "?":
            return self.branch(node, alone)
        value = self.value(node)
        ok = is_true(value) if alone else holds(value)
        if node.kind == "binary" and node.op in (*MIRRORED, *EQUAL, *UNEQUAL):
            return [self.comparison(node, value, ok)]
        if node.kind == "binary" and node.op == "||" and not ok:
            return [self.alternatives(node, value)]
        return [self.made(node, value, ok, self.named_values(node, value))]

    def branch(self, node: Node, alone: bool) -> list[Clause]:
        """Of `condition ? one : other`, the condition as a remark and the clauses of the side that it chooses."""
        condition, yes, no = node.args
        value = self.value(condition)
        decided = isinstance(value, (bool, int, float))
        remark = f"so {self.shown(yes if holds(value) else no)} decides" if decided else "cannot choose a side"
        head = self.made(condition, value, decided, remark)
        return [head, *self.clauses(yes if holds(value) else no, alone)] if decided else [head]

    def alternatives(self, node: Node, value: Any) -> Clause:
        """A disjunction that fails is explained by the side with the fewest failing clauses, at best a distance."""
        misses = [
            [clause for clause in self.clauses(side, alone=False) if not clause.ok] for side in flattened(node, "||")
        ]
        nearest = min(misses, key=lambda failing: (len(failing), any(clause.missing is None for clause in failing)))
        if not nearest:  # One side is true, and an error on another side spoils it.
            return self.made(node, value, False, self.named_values(node, value))
        detail = "nearest: " + " and ".join(clause.detail for clause in nearest)
        single = nearest[0] if len(nearest) == 1 else None
        return Clause(
            policy=self.policy,
            text=self.shown(node),
            value=plain(value),
            ok=False,
            detail=detail,
            attribute=single.attribute if single else "",
            actual=single.actual if single else None,
            wanted=single.wanted if single else None,
            missing=single.missing if single else None,
        )

    def comparison(self, node: Node, value: Any, ok: bool) -> Clause:
        subject, bound = node.args
        op = node.op
        if self.interest(bound) > self.interest(subject):
            subject, bound, op = bound, subject, MIRRORED.get(op, op)
        actual, wanted = self.value(subject), self.value(bound)
        missing = None if ok else _distance(op, actual, wanted)
        return Clause(
            policy=self.policy,
            text=self.shown(node),
            value=plain(value),
            ok=ok,
            detail=f"{self.written(subject)} is {shown(actual)}{'' if ok else _why(op, actual, wanted, missing)}",
            attribute=self.written(subject),
            actual=plain(actual),
            wanted=plain(wanted),
            missing=missing,
        )

    def interest(self, node: Node) -> int:
        """The side to report on: what a host offers before what a bag or a task asks for, and constants last."""
        ranks = [len(ADS) - ADS.index(r.ad) if r.ad in ADS else 1 for r in references(self.written(node))]
        return max(ranks, default=0)

    def named_values(self, node: Node, value: Any) -> str:
        names = dict.fromkeys(self.written(inner) for inner in walk(node) if inner.kind == "ref")
        named = [f"{name} is {shown(expression(name, self.policies).value(self.scopes))}" for name in names]
        return ("cannot be evaluated: " if value is Special.ERROR else "") + ", ".join(named)

    def made(self, node: Node, value: Any, ok: bool, detail: str) -> Clause:
        return Clause(policy=self.policy, text=self.shown(node), value=plain(value), ok=ok, detail=detail)

    def value(self, node: Node) -> Any:
        return expression(self.written(node), self.policies).value(self.scopes)

    def written(self, node: Node) -> str:
        return self.text[node.start : node.end]

    def shown(self, node: Node) -> str:
        return " ".join(self.written(node).split())


def holds(value: Any) -> bool:
    """Whether `&&` and `?` take it as true, which includes every number except zero."""
    return is_true(value) or (isinstance(value, (int, float)) and value != 0)


def _distance(op: str, actual: Any, wanted: Any) -> float | None:
    have, want = number(actual), number(wanted)
    if op not in MIRRORED or have is None or want is None:
        return None
    return abs(want - have)


def _why(op: str, actual: Any, wanted: Any, missing: float | None) -> str:
    if missing is not None:
        if missing == 0:
            return f", which must be {'more' if op == '>' else 'less'} than that"
        return f", {shown(missing)} {'short of' if op in ('>', '>=') else 'above'} {shown(wanted)}"
    if wanted is Special.UNDEFINED and op not in (*EQUAL, *UNEQUAL):
        return ", and the other side is undefined"
    if actual is Special.UNDEFINED and op not in ("=?=", "=!=", "is", "isnt"):
        return ""
    if op in EQUAL:
        return f", not {shown(wanted)}"
    return ", which is excluded" if op in UNEQUAL else f", which cannot be compared with {shown(wanted)}"
