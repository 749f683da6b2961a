"""`windfall bench match`: how many exchanges a second the engine can match, and how that grows with bags and tasks.

In one process and without a network: `Engine.decide` over `HostAsked`, nothing applied, so all exchanges meet the same
bags. Beside it, in the same run, a floor: one ClassAd evaluation a bag. Touches the clock of the processor, because the
machine may be shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np

from windfall.bench.harness import report, show
from windfall.core.decisions import HostAnswered
from windfall.core.engine import Engine
from windfall.core.events import HostAsked, JobRules, JobSealed, JobSubmitted, TaskClass, TasksAdded
from windfall.core.state.state import State

GROWTH = (1, 10, 100, 1_000)
GROWTH_HOSTS = 2_000
TASKS_GROWTH = (1, 1_000, 1_000_000)
TASKS_GROWTH_BAGS = 3
MEMORY_MB = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
# How policies of bags differ: a few common ones (`mixed`), or one of its own per bag (`distinct`).
PROFILES = ("mixed", "distinct", "unwanted")


@click.command()
@click.option("--bags", default=1_000, show_default=True, type=click.IntRange(1), help="Bags with waiting tasks.")
@click.option("--hosts", default=25_000, show_default=True, type=click.IntRange(1), help="Hosts that ask in turn.")
@click.option("--tasks", default=1_000, show_default=True, type=click.IntRange(1), help="Tasks in each bag.")
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.05), help="Of each measurement.")
@click.option("--seed", default=1, show_default=True, help="Of hosts and bags.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(bags: int, hosts: int, tasks: int, seconds: float, seed: int, as_json: bool) -> None:
    """Match HOSTS hosts with BAGS bags: exchanges a second that only match, and how the time of one grows.

    \b
    Example:
      windfall bench match --bags 1000 --hosts 25000
    """
    document: dict[str, Any] = {"bench": "match", "bags": bags, "hosts": hosts, "tasks_per_bag": tasks, "seed": seed}
    show("one classad evaluation a bag")
    document["floor_per_s"] = floor_rate(bags, seconds)
    document["floor_is"] = "exchanges a second that evaluate one ClassAd expression a bag and decide nothing"
    for profile in PROFILES:
        show(f"{bags:,} bags, {profile}")
        measured = Measured(bags, hosts, tasks, profile, seed)
        document[f"{profile}_per_s"] = measured.rate(seconds)
        document[f"{profile}_matched_share"] = measured.matched_share
        document[f"{profile}_ratio_to_floor"] = document[f"{profile}_per_s"] / document["floor_per_s"]
    sizes = sorted({*(size for size in GROWTH if size < bags), bags})
    for profile in ("mixed", "distinct"):
        document[f"us_by_bags_{profile}"] = grown(sizes, partial(growth_rate, hosts, tasks, profile, seed, seconds / 2))
    document["us_by_tasks"] = grown(
        list(TASKS_GROWTH), lambda n: growth_rate(hosts, n, "mixed", seed, seconds / 2, TASKS_GROWTH_BAGS)
    )
    show("")
    report({key: value for key, value in document.items() if as_json or not isinstance(value, dict)}, as_json)
    if not as_json:
        for profile in ("mixed", "distinct"):
            _draw(f"microseconds of one exchange by bags, {profile}", document[f"us_by_bags_{profile}"])
        _draw(f"microseconds of one exchange by tasks in each of {TASKS_GROWTH_BAGS} bags", document["us_by_tasks"])


def growth_rate(hosts: int, tasks: int, profile: str, seed: int, seconds: float, bags: int) -> float:
    # Few hosts suffice here: the cost of one exchange does not depend on the number of other hosts.
    return Measured(bags, min(hosts, GROWTH_HOSTS), tasks, profile, seed).rate(seconds)


def grown(sizes: list[int], rate: Callable[[int], float]) -> dict[int, float]:
    """Microseconds of one exchange at each size."""
    found = {}
    for size in sizes:
        show(f"growth: {size:,}")
        found[size] = 1e6 / rate(size)
    return found


def _draw(title: str, times_us: dict[int, float]) -> None:
    click.echo(f"  {title}")
    longest = max(times_us.values())
    for size, us in times_us.items():
        click.echo(f"    {size:>10,}  {us:>10,.1f}  {'█' * max(1, round(40 * us / longest))}")


class Measured:
    """An engine with bags and hosts. Each measured exchange asks as the next host, and changes nothing."""

    def __init__(self, bags: int, hosts: int, tasks: int, profile: str, seed: int) -> None:
        from windfall.server.http.submission import known_policies

        self.rng = np.random.default_rng(seed)
        self.engine = Engine(known_policies)
        self.state = State()
        for number in range(bags):
            self._add_bag(number, tasks, profile)
        self.asks = [self._join(number) for number in range(hosts)]
        self.matched_share = 0.0

    def _add_bag(self, number: int, tasks: int, profile: str) -> None:
        rules = JobRules(f"bag{number}", owner=f"user{number % 40}", policies=policies(number, profile, self.rng))
        job = number + 1
        self.engine.step(self.state, JobSubmitted(0.0, rules, [TaskClass()]))
        self.engine.step(self.state, TasksAdded(0.0, job, tasks))
        self.engine.step(self.state, JobSealed(0.0, job))

    def _join(self, number: int) -> HostAsked:
        ad = {
            "cpus": 4,
            "memory_mb": int(self.rng.choice(MEMORY_MB)),
            "speed": round(float(self.rng.lognormal(0.0, 0.3)), 2),
            "os": "linux",
            "pool": f"pool{number % 5}",
            "tags": {"site": f"s{number % 12}"},
        }
        name = f"h{number}"
        # The joining exchange wants no task, so the host is not matched.
        self.engine.step(self.state, HostAsked(0.0, name, "b", 1, 0, 4, ad))
        return HostAsked(1.0, name, "b", 2, 4, 4)

    def rate(self, seconds: float) -> float:
        """Exchanges a second, measured after every host has asked once."""
        decide, state = self.engine.decide, self.state
        for ask in self.asks[:2_000]:
            decide(state, ask)
        count = matched = 0
        began = time.process_time()
        while (elapsed := time.process_time() - began) < seconds:
            for ask in self.asks[count % len(self.asks) :][:50]:
                decided = decide(state, ask).decided
                count += 1
                matched += isinstance(decided, HostAnswered) and bool(decided.assigned)
        self.matched_share = matched / count
        return count / elapsed


def policies(number: int, profile: str, rng: np.random.Generator) -> dict[str, str]:
    memory, speed = int(rng.choice(MEMORY_MB)), round(0.5 + 0.1 * int(rng.integers(0, 6)), 1)
    if profile == "unwanted":
        return {"JobRequirements": f'Host.site == "elsewhere" && Host.Memory >= {memory}'}
    if profile == "distinct":
        memory += number
    return {
        "JobRequirements": f"Host.Memory >= {memory} && Host.Speed > {speed} && Host.ErrorRate < 0.1",
        "Rank": f"{1 + number % 50} * Host.Speed",
        "Concurrency": "Host.Cpus",
    }


def floor_rate(bags: int, seconds: float) -> float:
    """Exchanges a second if each only evaluated one expression per bag."""
    from classad2 import ClassAd, ExprTree

    tree = ExprTree("a >= 4096 && b > 0.8 && c < 0.1")
    ad = ClassAd({"a": 8192, "b": 1.1, "c": 0.0})
    count = 0
    began = time.process_time()
    while (elapsed := time.process_time() - began) < seconds:
        for _ in range(1_000):
            tree.eval(ad)
        count += 1_000
    return count / elapsed / bags
