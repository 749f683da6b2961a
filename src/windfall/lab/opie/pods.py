"""A week of real pods on a small site, best-effort ones as preemptible instances. Reads the trace it is given.

Simplifications: an evicted pod starts again from the beginning with the same run time; a pod that does not fit waits in
order (normal pods first) and is tried again when another ends; a preemptible pod pays by its share of its host, one
dollar an hour for a whole host, and not for the last, partial hour if it is evicted (the paper's rule); pods that run
when the week begins are placed then, and billed from their creation.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
from msgspec import Struct

from windfall.errors import BadInput
from windfall.placement import Cost, Host, Instance, Request, Scheduler, Site

WEEK_S = 7 * 86_400
FOLDER = "placement/alibaba-gpu-v2023"


class Pod(Struct, frozen=True):
    name: str
    preemptible: bool
    created_s: float
    run_s: float
    resources: Mapping[str, float]


class WeekResult(Struct, frozen=True):
    """The result of a week with one way of choosing. Shares are of the whole site over the whole week."""

    way: str
    cpu_used: float
    gpu_used: float
    normal_placed: int
    normal_waited: int
    normal_wait_s: float  # mean over the pods that waited
    evicting: int  # normal pods that caused evictions
    evictions: int
    work_lost_vcpu_h: float
    unbilled_usd: float
    revenue_usd: float
    preemptible_done: int


def read_pods(file: Path) -> list[Pod]:
    pods = []
    with open(file, newline="") as lines:
        for row in csv.DictReader(lines):
            created, deleted = float(row["creation_time"]), float(row["deletion_time"])
            gpu = float(row["num_gpu"]) * float(row["gpu_milli"] or 0) / 1000
            size = {"vcpu": float(row["cpu_milli"]) / 1000, "ram_mb": float(row["memory_mib"]), "gpu": gpu}
            pods.append(Pod(row["name"], row["qos"] == "BE", created, deleted - created, size))
    return pods


def busiest_week(pods: Sequence[Pod]) -> float:
    """The start of the week, counted from the start of the trace, in which most pods were created."""
    weeks = [int(pod.created_s // WEEK_S) for pod in pods]
    return max(set(weeks), key=lambda week: (weeks.count(week), -week)) * float(WEEK_S)


def pods_of_week(pods: Sequence[Pod], start_s: float, copies: int) -> list[Pod]:
    """Pods that run or start in the week; each best-effort pod `copies` times, at most an hour apart."""
    here = [pod for pod in pods if pod.created_s < start_s + WEEK_S and pod.created_s + pod.run_s > start_s]
    result = []
    for pod in here:
        for copy in range(copies if pod.preemptible else 1):
            created_s = pod.created_s + 3600 * copy / copies
            result.append(Pod(f"{pod.name}.{copy}", pod.preemptible, created_s, pod.run_s, pod.resources))
    return sorted(result, key=lambda pod: (pod.created_s, pod.name))


def read_site(file: Path, pods: Sequence[Pod], start_s: float) -> list[Host]:
    """The fewest nodes, evenly spaced in the list, that have at least the normal pods' peak of every resource."""
    with open(file, newline="") as lines:
        nodes = [
            Host(
                row["sn"],
                {"vcpu": float(row["cpu_milli"]) / 1000, "ram_mb": float(row["memory_mib"]), "gpu": float(row["gpu"])},
            )
            for row in csv.DictReader(lines)
        ]
    peak = _peak([pod for pod in pods if not pod.preemptible], start_s)
    for count in range(1, len(nodes) + 1):
        chosen = [nodes[int(i)] for i in np.linspace(0, len(nodes) - 1, count).round()]
        if all(sum(host.capacity[name] for host in chosen) >= amount for name, amount in peak.items()):
            return chosen
    raise BadInput(f"{file}: all nodes together are smaller than the normal pods' peak")


def _peak(pods: Sequence[Pod], start_s: float) -> dict[str, float]:
    hours = start_s + np.arange(0, WEEK_S, 3600)
    return {
        name: max(
            sum(pod.resources[name] for pod in pods if pod.created_s <= hour < pod.created_s + pod.run_s)
            for hour in hours
        )
        for name in ("vcpu", "ram_mb", "gpu")
    }


