"""What providers answer, guarded: typed, bounded and without secrets. Touches pools.

A provider that raises, although no call may, or answers what the contract does not know, has failed for a while: its
bug must neither end the keeper nor reach the log.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from typing import TypeVar, cast

from msgspec.structs import replace

from windfall.drivers.asking import LAST_WORDS_CHARS
from windfall.pools.contract import (
    ENDED,
    FAILED,
    HIBERNATED,
    KINDS_OF_ERROR,
    PENDING,
    RELEASED,
    RUNNING,
    TAKEN,
    TRANSIENT,
    Check,
    Order,
    Pool,
    PoolError,
    Seen,
    StartsMany,
)
from windfall.pools.starting.secrets import without_tokens

log = logging.getLogger(__name__)

MOST_SKEW_S = 600.0
"""Seconds that a provider's clock may differ from ours; times beyond that are not believed."""
MOST_RETRY_AFTER_S = 3600.0
"""A provider that wants to be left alone for longer is asked all the same."""
_MOST_ID_CHARS = 512
_PHASES = (PENDING, RUNNING, HIBERNATED, ENDED)
_CAUSES = ("", RELEASED, TAKEN, FAILED)
T = TypeVar("T")


def guarded(call: Callable[..., T], *args: object) -> T | PoolError:
    """The answer of a provider, without secrets; one that raises has failed."""
    try:
        return _clean(call(*args))
    except Exception as error:
        log.error("a pool failed where it must not: %s", without_tokens(traceback.format_exc()))
        return PoolError(without_tokens(f"{type(error).__name__}: {error}"), TRANSIENT)


def started(pool: Pool, order: Order) -> str | PoolError:
    """The id under which an order was started."""
    return _id(guarded(pool.start, order))


def started_many(pool: StartsMany, orders: list[Order]) -> list[str | PoolError]:
    """The answer to each order of one call."""
    answers = guarded(pool.start_many, orders)
    if isinstance(answers, PoolError):
        return [answers] * len(orders)
    if not isinstance(answers, list) or len(answers) != len(orders):
        return [_garbage(f"`start_many` answers {answers!r} to {len(orders)} orders")] * len(orders)
    return [_id(answer) for answer in answers]


def listed(pool: Pool) -> list[Seen] | PoolError:
    """What the pool shows; an error if one row of it cannot be understood, for then the rest may be wrong, too."""
    rows = guarded(pool.list)
    if isinstance(rows, PoolError):
        return rows
    if not isinstance(rows, list):
        return _garbage(f"`list` answers {rows!r}")
    wrong = [row for row in rows if not _is_row(row)]
    return _garbage(f"`list` has the row {wrong[0]!r}") if wrong else rows


def likely_t(told_t: object, since_t: float, now: float, instead_t: float) -> float:
    """A time that a provider tells of something between `since_t` and now; `instead_t` if it is not likely."""
    if not isinstance(told_t, int | float) or not since_t - MOST_SKEW_S <= told_t <= now + MOST_SKEW_S:
        return instead_t
    return float(told_t)


def _id(answer: object) -> str | PoolError:
    if isinstance(answer, PoolError) or (isinstance(answer, str) and 0 < len(answer) <= _MOST_ID_CHARS):
        return answer
    return _garbage(f"`start` answers {answer!r}")


def _is_row(row: object) -> bool:
    if not isinstance(row, Seen) or not isinstance(row.id, str) or not 0 < len(row.id) <= _MOST_ID_CHARS:
        return False
    is_named = row.host is None or (isinstance(row.host, str) and bool(row.host))
    is_timed = all(
        isinstance(t, int | float) and math.isfinite(t) for t in (row.since_t, row.taken_at_t) if t is not None
    )
    return is_named and is_timed and row.phase in _PHASES and row.cause in _CAUSES and isinstance(row.about, str)


def _garbage(what: str) -> PoolError:
    return PoolError(without_tokens(f"the pool breaks its contract: {what[:LAST_WORDS_CHARS]}"), TRANSIENT)


def _clean(answer: T) -> T:
    """What a provider says ends up in the log of records and on screens: no token of ours may be in it."""
    if isinstance(answer, list):
        return cast(T, [_clean(row) for row in answer])
    if isinstance(answer, PoolError):
        return cast(T, _clean_error(answer))
    if isinstance(answer, Check) and (answer.error or answer.hint):
        return cast(T, replace(answer, error=without_tokens(answer.error), hint=without_tokens(answer.hint)))
    if isinstance(answer, Seen) and answer.about:
        return cast(T, replace(answer, about=without_tokens(answer.about)))
    return answer


def _clean_error(error: PoolError) -> PoolError:
    after_s = error.retry_after_s
    is_time = isinstance(after_s, int | float) and after_s >= 0
    return PoolError(
        without_tokens(str(error.error)),
        error.kind if error.kind in KINDS_OF_ERROR else TRANSIENT,
        float(min(after_s, MOST_RETRY_AFTER_S)) if is_time else 0.0,
    )
