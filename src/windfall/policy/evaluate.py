"""Evaluates ClassAd expressions over the plain ads of the core, and caches the values.

An expression is a function of the attributes that it names and of nothing else: the clock and chance are refused at
compile time. Its value is therefore remembered under the values of those attributes. Hosts that look the same to an
expression, and bags with the same text, share one evaluation; nothing ever has to be invalidated.

Touches classad2 and no other part of the world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache, lru_cache
from itertools import count
from typing import Any

from classad2 import ClassAd, ClassAdException, ExprTree, Value

from windfall.core.matching.policy import NOTHING, Ad, default_concurrency, default_rank
from windfall.policy.growth import MATCHING
from windfall.policy.names import Reference, is_steady, resolve, spelling
from windfall.policy.syntax import Node, parse, straighten, walk

Scopes = tuple[Ad, Ad, Ad, Ad, Ad, float]  # Host, Job, BOT, Queue, Pool, Now

# The order of Scopes, as the generated key functions name their arguments.
ARGUMENTS = {"Host": "host", "Job": "job", "BOT": "bag", "Queue": "queue", "Pool": "pool", "Now": "now"}
ALL_ARGUMENTS = ", ".join(ARGUMENTS.values())
# What does not change from bag to bag while one host asks.
OF_HOST = frozenset({"Host", "Queue", "Pool", "Now"})
# About 60 MB. A full cache is emptied: values in use come back within a few exchanges.
MAX_CACHED_VALUES = 200_000
LARGEST_INTEGER = 2**63
MATCH_LIMIT = "(*LIMIT_MATCH=20000)"
"""In front of every pattern: one that backtracks without end, such as "(a+)+$", took 130 ms until the library gave up,
and 0.4 ms with it. What gives up is an error, as before."""
SIMPLE = frozenset({bool, int, float, str, type(None)})


class Special(Enum):
    """The two values that no Python value stands for. Those of classad2 are integers: undefined would rank as 2."""

    UNDEFINED = "undefined"
    ERROR = "error"


_SPECIAL = {Value.Undefined: Special.UNDEFINED, Value.Error: Special.ERROR}
_CLASSAD = {special: value for value, special in _SPECIAL.items()}
_remembered: dict[tuple[Any, ...], Any] = {}
_serial = count()
_UNKNOWN = object()


def is_true(value: Any) -> bool:
    """The one test of a condition: undefined and error are truthy in Python, and a number is no condition."""
    return value is True


def number(value: Any) -> float | None:
    """A finite number, with true as one (so that a condition can be a rank); None for everything else."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    return None


def references(text: str) -> tuple[Reference, ...]:
    """The names in an expression, once each, in the order of the text."""
    paths = dict.fromkeys(node.path for node in _names(text))
    return tuple(resolve(path) for path in paths)


def _names(text: str) -> list[Node]:
    return [node for node in walk(parse(text)) if node.kind == "ref"]


def expression(text: str, policies: Mapping[str, str]) -> Expression:
    """The compiled expression, one for all bags that would get the same answers from it.

    `policies` are the bag's, for an expression that refers to another policy. The text has passed `check`.
    """
    text = straighten(text)
    uses_policies = any(reference.ad == "Policy" for reference in references(text))
    return _shared(text, tuple(sorted(policies.items())) if uses_policies else ())


@lru_cache(maxsize=20_000)
def _shared(text: str, policies: tuple[tuple[str, str], ...]) -> Expression:
    return Expression(text, dict(policies))