class Week:
    """One week under one scheduler: pods come, run, end, are evicted and wait."""

    def __init__(self, hosts: Sequence[Host], way: str, cost: Cost, weighers: Mapping[str, float], seed: int) -> None:
        self.way = way
        self.site = Site(hosts)
        self.scheduler = Scheduler(self.site, cost, weighers, np.random.default_rng(seed))
        self.waiting: dict[bool, deque[Pod]] = {False: deque(), True: deque()}  # by preemptible
        self.running: dict[str, tuple[Pod, float, int]] = {}  # pod, since, how often it has started
        self.ends: list[tuple[float, str, int]] = []
        self.starts: dict[str, int] = {}
        self.used_s = np.zeros(len(self.site.resources))
        self.start_s = self.last_s = 0.0
        self.waits: list[float] = []
        self.evicting = self.evictions = self.placed = self.done = 0
        self.lost_vcpu_s = self.unbilled_usd = self.revenue_usd = 0.0

    def run(self, pods: Sequence[Pod], start_s: float) -> WeekResult:
        self.start_s = self.last_s = start_s
        arrivals = deque(pods)
        while arrivals or self.ends:
            end_s = self.ends[0][0] if self.ends else np.inf
            arrival_s = max(start_s, arrivals[0].created_s) if arrivals else np.inf
            now_s = min(end_s, arrival_s)
            if now_s >= start_s + WEEK_S:
                break
            self._pass(now_s)
            if end_s <= arrival_s:
                self._end(heappop(self.ends), now_s)
            else:
                pod = arrivals.popleft()
                if not self._start(pod, now_s, pod.created_s if pod.created_s < start_s else now_s):
                    self.waiting[pod.preemptible].append(pod)
        self._pass(start_s + WEEK_S)
        for pod, since_s, _ in self.running.values():
            self._bill(pod, start_s + WEEK_S - since_s, evicted=False)
        return self._outcome()

    def _pass(self, now_s: float) -> None:
        used = (self.site.capacity - self.site.free_f).sum(axis=1)
        self.used_s += used * (now_s - self.last_s)
        self.last_s = now_s

    def _start(self, pod: Pod, now_s: float, since_s: float) -> bool:
        decision = self.scheduler.decide(Request(pod.preemptible, pod.resources), now_s)
        if decision.host is None:
            return False
        self.evicting += bool(decision.victims)
        evicted = [self._evict(victim, now_s) for victim in decision.victims]
        self.site.boot(decision.host, Instance(pod.name, pod.preemptible, now_s - since_s, pod.resources), now_s)
        count = self.starts[pod.name] = self.starts.get(pod.name, 0) + 1
        self.running[pod.name] = (pod, since_s, count)
        heappush(self.ends, (since_s + pod.run_s, pod.name, count))
        if not pod.preemptible:
            self.placed += 1
        self.waiting[True].extend(evicted)
        return True

    def _evict(self, name: str, now_s: float) -> Pod:
        pod, since_s, _ = self.running[name]
        self.evictions += 1
        self.lost_vcpu_s += (now_s - since_s) * pod.resources["vcpu"]
        self._bill(pod, now_s - since_s, evicted=True)
        del self.running[name]
        self.site.remove(name)
        return pod

    def _end(self, end: tuple[float, str, int], now_s: float) -> None:
        _, name, count = end
        if name not in self.running or self.running[name][2] != count:
            return  # it was evicted, and runs again or waits
        pod, since_s, _ = self.running[name]
        self._bill(pod, now_s - since_s, evicted=False)
        self.done += pod.preemptible
        del self.running[name]
        self.site.remove(name)
        for preemptible in (False, True):
            self._try_waiting(preemptible, now_s)

    def _try_waiting(self, preemptible: bool, now_s: float) -> None:
        queue, self.waiting[preemptible] = self.waiting[preemptible], deque()
        kept: list[Pod] = []
        hopeless: set[tuple[float, ...]] = set()
        for pod in queue:
            size = tuple(pod.resources.values())
            if size in hopeless or not self._start(pod, now_s, now_s):
                hopeless.add(size)
                kept.append(pod)
            elif not preemptible:
                self.waits.append(now_s - max(pod.created_s, self.start_s))
        self.waiting[preemptible].extendleft(reversed(kept))

    def _bill(self, pod: Pod, ran_s: float, *, evicted: bool) -> None:
        if not pod.preemptible:
            return
        placed = self.site.instances[pod.name]
        usd_per_s = self.site.price_microusd_of(placed.host, placed.instance) / 1e6 / 3600
        unbilled_s = ran_s % 3600 if evicted else 0.0
        self.unbilled_usd += unbilled_s * usd_per_s
        self.revenue_usd += (ran_s - unbilled_s) * usd_per_s

    def _outcome(self) -> WeekResult:
        share = self.used_s / self.site.capacity.sum(axis=1) / WEEK_S
        by_name = dict(zip(self.site.resources, share.tolist(), strict=True))
        waited = len(self.waits) + len(self.waiting[False])
        return WeekResult(
            self.way,
            by_name["vcpu"],
            by_name["gpu"],
            self.placed,
            waited,
            float(np.mean(self.waits)) if self.waits else 0.0,
            self.evicting,
            self.evictions,
            self.lost_vcpu_s / 3600,
            self.unbilled_usd,
            self.revenue_usd,
            self.done,
        )
