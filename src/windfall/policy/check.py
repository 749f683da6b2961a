"""Finds what is wrong with the policies of a bag before anything has started. Touches classad2 only to parse.

Errors are what cannot be meant: a text that does not parse, a name one letter away from a known one, the clock, chance.
So is an attribute that never exists. Warnings are what may be meant: an unknown name of Host may be a worker's tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from classad2 import ClassAdException, ExprTree
from msgspec import Struct

from windfall.core.matching.policy import NOTHING, POLICIES
from windfall.policy.evaluate import Scopes, expression, is_true, number, references
from windfall.policy.first_attempts import is_own_of_task, surely
from windfall.policy.growth import MAX_CHARACTERS, longest
from windfall.policy.names import (
    ADS,
    CONDOR_SCOPES,
    FUNCTIONS,
    REFUSED,
    REPLICA,
    SHARED_BY_TASKS,
    Reference,
    ad_name,
    existing,
    inner,
    is_of_replicas_host,
    nearest,
    nearest_attribute,
    nearest_shared,
    resolve,
)
from windfall.policy.syntax import Node, SyntaxFault, parse, position, straighten, walk

Extra = Mapping[str, Iterable[str]]
LESS_TEXT = "nest replace(), replaceAll(), regexps() and join() less, with shorter texts"
OF_BAG = ("Rank", "Concurrency")
"""Asked once for all tasks of a bag, and of nothing else: no task's own attribute ever exists there."""
OF_FIRST_ATTEMPTS = ("JobRequirements", "Deadline")
"""Asked for tasks without running replicas, where no task's own attribute exists, and for replicas, where they do."""
CONDITIONS = ("JobRequirements", "ReplicationRequirements", "GridPolicy")
EMPTY: Scopes = (NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, 0.0)


class Finding(Struct, frozen=True):
    """One thing to change (`error`) or to look at (`warning`), at an offset of the policy's text."""

    level: str
    policy: str
    offset: int
    where: str
    message: str
    hint: str = ""


class _Faults:
    """Collects the findings of one policy."""

    def __init__(self, policy: str, text: str) -> None:
        self.policy, self.text = policy, text
        self.found: list[Finding] = []

    def error(self, offset: int, message: str, hint: str = "") -> None:
        self._add("error", offset, message, hint)

    def warning(self, offset: int, message: str, hint: str = "") -> None:
        self._add("warning", offset, message, hint)

    def _add(self, level: str, offset: int, message: str, hint: str) -> None:
        self.found.append(Finding(level, self.policy, offset, position(self.text, offset), message, hint))

    @property
    def failed(self) -> bool:
        return any(finding.level == "error" for finding in self.found)


def check_policies(texts: Mapping[str, str], extra: Extra = NOTHING) -> list[Finding]:
    """All findings about the policies of one bag, in the order of the policies and of the text.

    `texts` has policy names as in `POLICIES`. `extra` names attributes that the user adds, by ad: {"Host": ["gpu"]}.
    """
    found: list[Finding] = []
    for policy in POLICIES:
        if policy in texts:
            found += check_one(policy, texts[policy], extra)
    if not any(finding.level == "error" for finding in found):
        found += _cycles(texts)
    if not any(finding.level == "error" for finding in found):
        for policy, text in texts.items():
            found += _constants(policy, text, texts)
    return found


def check_one(policy: str, text: str, extra: Extra = NOTHING) -> list[Finding]:
    """What is wrong with one policy by itself."""
    faults = _Faults(policy, text)
    try:
        tree = parse(text)
    except SyntaxFault as fault:
        faults.error(fault.offset, fault.message, fault.hint)
        return faults.found
    for node in walk(tree):
        if node.kind == "ref":
            _check_name(faults, node, extra)
        elif node.kind == "call":
            _check_call(faults, node)
        elif node.kind == "record":
            faults.error(node.start, "an ad inside a policy has no use", "write Host.Name, not an ad of your own")
        elif node.kind == "binary":
            _check_comparison(faults, text, node)
    if not faults.failed and longest(tree) > MAX_CHARACTERS:
        faults.error(tree.start, f"it could make a text of more than {MAX_CHARACTERS:,} characters", LESS_TEXT)
    if policy == "JobRequirements" and not faults.failed:
        _check_starts(faults, tree)
    if not faults.failed:
        _check_library(faults, text)
    return faults.found


