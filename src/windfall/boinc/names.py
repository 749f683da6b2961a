"""Names of workunits and results: each says which attempts it holds, so that nothing has to be remembered. Pure.

`w3_40_10_1` is job 3, the ten tasks from 40 on, attempt 1. A result has the name of its workunit, its output a `_0`
behind it: an attempt is never handed out twice, so neither is a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from windfall.bounds import MAX_INTEGER
from windfall.core.events import Key

MAX_BUNDLE = 500
"""Tasks of one workunit."""
_NAME = re.compile(r"w([0-9]{1,16})_([0-9]{1,16})_([0-9]{1,4})_([0-9]{1,9})\Z")
OUTPUT = "_0"


class Bundle(Struct, frozen=True):
    """Tasks of a job from `first` on, all as the same attempt: what one workunit holds."""

    job: int
    first: int
    count: int
    attempt: int

    @property
    def name(self) -> str:
        return f"w{self.job}_{self.first}_{self.count}_{self.attempt}"

    @property
    def output(self) -> str:
        return self.name + OUTPUT

    def attempts(self) -> Iterator[Key]:
        for task in range(self.first, self.first + self.count):
            yield self.job, task, self.attempt


def read_name(name: str) -> Bundle | None:
    """The bundle of a name; None if it cannot be one of ours."""
    match = _NAME.match(name)
    if match is None:
        return None
    bundle = Bundle(*map(int, match.groups()))
    good = 0 < bundle.count <= MAX_BUNDLE and max(bundle.job, bundle.first) < MAX_INTEGER
    return bundle if good and bundle.name == name else None


def read_output(name: str) -> Bundle | None:
    """The bundle of the name of an output file."""
    return read_name(name.removesuffix(OUTPUT)) if name.endswith(OUTPUT) else None


def grouped(keys: Iterable[Key], most: int) -> list[Bundle]:
    """Attempts in as few bundles as there can be of neighbours, each of at most `most`."""
    found: list[Bundle] = []
    for job, task, attempt in sorted(keys):
        last = found[-1] if found else None
        if (
            last is not None
            and (last.job, last.attempt, last.first + last.count) == (job, attempt, task)
            and last.count < most
        ):
            found[-1] = Bundle(job, last.first, last.count + 1, attempt)
        else:
            found.append(Bundle(job, task, 1, attempt))
    return found