class Expression:
    """One ClassAd expression. Call `value` with the ads of the moment.

    Every name is resolved here and handed to ClassAds as a flat attribute `_0`, `_1` ... of its own: `slots`. In nested
    ads, as
    in GridBot's figure 3, a missing name would be looked up in the enclosing ads: `Job.Replica1.Host.Memory` of a task
    without replicas would be the memory of the asking host. It is also twice as fast.
    """

    def __init__(self, text: str, policies: Mapping[str, str]) -> None:
        self.text = text
        self.references = references(text)
        self.is_constant = not self.references
        self.is_steady = all(is_steady(reference) for reference in self.references)
        self.is_of_host = all(reference.ad in OF_HOST for reference in self.references)
        self.slots = tuple(_slot(reference) for reference in self.references)
        self._tree = ExprTree(_flattened(text))
        self._ad = ClassAd()
        self._kept: list[Any] = [_UNKNOWN] * len(self.slots)
        self.constant = self._evaluate(()) if self.is_constant else None
        self._key = _key_function(self.references, policies)
        # A value that depends on the time is not cached.
        self._remembers = all(reference.ad != "Now" for reference in self.references)

    def value(self, scopes: Scopes) -> Any:
        """A Python value, or `Special.UNDEFINED`, or `Special.ERROR`."""
        if self.is_constant:
            return self.constant
        key = self._key(*scopes)
        if not self._remembers:
            return self._evaluate(key[1::2])
        try:
            return _remembered[key]
        except (KeyError, TypeError):
            return _noted(key, self._evaluate(key[1::2]))

    def _evaluate(self, values: tuple[Any, ...]) -> Any:
        for place, value in enumerate(values):
            # Most values are the same from task to task, and comparing is quicker than setting them in classad2.
            kept = self._kept[place]
            if value.__class__ not in SIMPLE or value.__class__ is not kept.__class__ or value != kept:
                self._ad[self.slots[place]] = _plain(value)
                self._kept[place] = value
        return self.on(self._ad)

    def on(self, ad: ClassAd) -> Any:
        """The value on an ad that has every slot of this expression."""
        try:
            value = self._tree.eval(ad)
        except ClassAdException:
            return Special.ERROR
        return _SPECIAL[value] if isinstance(value, Value) else value

    def fill(self, ad: ClassAd, filled: set[str], scopes: Scopes) -> None:
        """Set the values that this expression names in an ad, unless they are there already."""
        for slot, value in zip(self.slots, self._key(*scopes)[1::2], strict=True):
            if slot not in filled:
                filled.add(slot)
                ad[slot] = _plain(value)


def _noted(key: tuple[Any, ...], value: Any) -> Any:
    """The cached value. Raises TypeError if an attribute is a list or an ad, which have no hash."""
    if len(_remembered) >= MAX_CACHED_VALUES:
        _remembered.clear()
    with suppress(TypeError):
        _remembered[key] = value
    return value


class Answer:
    """A value made from several expressions, cached under all their names: one lookup instead of several."""

    def __init__(
        self, make: Callable[[Scopes], Any], expressions: Iterable[Expression], policies: Mapping[str, str],
        also: Iterable[tuple[str, ...]],
    ) -> None:  # fmt: skip
        found = [reference for expression in expressions for reference in expression.references]
        found += [resolve(path) for path in also]
        self._make = make
        self._key = _key_function(tuple(dict.fromkeys(found)), policies)
        self._remembers = all(reference.ad != "Now" for reference in found)

    def value(self, scopes: Scopes) -> Any:
        if not self._remembers:
            return self._make(scopes)
        key = self._key(*scopes)
        try:
            return _remembered[key]
        except (KeyError, TypeError):
            return _noted(key, self._make(scopes))


class Sheet:
    """One host at one moment: what it is to many expressions that name nothing but the host and what it came with.

    Their attributes are looked up once, all on one ad, and each distinct expression is evaluated once, however many
    bags say the same.
    """

    def __init__(self, host: Ad, queue: Ad, pool: Ad, now: float) -> None:
        self._scopes: Scopes = (host, NOTHING, NOTHING, queue, pool, now)
        self._ad = ClassAd()
        self._filled: set[str] = set()
        self._values: dict[Expression, Any] = {}
        self._prepared: set[tuple[str, ...]] = set()

    def value(self, of: Expression) -> Any:
        """The same value as `of.value`."""
        value = self._values.get(of, _UNKNOWN)
        if value is _UNKNOWN:
            if of.slots not in self._prepared:
                self._prepared.add(of.slots)
                of.fill(self._ad, self._filled, self._scopes)
            value = self._values[of] = of.on(self._ad)
        return value


