"""Compiled policies agree with two references on random expressions and ads, and remembering changes no answer.

One reference is written here from the definition of ClassAds: three-valued logic with errors. The other is classad2
itself on one nested ad, as in GridBot's figure 3, which shares none of our resolving, flattening and remembering.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from classad2 import ClassAd, ExprTree, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.policy import ClassAdPolicy, check_policies
from windfall.policy import evaluate as evaluation
from windfall.policy.evaluate import Special

UNDEFINED, ERROR = Special.UNDEFINED, Special.ERROR
NAMES = [
    *[("Host", name) for name in ("Memory", "Cpus", "ErrorRate", "Blocked", "gpu")],
    *[("BOT", name) for name in ("JobsLeft", "Tail", "project")],
    ("Job", "NumberOfReplicas"),
    ("Queue", "BOTsInQueue"),
    ("Pool", "Price"),
]
ADS = ("Host", "Job", "BOT", "Queue", "Pool")

# Small numbers, so that no product of a small tree leaves 64 bits; halves, so that every real is exact.
numbers = st.integers(-9, 9) | st.integers(-18, 18).map(lambda n: n / 2)
texts = st.sampled_from(["a", "A", "b"])
values = st.booleans() | numbers | texts
Tree = tuple[Any, ...]


@st.composite
def ads(draw: st.DrawFn) -> tuple[dict[str, dict[str, Any]], float]:
    made: dict[str, dict[str, Any]] = {ad: {} for ad in ADS}
    made["Host"]["Slots"] = 4  # The engine sees to it that numbers of its own are numbers.
    for ad, name in NAMES:
        if draw(st.booleans()):
            made[ad][name] = draw(values)
    return made, float(draw(st.integers(0, 9)))


leaves = st.one_of(
    values.map(lambda value: ("value", value)),
    st.just(("value", UNDEFINED)),
    st.sampled_from(NAMES).map(lambda name: ("name", *name)),
    st.just(("now",)),
)
OPERATORS = ("&&", "||", "<", "<=", ">", ">=", "==", "!=", "=?=", "=!=", "+", "-", "*", "/")
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(OPERATORS), inner, inner),
        st.tuples(st.just("if"), inner, inner, inner),
    ),
    max_leaves=8,
)


def written(tree: Tree) -> str:
    kind, *rest = tree
    if kind == "value":
        (value,) = rest
        if isinstance(value, Special):
            return value.value
        if isinstance(value, str):
            return f'"{value}"'
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        return f"({shown})" if shown.startswith("-") else shown
    if kind == "name":
        return ".".join(rest)
    if kind == "now":
        return "Now"
    if kind == "not":
        return f"!({written(rest[0])})"
    if kind == "if":
        return f"({written(rest[0])} ? {written(rest[1])} : {written(rest[2])})"
    return f"({written(rest[0])} {kind} {written(rest[1])})"


def reference(tree: Tree, made: dict[str, dict[str, Any]], now: float) -> Any:
    """ClassAds by their definition: operators are total, `&&`, `||` and `?:` look at the right side last."""
    kind, *rest = tree
    if kind == "value":
        return rest[0]
    if kind == "name":
        return made[rest[0]].get(rest[1], UNDEFINED)
    if kind == "now":
        return now
    left = reference(rest[0], made, now)
    if kind == "not":
        truth = as_truth(left)
        return truth if isinstance(truth, Special) else not truth
    if kind == "if":
        truth = as_truth(left)
        return truth if isinstance(truth, Special) else reference(rest[1] if truth else rest[2], made, now)
    if kind in ("&&", "||"):
        return junction(kind, as_truth(left), lambda: as_truth(reference(rest[1], made, now)))
    right = reference(rest[1], made, now)
    if kind in ("=?=", "=!="):
        same = type(left) is type(right) and left == right
        return same if kind == "=?=" else not same
    if ERROR in (left, right):
        return ERROR
    if UNDEFINED in (left, right):
        return UNDEFINED
    return arithmetic(kind, left, right) if kind in "+-*/" else compared(kind, left, right)


def as_truth(value: Any) -> Any:
    if isinstance(value, Special):
        return value
    return ERROR if isinstance(value, str) else bool(value)


def junction(kind: str, left: Any, right: Any) -> Any:
    deciding = kind == "||"  # true decides a disjunction, false a conjunction
    if left is ERROR or left is deciding:
        return left
    other = right()
    if other is ERROR or other is deciding or left is not UNDEFINED:
        return other
    return UNDEFINED


def compared(kind: str, left: Any, right: Any) -> Any:
    if isinstance(left, str) != isinstance(right, str):
        return ERROR
    if isinstance(left, str):
        left, right = left.lower(), right.lower()
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
    }[kind]


def arithmetic(kind: str, left: Any, right: Any) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        return ERROR
    if isinstance(left, bool):
        left = int(left)
    if isinstance(right, bool):
        right = int(right)
    if kind == "/":
        return divided(left, right)
    return finite_above({"+": left + right, "-": left - right, "*": left * right}[kind])


def finite_above(value: Any) -> Any:
    """The library takes plus infinity for an error; minus infinity and no number pass."""
    return ERROR if value == float("inf") else value


def divided(left: Any, right: Any) -> Any:
    """Whole numbers towards zero; by a real zero as IEEE 754 has it."""
    if isinstance(left, float) or isinstance(right, float):
        with np.errstate(all="ignore"):
            return finite_above(float(np.float64(left) / np.float64(right)))
    if right == 0:
        return ERROR
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def scopes_of(made: dict[str, dict[str, Any]], now: float) -> Any:
    return (*(made[ad] for ad in ADS), now)


def nested(text: str, made: dict[str, dict[str, Any]], now: float) -> Any:
    """classad2 on one compound ad with every name set, evaluated inside BOT."""
    compound: dict[str, Any] = {ad: dict(made[ad]) for ad in ADS}
    for ad, name in NAMES:
        compound[ad].setdefault(name, Value.Undefined)
    whole = ClassAd({**compound, "Now": now})
    value = ExprTree(text).eval(whole)
    return {Value.Undefined: UNDEFINED, Value.Error: ERROR}[value] if isinstance(value, Value) else value


def same(one: Any, other: Any) -> bool:
    """Equal, and of one type: to ClassAds 1, 1.0 and true are three values. No number is one value."""
    return type(one) is type(other) and (one == other or (one != one and other != other))


@settings(max_examples=1000, deadline=None)
@given(trees, ads())
def test_a_policy_has_the_value_that_the_definition_of_classads_gives_it(tree, world):
    made, now = world
    value = evaluation.expression(written(tree), {}).value(scopes_of(made, now))
    assert same(value, reference(tree, made, now)), written(tree)


@settings(max_examples=300, deadline=None)
@given(trees, ads())
def test_a_policy_has_the_value_that_classads_give_it_in_one_nested_ad(tree, world):
    made, now = world
    value = evaluation.expression(written(tree), {}).value(scopes_of(made, now))
    assert same(value, nested(written(tree), made, now)), written(tree)


@settings(max_examples=100, deadline=None)
@given(st.lists(trees, min_size=1, max_size=3), st.lists(ads(), min_size=1, max_size=6))
def test_remembering_and_sharing_change_no_verdict(conditions, worlds):
    shared = [ClassAdPolicy({"JobRequirements": written(tree), "Rank": written(tree)}) for tree in conditions]
    warm = [p.match(*arguments(*world)) for _ in range(2) for world in worlds for p in shared]
    cold = []
    for _ in range(2):
        for world in worlds:
            for policy in shared:
                evaluation._remembered.clear()
                evaluation._shared.cache_clear()
                cold.append(ClassAdPolicy(policy.expressions).match(*arguments(*world)))
    assert warm == cold


@settings(max_examples=200, deadline=None)
@given(st.lists(trees, min_size=1, max_size=6), ads())
def test_a_host_that_is_shown_to_many_policies_on_one_sheet_gets_the_same_verdicts(conditions, world):
    made, now = world
    texts = [written(tree) for tree in conditions]
    policies = [ClassAdPolicy({"JobRequirements": a, "Rank": b, "Concurrency": b}) for a in texts for b in texts]
    seen: dict[Any, Any] = {}
    together = [policy.match(*arguments(made, now), seen) for policy in policies]
    assert together == [policy.match(*arguments(made, now)) for policy in policies]


def arguments(made: dict[str, dict[str, Any]], now: float) -> Any:
    return made["Host"], made["BOT"], made["Queue"], made["Pool"], now, made["Job"]


# Without parentheses the reading of the text itself is at stake: what binds closer, and where a clause ends.
loose = st.lists(
    st.tuples(st.sampled_from(OPERATORS), leaves.map(written), st.sampled_from(["", "!"])), min_size=1, max_size=6
).map(lambda parts: " ".join([parts[0][1], *(f"{op} {not_}{leaf}" for op, leaf, not_ in parts[1:])]))


@settings(max_examples=1000, deadline=None)
@given(trees.map(written) | loose, ads())
def test_a_condition_is_true_exactly_when_all_its_clauses_are(text, world):
    made, now = world
    policy = ClassAdPolicy({"JobRequirements": text})
    verdict = policy.match(*arguments(made, now))
    clauses = policy.explain(made["Host"], made["BOT"], made["Queue"], made["Pool"], now, made["Job"])
    own = [clause for clause in clauses if clause.policy == "JobRequirements"]
    assert verdict.matches is all(clause.ok for clause in own), (text, own)


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.sampled_from(list("Host.Memory BOTTail<>=!&|?:()[]{}\"'123,;/*+-\n")), max_size=30)
    | st.text(max_size=20)
)
def test_any_text_is_checked_without_a_surprise_and_what_passes_can_be_evaluated(text):
    found = check_policies({"JobRequirements": text})
    assert all(0 <= finding.offset <= len(text) for finding in found)
    if not any(finding.level == "error" for finding in found):
        ClassAdPolicy({"JobRequirements": text}).match({}, {}, {}, {}, 0.0)
