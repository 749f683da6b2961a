"""Workflows in virtual time, with the driver and engine of every simulation: how long they take, in what order."""

from __future__ import annotations

import numpy as np
import pytest

from windfall import graph as graphs
from windfall.core.decisions import ACCEPTED
from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobRetried,
    JobRules,
    JobSealed,
    JobShaped,
    JobSubmitted,
    Result,
    ResultsReported,
    Settings,
    TaskClass,
    TasksAdded,
)
from windfall.core.state.invariants import problems
from windfall.core.state.jobs.columns import DONE
from windfall.drivers.simulated import Simulated
from windfall.lab import data
from windfall.wire.messages import CAUSES

DONE_CODE, EXIT_CODE = CAUSES.index("done"), CAUSES.index("exit")
ASK_EVERY_S = 0.25
RECORDED = ["pegasus/montage/montage-chameleon-2mass-005d-001.json", "makeflow/bwa/bwa-chameleon-small-001.json"]


class Hosts:
    """Hosts of one slot each that run one task after the other; some fail what they run, some fall silent for ever."""

    def __init__(self, driver: Simulated, count: int, run_s, rng=None, fails: float = 0.0, dies: float = 0.0) -> None:
        self.driver, self.run_s, self.rng, self.fails, self.dies = driver, run_s, rng, fails, dies
        self.started: dict[int, list[tuple[float, int]]] = {}
        self.ended: dict[tuple[int, int], float] = {}
        self.accepted: list[tuple[int, int]] = []
        for number in range(count):
            driver.at(0.0, self.ask, f"h{number}", 1)

    def ask(self, host: str, n: int) -> None:
        event = HostAsked(self.driver.now, host, "boot", n, 1, 1, {} if n == 1 else None)
        answer = self.driver.submit(event).decided
        keys = [(p.job, task, p.attempt) for p in answer.assigned for task in range(p.first, p.first + p.count)]
        if not keys:
            self.driver.after(ASK_EVERY_S, self.ask, host, n + 1)
        for key in keys:
            self.started.setdefault(key[0], []).append((self.driver.now, key[1]))
            if self.rng is not None and self.rng.random() < self.dies:
                return  # and is never heard of again
            self.driver.after(self.run_s[key[1]], self.report, host, n + 1, key, self.driver.now)

    def report(self, host: str, n: int, key: tuple[int, int, int], start: float) -> None:
        cause = EXIT_CODE if self.rng is not None and self.rng.random() < self.fails else DONE_CODE
        now = self.driver.now
        record = self.driver.submit(ResultsReported(now, host, [Result(*key, cause, 0, start, now)]))
        if record.decided.verdicts == [ACCEPTED]:
            self.accepted.append(key[:2])
            self.ended[key[:2]] = now
        self.ask(host, n)


def submitted(driver: Simulated, shape: graphs.Graph, **rules) -> int:
    job = driver.submit(JobSubmitted(driver.now, JobRules("w", **rules), [TaskClass()])).decided.job
    known = shape.key in driver.state.bags.shapes
    packed = () if known else (shape.offsets.tobytes(), shape.children.tobytes())
    driver.submit(JobShaped(driver.now, job, shape.key, *packed))
    driver.submit(TasksAdded(driver.now, job, shape.tasks))
    driver.submit(JobSealed(driver.now, job))
    return job


def random_shape(rng, tasks: int) -> graphs.Graph:
    pairs = {(int(rng.integers(0, child)), child) for child in range(1, tasks) for _ in range(2)}
    return graphs.from_edges(tasks, pairs)


def until_done(driver: Simulated, until_s: float = 1e6) -> None:
    driver.run(until_s, lambda: all(bag.finished_t is not None for bag in driver.state.bags.values()))


@pytest.mark.parametrize("seed", range(3))
def test_with_a_host_for_every_task_a_workflow_takes_its_critical_path(seed):
    rng = np.random.default_rng(seed)
    shape, run_s = random_shape(rng, 60), rng.uniform(1, 20, 60).tolist()
    driver = Simulated(Engine())
    job = submitted(driver, shape)
    Hosts(driver, 60, run_s)
    until_done(driver)
    path = shape.critical_path(run_s)
    least_s = sum(run_s[task] for task in path)
    took_s = driver.state.bags[job].finished_t
    assert least_s <= took_s + 1e-6
    assert took_s <= least_s + 2 * ASK_EVERY_S * len(path), "a host asks a little after its task has become ready"


@pytest.mark.parametrize("seed", range(3))
def test_with_few_hosts_no_host_idles_while_a_task_is_ready(seed):
    """Graham's bound: any list schedule ends within the work's share of the hosts and the rest of the longest path."""
    rng = np.random.default_rng(100 + seed)
    shape, run_s, hosts = random_shape(rng, 200), rng.uniform(1, 20, 200).tolist(), 4
    driver = Simulated(Engine())
    job = submitted(driver, shape)
    Hosts(driver, hosts, run_s)
    until_done(driver)
    longest_s = max(shape.tail(run_s))
    bound_s = sum(run_s) / hosts + (1 - 1 / hosts) * longest_s
    assert driver.state.bags[job].finished_t <= bound_s + 2 * ASK_EVERY_S * 200


@pytest.mark.parametrize("seed", range(4))
def test_failing_hosts_dying_hosts_and_a_restart_change_neither_order_nor_count(seed):
    rng = np.random.default_rng(200 + seed)
    shapes = [random_shape(rng, 40) for _ in range(3)]
    run_s = rng.uniform(1, 10, 40).tolist()
    settings = Settings(lease_s=30.0)
    records = []
    driver = Simulated(Engine(), settings, records.append)
    jobs = [submitted(driver, shapes[number % 3]) for number in range(6)]
    hosts = Hosts(driver, 12, run_s, rng, fails=0.1, dies=0.01)
    driver.run(60.0)
    driver.stop_server()
    driver.start_server(settings)
    assert problems(driver.state) == []
    for _ in range(10):
        until_done(driver, driver.now + 20_000)
        unfinished = [job for job in jobs if driver.state.bags[job].counts[DONE] < 40]
        if not unfinished:
            break
        for job in unfinished:
            driver.submit(JobRetried(driver.now, job))
        hosts = Hosts(driver, 12, run_s) if not driver.state.hosts.live else hosts
    assert [driver.state.bags[job].state for job in jobs] == ["done"] * 6
    assert problems(driver.state) == []
    done = [bag.counts[DONE] for bag in driver.state.bags.values()]
    assert done == [40] * 6
    for number, job in enumerate(jobs):
        columns = driver.state.bags[job].columns
        for task in range(40):
            for parent in shapes[number % 3].parents_of(task):
                assert columns.start[task] >= columns.end[parent], "it began before its parent had ended"


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_workflow_runs_to_its_end(name):
    try:
        path = data.find(f"workflows/wfinstances/{name}")
    except Exception as missing:
        pytest.skip(str(missing))
    from windfall.workflows import read

    spec = read(path)
    run_s = [task.runtime_s or 0.0 for task in spec.tasks]
    edges = [(parent, task) for task, parents in enumerate(spec.graph.parent_rows()) for parent in parents]
    shape = graphs.from_edges(len(spec.tasks), edges)
    driver = Simulated(Engine())
    job = submitted(driver, shape)
    Hosts(driver, 8, run_s)
    until_done(driver)
    assert driver.state.bags[job].state == "done"
    assert driver.state.bags[job].finished_t >= max(shape.tail(run_s)) - 1e-6