@cache
def _slot(reference: Reference) -> str:
    """The attribute that holds the value of a name, the same in all expressions."""
    return f"_{next(_serial)}"


def _flattened(text: str) -> str:
    """The text with every name replaced by the slot of its value, and with a limit in every pattern."""
    edits = [(node.start, node.end, _slot(resolve(node.path))) for node in _names(text)]
    for node in walk(parse(text)):
        if node.kind == "call" and node.op.lower() in MATCHING and node.args:
            start, end = node.args[0].start, node.args[0].end
            if text[start] == '"' and node.args[0].kind == "literal":
                edits.append((start + 1, start + 1, MATCH_LIMIT))
            else:
                edits += [(start, start, f'strcat("{MATCH_LIMIT}", '), (end, end, ")")]
    # From the end, so that places stay right; what begins where a name begins goes in front of it.
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _key_function(found: tuple[Reference, ...], policies: Mapping[str, str]) -> Callable[..., tuple[Any, ...]]:
    """A function from the ads to (serial, value, type, value, type ...), generated because it runs for every pair.

    The types belong to the key: 1, 1.0 and True are one key to Python and three values to ClassAds (1/2 is 0).
    """
    names: dict[str, Any] = {"find": find, "reach": reach}
    parts = [str(next(_serial))]
    for i, reference in enumerate(found):
        if reference.ad == "Policy":
            names[f"policy_{i}"] = _policy_value(reference.steps[0], policies)
            value = f"policy_{i}(({ALL_ARGUMENTS}))"
        elif reference.ad == "Now":
            value = "now"
        elif reference.known and len(reference.steps) == 1:
            value = f"{ARGUMENTS[reference.ad]}.get({reference.steps[0]!r})"
        elif reference.known:
            value = f"reach({ARGUMENTS[reference.ad]}, {reference.steps!r})"
        else:
            value = f"find({ARGUMENTS[reference.ad]}, {reference.steps!r})"
        parts += [f"(v{i} := {value})", f"v{i}.__class__"]
    function: Callable[..., tuple[Any, ...]] = eval(f"lambda {ALL_ARGUMENTS}: ({', '.join(parts)},)", names)
    return function


def _policy_value(name: str, policies: Mapping[str, str]) -> Callable[[Scopes], Any]:
    """The value of another policy of the bag; one that is not given has its default."""
    if name in policies:
        return expression(policies[name], policies).value
    if name == "Rank":
        return lambda scopes: default_rank(scopes[2])
    if name == "Concurrency":
        return lambda scopes: default_concurrency(scopes[0])
    return lambda scopes: Special.UNDEFINED


def reach(ad: Ad, steps: tuple[str, ...]) -> Any:
    """The attribute at the end of steps that Windfall itself spells and makes; None if it is missing."""
    here: Any = ad
    for step in steps:
        here = here.get(step)
        if here is None:
            return None
    return here


def find(ad: Ad, steps: tuple[str, ...]) -> Any:
    """The attribute at the end of the steps, None if it is missing, an error if a step goes through a value that is no
    ad. Names in any case, tags with or without `Tag_`.
    """
    here: Any = ad
    for step in steps:
        if here is None:
            return None
        if not isinstance(here, Mapping):
            return Special.ERROR
        here = here[step] if step in here else _any_spelling(here, step)
    return here


def _any_spelling(ad: Ad, name: str) -> Any:
    """ClassAds ignore case; and a tag may be written with or without `Tag_`, which tells it from what Windfall sets."""
    wanted = name.lower()
    tag = wanted.removeprefix("tag_") if wanted.startswith("tag_") else f"tag_{wanted}"
    found = None
    for key, value in ad.items():
        lower = key.lower()
        if lower == wanted:
            return value
        if lower == tag and spelling("Host", (key,)) is None:
            found = value
    return found


def _plain(value: Any) -> Any:
    """A value as classad2 takes it."""
    if isinstance(value, float):
        return value + 0.0  # -0.0 and 0.0 are one key and must be one value.
    if isinstance(value, int):
        return value if -LARGEST_INTEGER <= value < LARGEST_INTEGER else float(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Special):
        return _CLASSAD[value]
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return Value.Undefined
