"""The policies of one bag, compiled from ClassAds and answering the core. Touches classad2 through `evaluate` only."""

from __future__ import annotations

from collections.abc import Mapping

from windfall.core.matching.policy import (
    NOTHING,
    POLICIES,
    UNREPLICATED,
    Ad,
    BagPolicy,
    Clause,
    DefaultPolicy,
    Seen,
    Verdict,
    default_concurrency,
    default_rank,
    default_replication,
    replication_by_default,
)
from windfall.errors import BadInput
from windfall.policy.check import Extra, Finding, check_policies
from windfall.policy.evaluate import Answer, Expression, Scopes, Sheet, expression, is_true, number
from windfall.policy.explain import clauses_of
from windfall.policy.names import nearest, policy_name

NO_MATCH = Verdict(False, 0.0, 0)
BY_DEFAULT = -1


def compile_policies(texts: Mapping[str, object], extra_attributes: Extra = NOTHING) -> BagPolicy:
    """The policies of a bag from their texts; names as in `POLICIES`, or as options and files spell them.

    Raises BadInput for the first error, with its place and what to write instead.
    """
    named = named_policies(texts)
    if not named:
        return DefaultPolicy()
    errors = [finding for finding in check_policies(named, extra_attributes) if finding.level == "error"]
    if errors:
        raise _refusal(errors)
    return ClassAdPolicy(named)


def named_policies(texts: Mapping[str, object]) -> dict[str, str]:
    """The same texts under the policies' proper names; a number or a truth value from a file becomes its text."""
    named: dict[str, str] = {}
    for key, value in texts.items():
        name = policy_name(key)
        if name is None:
            near = nearest(key, POLICIES, similar=0.6)
            hint = f"did you mean {near}?" if near else f"the policies are {', '.join(POLICIES)}"
            raise BadInput(f"there is no policy '{key}'", hint=hint, code="bad-policy")
        if name in named:
            raise BadInput(f"the policy {name} is given twice", hint="keep one of them", code="bad-policy")
        if not isinstance(value, (str, bool, int, float)):
            raise BadInput(f"the policy {name} is no text", hint=f'write {name} = "..."', code="bad-policy")
        named[name] = value if isinstance(value, str) else str(value).lower()
    return named


def _refusal(errors: list[Finding]) -> BadInput:
    first = errors[0]
    more = f" ({len(errors) - 1} more: windfall policy check shows all)" if len(errors) > 1 else ""
    return BadInput(f"{first.policy}, {first.where}: {first.message}", hint=first.hint + more, code="bad-policy")


