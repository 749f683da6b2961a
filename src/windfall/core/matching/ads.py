"""The ads that policies see: Host, Job, BOT, Queue, Pool, made from the state (GridBot, section 4). Pure.

An ad is a mapping; attributes that users add to a bag or a worker stand beside ours and never replace them. Policies
name two or three attributes of some twenty, and every exchange needs new ads: so these are made when they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from windfall.core.events import TaskClass
from windfall.core.liveness.timeouts import pool_advice
from windfall.core.matching.lifetimes import left_s
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE, FAILED, HELD, WAITING
from windfall.core.state.state import State

Ad = Mapping[str, Any]
Makers = dict[str, Callable[[Any, float], Any]]
"""Attribute -> its value for what the ad is about, at a time. None: there is no such attribute."""


class View(Mapping[str, Any]):
    """An ad that is looked up in the state. It shows what is true while one decision is made: do not keep it."""

    __slots__ = ("_about", "_others", "_t")
    makers: ClassVar[Makers] = {}

    def __init__(self, about: Any, t: float = 0.0) -> None:
        self._about, self._t = about, t
        self._others: dict[str, Any] | None = None

    def find_others(self, about: Any) -> dict[str, Any]:
        """What has no maker: attributes of users, and what is dear to make."""
        return {}

    @property
    def others(self) -> dict[str, Any]:
        if self._others is None:
            self._others = self.find_others(self._about)
        return self._others

    def get(self, name: str, default: Any = None) -> Any:
        maker = self.makers.get(name)
        if maker is not None:
            value = maker(self._about, self._t)
            if value is not None:
                return value
        return self.others.get(name, default)

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys([*self.others, *self.makers])
        return (name for name in names if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


# --- what the host reported of itself, and what the server remembers of it --------------------------------------------


def _lifetime_s(host: Host, t: float) -> float:
    seconds = left_s(host, t)
    return 1e18 if seconds is None else seconds


HOST: Makers = {
    "Name": lambda host, t: host.ad.get("name") or host.name,
    "Cpus": lambda host, t: host.ad.get("cpus") or host.slots,
    "Memory": lambda host, t: host.ad.get("memory_mb") or 0,
    "GpuCount": lambda host, t: host.resources.get("gpus", 0),
    "OS": lambda host, t: host.ad.get("os") or "",
    "Arch": lambda host, t: host.ad.get("arch") or "",
    "Pool": lambda host, t: host.pool,
    "Speed": lambda host, t: host.ad.get("speed") or 1.0,
    "Slots": lambda host, t: host.slots,
    "Isolated": lambda host, t: bool(host.ad.get("isolation")),
    "Running": lambda host, t: len(host.held),
    "RemainingLifetime": _lifetime_s,
    "ErrorRate": lambda host, t: host.record.error_rate,
    "LossRate": lambda host, t: host.record.loss_rate,
    "JobsToday": lambda host, t: host.record.today,
    "AverageTurnaround": lambda host, t: host.record.turnaround_s,
    "CpuTimeUsedRecently": lambda host, t: host.record.cpu_s,
    "Blocked": lambda host, t: bool(host.access.blocked),
}


class HostAd(View):
    """With the tags that it reported."""

    __slots__ = ()
    makers = HOST

    def find_others(self, about: Host) -> dict[str, Any]:
        tags: dict[str, Any] = about.ad.get("tags") or {}
        return tags | {f"Tag_{name}": value for name, value in tags.items()}


# Ads are made for every question of a host: the class itself is the function, as a call around it would cost as much.
host_ad = HostAd


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


class BagAd(View):
    """With the attributes that its owner gave it."""

    __slots__ = ()
    makers = BAG

    def find_others(self, about: Bag) -> dict[str, Any]:
        return about.rules.attributes


bag_ad = BagAd


# --- the queue, and a pool --------------------------------------------------------------------------------------------


QUEUE: Makers = {"BOTsInQueue": lambda state, t: len(state.bags.unfinished)}


class QueueAd(View):
    """The bags that are not finished, whether their tasks wait or run."""

    __slots__ = ()
    makers = QUEUE


queue_ad = QueueAd


def _best_timeout_s(place: tuple[State, str], t: float) -> float | None:
    advice = pool_advice(*place)
    return None if advice is None else advice.decision.timeout_s


def _latency_95_s(place: tuple[State, str], t: float) -> float | None:
    advice = pool_advice(*place)
    return None if advice is None else advice.latency_95_s


POOL: Makers = {
    "Name": lambda place, t: place[1],
    "Running": lambda place, t: place[0].hosts.by_pool.get(place[1], 0),
    "BestTimeout": _best_timeout_s,
    "LatencyQuantile95": _latency_95_s,
}


class PoolAd(View):
    """A pool that nobody configured has a name and the workers that came by themselves."""

    __slots__ = ()
    makers = POOL

    def __init__(self, state: State, name: str) -> None:
        super().__init__((state, name), state.t)

    def find_others(self, about: tuple[State, str]) -> dict[str, Any]:
        state, name = about
        pool = state.supply.pools.get(name)
        if pool is None:
            return {}
        rules = pool.rules
        ad = {"Kind": rules.kind, "Queued": pool.queued, "Price": rules.price_usd}
        return ad if rules.joins_itself else ad | {"Limit": rules.limit}


pool_ad = PoolAd


# --- tasks ------------------------------------------------------------------------------------------------------------


def _gpus(rules: TaskClass) -> float:
    return dict(rules.needs).get("gpus", 0) / 1000


CLASS: Makers = {
    "NumberOfReplicas": lambda rules, t: 0,
    "Cpus": lambda rules, t: rules.cpus,
    "Memory": lambda rules, t: rules.memory_for(1) >> 20,
    "GpuCount": lambda rules, t: _gpus(rules),
    "Executable": lambda rules, t: rules.executable or None,
}


class TaskClassAd(View):
    """What the tasks of a class share before they have replicas."""

    __slots__ = ()
    makers = CLASS


class_ad = TaskClassAd


Task = tuple[State, Bag, int, tuple[Attempt, ...], float]
"""What the ad of a task with replicas is about; the time at the end."""


def _next_memory_mb(task: Task, t: float) -> int:
    _, bag, index, _, _ = task
    return bag.memory_for(index, bag.columns.attempts[index] + 1) >> 20


def _task_name(bag: Bag, task: int) -> str:
    """As commands take it: `windfall explain NAME`."""
    return f"{bag.rules.name}.{task}"


JOB: Makers = {
    "Name": lambda task, t: _task_name(task[1], task[2]),
    "Executable": lambda task, t: task[1].classes[task[1].class_of(task[2])].executable or None,
    "NumberOfReplicas": lambda task, t: len(task[3]) + task[1].queues.replicas.get(task[2], 0),
    "Attempts": lambda task, t: task[1].columns.attempts[task[2]],
    "Failures": lambda task, t: task[1].columns.failures[task[2]],
    "Losses": lambda task, t: task[1].columns.losses[task[2]],
    "Cpus": lambda task, t: task[1].classes[task[1].class_of(task[2])].cpus,
    "Memory": _next_memory_mb,
    "GpuCount": lambda task, t: _gpus(task[1].classes[task[1].class_of(task[2])]),
    "Index": lambda task, t: task[2],
    "Hash": lambda task, t: task_hash(task[1].number, task[2]),
}


class JobAd(View):
    """A task with its running replicas; `Replica1` is the one that was sent first."""

    __slots__ = ()
    makers = JOB

    def find_others(self, about: Task) -> dict[str, Any]:
        state, bag, task, attempts, t = about
        return {
            f"Replica{place}": {
                "Name": f"{_task_name(bag, task)}_{attempt.number}",
                "SentTime": attempt.sent,
                "Host": host_ad(state.hosts[attempt.host], t) if attempt.host in state.hosts else {},
            }
            for place, attempt in enumerate(attempts, 1)
        }


def job_ad(state: State, bag: Bag, task: int, attempts: tuple[Attempt, ...], t: float) -> Ad:
    return JobAd((state, bag, task, attempts, t), t)


def task_hash(job: int, task: int) -> float:
    """A number in [0, 1) that is the task's own: what policies use for chance, the same at every look."""
    x = (job * 0x9E3779B97F4A7C15 + task * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x ^= x >> 31
    x = (x * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (x >> 11) / float(1 << 53)