def _check_starts(faults: _Faults, tree: Node) -> None:
    """Refuse a requirement that no task meets before a replica of it runs: none would ever start."""
    own = next((node for node in walk(tree) if node.kind == "ref" and is_own_of_task(resolve(node.path))), None)
    if own is not None and surely(tree, faults.text):
        name = str(resolve(own.path))
        faults.error(
            own.start,
            f"{name} does not exist before a replica of the task runs, so no task of the bag would start",
            f"write {name} =?= undefined || ... to let them, or {_seen_instead(resolve(own.path))}",
        )


def _check_library(faults: _Faults, text: str) -> None:
    """Let classad2 itself parse the expression."""
    try:
        ExprTree(straighten(text))
    except ClassAdException:
        faults.error(0, "the ClassAd library cannot read this expression")


def _check_call(faults: _Faults, node: Node) -> None:
    name = node.op
    known = {function.lower() for function in FUNCTIONS}
    if name.lower() in known:
        return
    if name.lower() in REFUSED:
        faults.error(node.start, f"{name}() is refused in a policy", REFUSED[name.lower()])
        return
    near = nearest(name, FUNCTIONS)
    hint = f"did you mean {near}()?" if near else "the functions are listed in docs/reference/policies.md"
    faults.error(node.start, f"there is no function {name}()", hint)


def _check_comparison(faults: _Faults, text: str, node: Node) -> None:
    if node.op not in ("==", "!="):
        return
    for side in node.args:
        if side.kind == "literal" and text[side.start : side.end].lower() == "undefined":
            instead = "=?=" if node.op == "==" else "=!="
            faults.warning(
                node.start, f"'{node.op} undefined' is undefined and never true", f"write {instead} undefined"
            )


def _check_name(faults: _Faults, node: Node, extra: Extra) -> None:
    path = node.path
    written = ".".join(path)
    first = path[0].lower()
    if first in CONDOR_SCOPES:
        meant = (CONDOR_SCOPES[first], *path[1:])
        hint = f"did you mean {existing(meant, extra)}?" if path[1:] else f"the ads are {', '.join(ADS)} and Grid"
        faults.error(node.start, f"{path[0]} is no ad here", hint)
        return
    own = {name.lower() for name in extra.get("BOT", ())}
    if len(path) > 1 and not ad_name(first) and first not in own:
        if REPLICA.fullmatch(path[0]):
            faults.error(node.start, f"there is no ad {path[0]}", f"did you mean {existing(('Job', *path), extra)}?")
            return
        near = nearest(path[0], (*ADS, "Grid"), similar=0.6)
        hint = f"the ads are {', '.join(ADS)} and Grid"
        if near:
            hint = f"did you mean {_as_written(existing((near, *path[1:]), extra), near)}?"
        faults.error(node.start, f"there is no ad {path[0]}", hint)
        return
    reference = resolve(path)
    if reference.ad in ADS and not reference.steps:
        faults.error(node.start, f"{written} is a whole ad", f"name an attribute of it, as in {_example(reference.ad)}")
        return
    if not reference.known:
        _check_unknown(faults, node, reference, extra)
    _check_visible(faults, node, reference)


def _check_unknown(faults: _Faults, node: Node, reference: Reference, extra: Extra) -> None:
    name = reference.steps[-1]
    ad = "Host" if is_of_replicas_host(reference) else reference.ad
    declared = {own.lower() for own in extra.get(ad, ())}
    own_name = name if ad != reference.ad else reference.steps[0]
    if own_name.lower() in declared or name.lower().startswith("tag_"):
        return
    written = ".".join(reference.written)
    if [part.lower() for part in reference.written[-3:-1]] in (["host", "tag"], ["host", "tags"]):
        *host, tags, _ = reference.written
        meant = ".".join((*host, f"Tag_{name}"))
        faults.error(node.start, f"{tags} is no ad: each tag of a host is an attribute", f"did you mean {meant}?")
        return
    near = nearest_attribute(reference, extra)
    if near:
        near = _as_written(near, reference.written[0])
        is_tag = ad == "Host" and (ad != reference.ad or len(reference.steps) == 1)
        also = f" (a tag of your own: {'.'.join(reference.written[:-1])}.Tag_{name})" if is_tag else ""
        faults.error(node.start, f"{written} is no known attribute", f"did you mean {near}?{also}")
    elif ad == "Host" and (ad != reference.ad or len(reference.steps) == 1):
        faults.warning(
            node.start, f"Windfall does not set {written}", "where it is not a worker's tag, it is undefined"
        )
    else:
        near = inner(reference.written)
        if near is None or (faults.policy == "GridPolicy" and near.startswith(("Host.", "Job."))):
            near = nearest_attribute(reference, extra, any_distance=True)
        own = reference.ad == "BOT" and len(reference.steps) == 1
        also = f"; give the bag the attribute {name} to use one of your own" if own else ""
        near = _as_written(near or "", reference.written[0])
        faults.error(node.start, f"there is no attribute {written}", f"the nearest is {near}{also}")