class ClassAdPolicy:
    """Implements `core.matching.policy.BagPolicy`. A policy that is not given has its default."""

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self.expressions = dict(expressions)
        self._requirements = self._compiled("JobRequirements")
        self._rank = self._compiled("Rank")
        self._concurrency = self._compiled("Concurrency")
        self._deadline = self._compiled("Deadline")
        self._replication = self._compiled("ReplicationRequirements")
        self._grid = self._compiled("GridPolicy")
        asked = (self._requirements, self._rank, self._concurrency)
        given = [expression for expression in asked if expression is not None]
        self._looks_at_bag = not all(expression.is_of_host for expression in given)
        timed = given if self._deadline is None else [*given, self._deadline]
        self.is_steady = all(expression.is_steady for expression in timed)
        ranked_by = [] if self._rank else [("BOT", "Priority")]
        self._verdict = Answer(self._answer, given, self.expressions, ranked_by)

    def _compiled(self, policy: str) -> Expression | None:
        text = self.expressions.get(policy)
        return None if text is None else expression(text, self.expressions)

    @property
    def looks_at_bag(self) -> bool:
        return self._looks_at_bag

    @property
    def may_replicate(self) -> bool:
        return self._replication is None or not self._replication.is_constant or is_true(self._replication.constant)

    def match(
        self, host: Ad, bag: Ad, queue: Ad, pool: Ad, now: float, job: Ad = UNREPLICATED, seen: Seen | None = None
    ) -> Verdict:
        if seen is not None and not self._looks_at_bag:
            return self._match_host(_sheet(seen, host, queue, pool, now), bag, host)
        verdict: Verdict = self._verdict.value((host, job, bag, queue, pool, now))
        if verdict.concurrency == BY_DEFAULT:
            return Verdict(True, verdict.rank, default_concurrency(host))
        return verdict

    def _answer(self, scopes: Scopes) -> Verdict:
        """The verdict as a function of the named attributes; a default concurrency, which needs the host, is open."""
        if self._requirements is not None and not is_true(self._requirements.value(scopes)):
            return NO_MATCH
        amount = number(None if self._concurrency is None else self._concurrency.value(scopes))
        return Verdict(True, self.rank(scopes), BY_DEFAULT if amount is None else max(0, int(amount)))

    def _match_host(self, sheet: Sheet, bag: Ad, host: Ad) -> Verdict:
        """The same for policies that name only the host: values are shared with other bags."""
        if self._requirements is not None and not is_true(sheet.value(self._requirements)):
            return NO_MATCH
        rank = default_rank(bag) if self._rank is None else _rank(sheet.value(self._rank))
        amount = None if self._concurrency is None else sheet.value(self._concurrency)
        return Verdict(True, rank, _concurrency(amount, host))

    def standing(self, host: Ad, bag: Ad, queue: Ad, pool: Ad, now: float, job: Ad = UNREPLICATED) -> Verdict:
        scopes = (host, job, bag, queue, pool, now)
        return Verdict(True, self.rank(scopes), self.concurrency(scopes))

    def match_replica(self, host: Ad, job: Ad, bag: Ad, queue: Ad, pool: Ad, now: float) -> bool:
        scopes = (host, job, bag, queue, pool, now)
        if self._requirements is not None and not is_true(self._requirements.value(scopes)):
            return False
        if self._replication is None:
            return default_replication(bag)
        return is_true(self._replication.value(scopes))

    def replicates(self, job: Ad, bag: Ad, queue: Ad, now: float) -> bool:
        if self._replication is None:
            return default_replication(bag)
        return is_true(self._replication.value((NOTHING, job, bag, queue, NOTHING, now)))

    def deadline_s(self, host: Ad, job: Ad, bag: Ad, pool: Ad, now: float, queue: Ad = NOTHING) -> float | None:
        """An undefined deadline is none; so is one that has passed already, which would fail every attempt at once."""
        if self._deadline is None:
            return None
        seconds = number(self._deadline.value((host, job, bag, queue, pool, now)))
        return seconds if seconds is not None and seconds > 0 else None

    def wants_pool(self, bag: Ad, pool: Ad, now: float, queue: Ad = NOTHING) -> bool:
        return self._grid is None or is_true(self._grid.value((NOTHING, NOTHING, bag, queue, pool, now)))

    def explain(
        self, host: Ad, bag: Ad, queue: Ad = NOTHING, pool: Ad = NOTHING, now: float = 0.0, job: Ad | None = None,
        shared: Ad = UNREPLICATED,
    ) -> list[Clause]:  # fmt: skip
        scopes = (host, shared if job is None else job, bag, queue, pool, now)
        clauses = self.clauses("JobRequirements", scopes)
        if job is None:
            return clauses
        if self._replication is None:
            return [*clauses, replication_by_default(bag)]
        return clauses + self.clauses("ReplicationRequirements", scopes)

    def clauses(self, policy: str, scopes: Scopes) -> list[Clause]:
        """The clauses of one condition; none for a condition that is not given."""
        return clauses_of(policy, self.expressions, scopes) if policy in self.expressions else []

    def rank(self, scopes: Scopes) -> float:
        """Undefined ranks as nothing: 0."""
        if self._rank is None:
            return default_rank(scopes[2])
        return _rank(self._rank.value(scopes))

    def concurrency(self, scopes: Scopes) -> int:
        return _concurrency(None if self._concurrency is None else self._concurrency.value(scopes), scopes[0])


def _sheet(seen: Seen, host: Ad, queue: Ad, pool: Ad, now: float) -> Sheet:
    sheet: Sheet | None = seen.get(Sheet)
    if sheet is None:
        sheet = seen[Sheet] = Sheet(host, queue, pool, now)
    return sheet


def _rank(value: object) -> float:
    return number(value) or 0.0


def _concurrency(value: object, host: Ad) -> int:
    """The concurrency; undefined gives the default, so that a misspelt tag does not stop the bag."""
    amount = number(value)
    return default_concurrency(host) if amount is None else max(0, int(amount))
