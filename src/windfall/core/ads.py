"""The ads that policies see: Host, Job, BOT, Queue, Pool, made from the state (GridBot, section 4). Pure.

An ad is a plain dict; attributes that users add to a bag or a worker stand beside ours and never replace them.
"""

from __future__ import annotations

from typing import Any

from windfall.core.columns import DONE, FAILED, HELD, WAITING
from windfall.core.events import TaskClass
from windfall.core.patience import pool_advice
from windfall.core.state import Attempt, Bag, Host, State

Ad = dict[str, Any]


def host_ad(host: Host, t: float) -> Ad:
    """What the host reported of itself, and what the server remembers of it."""
    ad, record = host.ad, host.record
    tags: Ad = ad.get("tags") or {}
    lifetime_s = ad.get("lifetime_s")
    return tags | {f"Tag_{name}": value for name, value in tags.items()} | {
        "Name": ad.get("name") or host.name,
        "Cpus": ad.get("cpus") or host.slots,
        "Memory": ad.get("memory_mb") or 0,
        "OS": ad.get("os") or "",
        "Arch": ad.get("arch") or "",
        "Pool": host.pool,
        "Speed": ad.get("speed") or 1.0,
        "Slots": host.slots,
        "Running": len(host.held),
        "RemainingLifetime": 1e18 if lifetime_s is None else max(0.0, lifetime_s - (t - host.ad_t)),
        "ErrorRate": record.error_rate,
        "LossRate": record.loss_rate,
        "JobsToday": record.today,
        "AverageTurnaround": record.turnaround_s,
        "CpuTimeUsedRecently": record.cpu_s,
        "Blocked": bool(host.blocked),
    }  # fmt: skip


def bag_ad(bag: Bag, t: float) -> Ad:
    rules, counts = bag.rules, bag.counts
    deadline = None if rules.deadline_s is None else bag.submitted_t + rules.deadline_s
    ad: Ad = dict(rules.attributes)
    ad |= {
        "Name": rules.name,
        "Owner": rules.owner,
        "Priority": rules.priority,
        "JobsTotal": bag.total,
        "JobsLeft": counts[WAITING] + counts[HELD],
        "JobsDone": counts[DONE],
        "JobsQueued": counts[WAITING],
        "JobsRunning": counts[HELD],
        "JobsFailed": counts[FAILED],
        "Tail": bag.tail,
        "SubmitTime": bag.submitted_t,
    }
    if deadline is not None:
        ad["DeadlineTime"] = deadline
        ad["TimeLeft"] = deadline - t
    return ad


def queue_ad(state: State) -> Ad:
    return {"BOTsInQueue": len(state.ready)}


def pool_ad(state: State, name: str) -> Ad:
    """A pool that nobody configured has a name and the clients that came by themselves."""
    ad: Ad = {"Name": name, "Running": state.clients.get(name, 0)}
    advice = pool_advice(state, name)
    if advice is not None:
        ad["BestTimeout"] = advice.decision.timeout_s
        if advice.latency_95_s is not None:
            ad["LatencyQuantile95"] = advice.latency_95_s
    pool = state.pools.get(name)
    if pool is None:
        return ad
    rules = pool.rules
    ad |= {"Kind": rules.kind, "Queued": pool.queued, "Price": rules.price_usd}
    if not rules.joins_itself:
        ad["Limit"] = rules.limit
    return ad


def class_ad(rules: TaskClass) -> Ad:
    """What the tasks of a class share before they have replicas."""
    return {"NumberOfReplicas": 0, "Cpus": rules.cpus, "Memory": rules.memory_for(1) >> 20}


def job_ad(state: State, bag: Bag, task: int, attempts: list[Attempt], t: float) -> Ad:
    """A task with its running replicas: `Replica1` is the one that was sent first."""
    columns = bag.columns
    rules = bag.classes[bag.class_of(task)]
    ad: Ad = {
        "NumberOfReplicas": len(attempts),
        "Attempts": columns.attempts[task],
        "Failures": columns.failures[task],
        "Losses": columns.losses[task],
        "Cpus": rules.cpus,
        "Memory": rules.memory_for(columns.attempts[task] + 1) >> 20,
        "Index": task,
        "Hash": task_hash(bag.number, task),
    }
    for place, attempt in enumerate(attempts, 1):
        host = state.hosts.get(attempt.host)
        ad[f"Replica{place}"] = {
            "SentTime": attempt.sent,
            "Host": {} if host is None else host_ad(host, t),
        }
    return ad


def task_hash(job: int, task: int) -> float:
    """A number in [0, 1) that is the task's own: what policies use for chance, the same at every look."""
    x = (job * 0x9E3779B97F4A7C15 + task * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x ^= x >> 31
    x = (x * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (x >> 11) / float(1 << 53)
