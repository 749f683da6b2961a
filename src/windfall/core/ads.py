"""The ads that policies see: Host, Job, BOT, Queue, Pool, made from the state (GridBot, section 4). Pure.

An ad is a mapping; attributes that users add to a bag or a worker stand beside ours and never replace them. Policies
name two or three attributes of some twenty, and every exchange needs new ads: so these are made when they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from windfall.core.columns import DONE, FAILED, HELD, WAITING
from windfall.core.events import TaskClass
from windfall.core.patience import pool_advice
from windfall.core.state import Attempt, Bag, Host, State

Ad = Mapping[str, Any]
Makers = dict[str, Callable[[Any, float], Any]]
"""Attribute -> its value for what the ad is about, at a time. None: there is no such attribute."""


class View(Mapping[str, Any]):
    """An ad that is looked up in the state. It shows what is true while one decision is made: do not keep it."""

    __slots__ = ("_about", "_find_others", "_makers", "_others", "_t")

    def __init__(self, makers: Makers, about: Any, t: float, others: Callable[[Any], dict[str, Any]]) -> None:
        self._makers, self._about, self._t, self._find_others = makers, about, t, others
        self._others: dict[str, Any] | None = None

    @property
    def others(self) -> dict[str, Any]:
        """What has no maker: attributes of users, and what is dear to make."""
        if self._others is None:
            self._others = self._find_others(self._about)
        return self._others

    def get(self, name: str, default: Any = None) -> Any:
        maker = self._makers.get(name)
        value = None if maker is None else maker(self._about, self._t)
        return self.others.get(name, default) if value is None else value

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys([*self.others, *self._makers])
        return (name for name in names if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


# --- what the host reported of itself, and what the server remembers of it --------------------------------------------


def _lifetime_s(host: Host, t: float) -> float:
    lifetime_s = host.ad.get("lifetime_s")
    return 1e18 if lifetime_s is None else max(0.0, lifetime_s - (t - host.ad_t))


HOST: Makers = {
    "Name": lambda host, t: host.ad.get("name") or host.name,
    "Cpus": lambda host, t: host.ad.get("cpus") or host.slots,
    "Memory": lambda host, t: host.ad.get("memory_mb") or 0,
    "OS": lambda host, t: host.ad.get("os") or "",
    "Arch": lambda host, t: host.ad.get("arch") or "",
    "Pool": lambda host, t: host.pool,
    "Speed": lambda host, t: host.ad.get("speed") or 1.0,
    "Slots": lambda host, t: host.slots,
    "Running": lambda host, t: len(host.held),
    "RemainingLifetime": _lifetime_s,
    "ErrorRate": lambda host, t: host.record.error_rate,
    "LossRate": lambda host, t: host.record.loss_rate,
    "JobsToday": lambda host, t: host.record.today,
    "AverageTurnaround": lambda host, t: host.record.turnaround_s,
    "CpuTimeUsedRecently": lambda host, t: host.record.cpu_s,
    "Blocked": lambda host, t: bool(host.blocked),
}


def _tags(host: Host) -> dict[str, Any]:
    tags: dict[str, Any] = host.ad.get("tags") or {}
    return tags | {f"Tag_{name}": value for name, value in tags.items()}


def host_ad(host: Host, t: float) -> Ad:
    return View(HOST, host, t, _tags)


# --- a bag ------------------------------------------------------------------------------------------------------------


def _deadline_t(bag: Bag, t: float) -> float | None:
    return None if bag.rules.deadline_s is None else bag.submitted_t + bag.rules.deadline_s


def _time_left_s(bag: Bag, t: float) -> float | None:
    deadline_t = _deadline_t(bag, t)
    return None if deadline_t is None else deadline_t - t


BAG: Makers = {
    "Name": lambda bag, t: bag.rules.name,
    "Owner": lambda bag, t: bag.rules.owner,
    "Priority": lambda bag, t: bag.rules.priority,
    "JobsTotal": lambda bag, t: bag.total,
    "JobsLeft": lambda bag, t: bag.counts[WAITING] + bag.counts[HELD],
    "JobsDone": lambda bag, t: bag.counts[DONE],
    "JobsQueued": lambda bag, t: bag.waiting,
    "JobsRunning": lambda bag, t: bag.counts[HELD],
    "JobsFailed": lambda bag, t: bag.counts[FAILED],
    "Tail": lambda bag, t: bag.tail,
    "SubmitTime": lambda bag, t: bag.submitted_t,
    "DeadlineTime": _deadline_t,
    "TimeLeft": _time_left_s,
}


def _attributes(bag: Bag) -> dict[str, Any]:
    return bag.rules.attributes


def bag_ad(bag: Bag, t: float) -> Ad:
    return View(BAG, bag, t, _attributes)


# --- the queue, and a pool --------------------------------------------------------------------------------------------


def queue_ad(state: State) -> Ad:
    return {"BOTsInQueue": len(state.ready)}


def _best_timeout_s(place: tuple[State, str], t: float) -> float | None:
    advice = pool_advice(*place)
    return None if advice is None else advice.decision.timeout_s


def _latency_95_s(place: tuple[State, str], t: float) -> float | None:
    advice = pool_advice(*place)
    return None if advice is None else advice.latency_95_s


def _configured(place: tuple[State, str]) -> dict[str, Any]:
    """A pool that nobody configured has a name and the clients that came by themselves."""
    state, name = place
    pool = state.pools.get(name)
    if pool is None:
        return {}
    rules = pool.rules
    ad = {"Kind": rules.kind, "Queued": pool.queued, "Price": rules.price_usd}
    return ad if rules.joins_itself else ad | {"Limit": rules.limit}


POOL: Makers = {
    "Name": lambda place, t: place[1],
    "Running": lambda place, t: place[0].clients.get(place[1], 0),
    "BestTimeout": _best_timeout_s,
    "LatencyQuantile95": _latency_95_s,
}


def pool_ad(state: State, name: str) -> Ad:
    return View(POOL, (state, name), state.t, _configured)


# --- tasks ------------------------------------------------------------------------------------------------------------


def class_ad(rules: TaskClass) -> Ad:
    """What the tasks of a class share before they have replicas."""
    return {"NumberOfReplicas": 0, "Cpus": rules.cpus, "Memory": rules.memory_for(1) >> 20}


Task = tuple[State, Bag, int, list[Attempt], float]
"""What the ad of a task with replicas is about; the time at the end."""


def _next_memory_mb(task: Task, t: float) -> int:
    _, bag, index, _, _ = task
    return bag.classes[bag.class_of(index)].memory_for(bag.columns.attempts[index] + 1) >> 20


JOB: Makers = {
    "NumberOfReplicas": lambda task, t: len(task[3]),
    "Attempts": lambda task, t: task[1].columns.attempts[task[2]],
    "Failures": lambda task, t: task[1].columns.failures[task[2]],
    "Losses": lambda task, t: task[1].columns.losses[task[2]],
    "Cpus": lambda task, t: task[1].classes[task[1].class_of(task[2])].cpus,
    "Memory": _next_memory_mb,
    "Index": lambda task, t: task[2],
    "Hash": lambda task, t: task_hash(task[1].number, task[2]),
}


def _replicas(task: Task) -> dict[str, Any]:
    """`Replica1` is the one that was sent first."""
    state, _, _, attempts, t = task
    return {
        f"Replica{place}": {
            "SentTime": attempt.sent,
            "Host": host_ad(state.hosts[attempt.host], t) if attempt.host in state.hosts else {},
        }
        for place, attempt in enumerate(attempts, 1)
    }


def job_ad(state: State, bag: Bag, task: int, attempts: list[Attempt], t: float) -> Ad:
    """A task with its running replicas."""
    return View(JOB, (state, bag, task, attempts, t), t, _replicas)


def task_hash(job: int, task: int) -> float:
    """A number in [0, 1) that is the task's own: what policies use for chance, the same at every look."""
    x = (job * 0x9E3779B97F4A7C15 + task * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x ^= x >> 31
    x = (x * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (x >> 11) / float(1 << 53)
