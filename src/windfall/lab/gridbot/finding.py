"""What an experiment of the laboratory finds, and the means of its runs. Touches its executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from windfall.sim.run import RunOutcome, completions, run
from windfall.sim.scenario import Scenario
from windfall.sim.studies.sweep import sweep

H = 3600.0
NOT_CHECKED = None
Claim = tuple[str, bool | None]
"""A statement of the paper and whether it came out here; None: it was not checked, and the text says why."""


class Finding(Struct):
    """One experiment: a table, the paper's claims and whether they hold here, numbers, curves to draw."""

    name: str
    title: str
    assumed: str
    heads: list[str]
    rows: list[list[str]]
    claims: list[Claim]
    data: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a statement did not come out, by the statement, where the cause was found."""
    curves: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)


class Observed(Struct):
    """One run: its outcome, when the tasks of each bag were done (seconds, ascending), and attempts sent by pool."""

    outcome: RunOutcome
    ends_s: dict[str, list[float]]
    sent: dict[str, int]


def observe(scenario: bytes, seed: int) -> bytes:
    """For executors: a scenario and a seed in, what was observed out, both encoded."""
    outcome, world = run(msgspec.msgpack.decode(scenario, type=Scenario), seed)
    state = world.driver.state
    sent = {
        name: book.done + book.discarded + book.failed + book.lost + book.cancelled
        for name, book in outcome.pools.items()
    }
    for host in state.hosts.values():
        sent[host.pool] = sent.get(host.pool, 0) + len(host.held)
    ends_s = {bag.rules.name: completions(bag).tolist() for bag in state.bags.values()}
    return msgspec.msgpack.encode(Observed(outcome, ends_s, sent))


class Means(Struct):
    """Scale, number of seeds, and executor of the runs."""

    scale: float
    seeds: int
    executor: Executor | None = None
    show: Callable[[str], None] = lambda text: None

    def sweep(self, scenario: Scenario, seeds: int | None = None) -> list[RunOutcome]:
        self.show(scenario.name)
        return sweep(scenario, range(1, (seeds or self.seeds) + 1), self.executor)

    def observe(self, scenario: Scenario, seeds: int) -> list[Observed]:
        """As `sweep`, with more of each run: in the order of the seeds."""
        self.show(scenario.name)
        data, numbers = msgspec.msgpack.encode(scenario), range(1, seeds + 1)
        if self.executor is None:
            answers = [observe(data, seed) for seed in numbers]
        else:
            answers = list(self.executor.map(observe, [data] * seeds, numbers))
        return [msgspec.msgpack.decode(answer, type=Observed) for answer in answers]


def incomplete(ends_s: Any, points: int = 400) -> tuple[Any, Any]:
    """Incomplete tasks over time, in hours, from the times at which tasks were done."""
    ends = np.asarray(ends_s)
    places = np.unique(np.linspace(0, len(ends) - 1, points).astype(int))
    return ends[places] / H, len(ends) - places - 1