def _as_written(name: str, first: str) -> str:
    """An attribute of Pool as one of Grid, where the policy says Grid."""
    return f"Grid{name.removeprefix('Pool')}" if first.lower() == "grid" and name.startswith("Pool.") else name


def _check_visible(faults: _Faults, node: Node, reference: Reference) -> None:
    """Names that exist but are always undefined in this policy."""
    if faults.policy == "GridPolicy" and reference.ad in ("Host", "Job"):
        faults.error(
            node.start,
            f"GridPolicy is asked before there is a {'host' if reference.ad == 'Host' else 'task'}",
            "it sees BOT, Queue, Pool (or Grid) and Now",
        )
    if reference.known and is_own_of_task(reference):
        if faults.policy in OF_BAG:
            message = f"{reference} never exists here: {faults.policy} is asked once for all tasks of the bag"
            faults.error(node.start, message, _seen_instead(reference))
        elif faults.policy in OF_FIRST_ATTEMPTS:
            faults.warning(
                node.start,
                f"{reference} is undefined here for a task without running replicas",
                f"{faults.policy} is asked once for all such tasks of the bag",
            )


def _seen_instead(reference: Reference) -> str:
    """Names that exist where a task's own attributes do not: the nearest, or those of Job."""
    near = nearest_shared(reference.steps[0])
    return f"name {near} instead" if near else f"name {', '.join(f'Job.{name}' for name in SHARED_BY_TASKS)} instead"


def _example(ad: str) -> str:
    return {"Host": "Host.Memory", "Job": "Job.NumberOfReplicas", "BOT": "BOT.Tail", "Queue": "Queue.BOTsInQueue"}.get(
        ad, "Pool.Name"
    )


def _cycles(texts: Mapping[str, str]) -> Iterator[Finding]:
    """Policies may use each other, but not in a circle."""
    uses = {
        policy: [reference.steps[0] for reference in references(text) if reference.ad == "Policy"]
        for policy, text in texts.items()
    }
    for policy in texts:
        reached: set[str] = set()
        waiting = list(uses[policy])
        while waiting:
            used = waiting.pop()
            if used not in reached:
                reached.add(used)
                waiting.extend(uses.get(used, ()))
        if policy in reached:
            yield Finding("error", policy, 0, "column 1", f"{policy} depends on itself", "write one of them out")


def _constants(policy: str, text: str, texts: Mapping[str, str]) -> Iterator[Finding]:
    """A policy without names is constant, so the type of its value can be checked now."""
    compiled = expression(text, texts)
    if not compiled.is_constant:
        return
    value = compiled.value(EMPTY)
    shown = straighten(text).strip()

    def finding(level: str, message: str, hint: str = "") -> Finding:
        return Finding(level, policy, 0, "column 1", message, hint)

    if policy in CONDITIONS:
        if not isinstance(value, bool):
            yield finding("error", f"{shown} is neither true nor false", "a condition compares: Host.Memory >= 8192")
        elif not is_true(value) and policy == "JobRequirements":
            yield finding("warning", f"{shown} is never true: no host will run this bag")
        return
    amount = number(value)
    least = {"Rank": None, "Concurrency": 1, "Deadline": 0}[policy]
    if amount is None:
        yield finding("error", f"{shown} is no number")
    elif least is not None and (amount < least or amount <= 0):
        yield finding("error", f"{policy} must be {'at least 1' if least else 'more than 0'}, not {shown}")
