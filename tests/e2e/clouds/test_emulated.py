"""The emulated cloud takes machines by its laws, by a trace and by hand. Real processes; their server is not there."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.clouds.providers import SPOT, STEADY
from tests.support.server.worker_process import alive, until_gone
from windfall.errors import BadInput
from windfall.pools.contract import ENDED, FAILED, HIBERNATED, RUNNING, TAKEN, Order, PoolError
from windfall.pools.emulated.cloud import EmulatedPool
from windfall.pools.emulated.config import Cloud, Rented, Trace
from windfall.pools.kinds import Place

MANY = replace(SPOT, limit=None)


class Provider:
    """One emulated cloud in a directory, opened as often as the test likes."""

    def __init__(self, directory: Path, **cloud: object) -> None:
        self.directory = directory
        (directory / "token").write_text("wf_x_y")
        self.cloud = Cloud("cloud", **{"rented": (Rented(MANY), Rented(STEADY)), **cloud})
        self.pools: list[EmulatedPool] = []
        self.pool = self.open()

    def open(self, url: str = "http://127.0.0.1:9") -> EmulatedPool:
        for pool in self.pools:
            pool.close()
        place = Place(url, self.directory / "token", self.directory / "account")
        self.pools.append(EmulatedPool(self.cloud, place, "me"))
        self.pool = self.pools[-1]
        return self.pool

    def order(self, number: int) -> str:
        answer = self.pool.start(Order(f"{self.directory.name}-m{number}", MANY.cores, number, MANY))
        assert isinstance(answer, str), answer
        return answer

    def phases(self) -> dict[int, str]:
        return {int(seen.host.rpartition("m")[2]): seen.phase for seen in self.pool.list()}

    def processes(self, id: str) -> list[int]:
        return self.pool._trees[id].members()

    def works(self, id: str) -> bool:
        """Has its worker found that there is no server?"""
        log = self.directory / "account" / id / "worker.log"
        return log.exists() and "cannot be reached" in log.read_text()

    def close(self) -> None:
        pool = self.open()
        for seen in pool.list():
            pool.stop(seen.id)
        pool.close()


@pytest.fixture
def provider(tmp_path):
    made: list[Provider] = []

    def make(**cloud: object) -> Provider:
        made.append(Provider(tmp_path, **cloud))
        return made[-1]

    yield make
    for one in made:
        one.close()


def until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False  # it ended meanwhile, as what runs may


def test_hibernation_freezes_every_process_and_an_end_leaves_none(provider):
    cloud = provider()
    id = cloud.order(1)
    until(lambda: cloud.phases() == {1: RUNNING} and cloud.works(id))
    cloud.pool.poke(id, "hibernate")
    family = cloud.processes(id)
    assert all(is_stopped(pid) for pid in family)
    cloud.pool.poke(id, "resume")
    assert not any(is_stopped(pid) for pid in family)
    cloud.pool.poke(id, "terminate")
    until_gone(family)
    assert [(seen.phase, seen.cause) for seen in cloud.pool.list()] == [(ENDED, TAKEN)]


def test_a_machine_whose_worker_is_killed_has_failed_and_says_why(provider):
    cloud = provider()
    id = cloud.order(1)
    until(lambda: cloud.phases() == {1: RUNNING})
    os.kill(cloud.processes(id)[0], signal.SIGKILL)
    until(lambda: cloud.phases() == {1: ENDED})
    (seen,) = cloud.pool.list()
    assert seen.cause == FAILED and "SIGKILL" in seen.about


def test_laws_hibernate_resume_and_end_machines_by_themselves(provider):
    cloud = provider(rented=(Rented(MANY, hibernations=5.0, resumes=5.0, terminations=0.5),), seed=7)
    cloud.order(1)
    seen = set()
    until(lambda: seen.update(cloud.phases().values()) or ENDED in seen)
    assert {RUNNING, HIBERNATED, ENDED} <= seen


def test_the_same_seed_draws_the_same_fate(provider):
    law = Rented(MANY, hibernations=1e-3, terminations=1e-3)
    cloud = provider(rented=(law,), seed=7)
    ids = [cloud.order(number) for number in (1, 2)]
    until(lambda: set(cloud.phases().values()) == {RUNNING})

    def fates():
        machines = [cloud.pool._machines[id] for id in ids]
        return [(machine.due, round(machine.due_t - machine.since_t, 6)) for machine in machines]

    first = fates()
    for id in ids:
        cloud.pool._draw(cloud.pool._machines[id])
    assert fates() != first and first[0] != first[1]
    for id in ids:
        cloud.pool._machines[id].draws = 0
        cloud.pool._draw(cloud.pool._machines[id])
    assert fates() == first


def test_a_trace_takes_the_youngest_refuses_more_and_gives_back(provider):
    here, gap_s = [2, 1, 0, 1, 2], 2.0
    trace = Trace(gap_s, here + [2] * 1000)
    cloud = provider(rented=(Rented(MANY, trace=trace),))
    cloud.order(1), cloud.order(2)
    assert isinstance(cloud.pool.start(Order("x", MANY.cores, 3, MANY)), PoolError)
    seen: list[dict[int, str]] = []

    def look() -> bool:
        phases = cloud.phases()
        if not seen or seen[-1] != phases:
            seen.append(phases)
        return {1: HIBERNATED, 2: HIBERNATED} in seen and phases == {1: RUNNING, 2: RUNNING}

    until(look)
    awake = [sorted(number for number, phase in phases.items() if phase == RUNNING) for phases in seen]
    assert [2] not in awake, "the younger one is hibernated first and resumed last"
    assert [] in awake


def test_a_notice_comes_before_the_end_and_the_worker_leaves_by_itself(provider):
    cloud = provider(notice_s=1.5, rented=(Rented(replace(MANY, when_taken="terminate")),))
    id = cloud.order(1)
    until(lambda: cloud.phases() == {1: RUNNING} and cloud.works(id))
    (worker, *_) = cloud.processes(id)
    cloud.pool.poke(id, "notice")
    (told,) = cloud.pool.list()
    assert told.phase == RUNNING and told.taken_at_t is not None
    until(lambda: not alive(worker))
    until(lambda: cloud.phases() == {1: ENDED})
    assert cloud.pool.list()[0].cause == TAKEN, (
        "its worker left in good order; the machine was there until it was taken"
    )


def test_machines_are_kept_over_a_restart_as_they_are_written_down(provider):
    cloud = provider()
    ids = [cloud.order(number) for number in (1, 2, 3)]
    until(lambda: set(cloud.phases().values()) == {RUNNING} and all(cloud.works(id) for id in ids))
    cloud.pool.poke(ids[1], "hibernate")
    before = [cloud.processes(id) for id in ids]
    # What a crash leaves: a freeze that was written down and not done, and one that was done and not written down.
    cloud.pool.close()
    os.kill(before[1][0], signal.SIGCONT)
    os.kill(before[0][0], signal.SIGSTOP)
    os.kill(before[2][0], signal.SIGKILL)
    until_gone(before[2])
    cloud.open()
    assert cloud.phases() == {1: RUNNING, 2: HIBERNATED, 3: ENDED}
    assert [cloud.processes(id)[0] for id in ids[:2]] == [before[0][0], before[1][0]], "the same processes"
    until(lambda: is_stopped(before[1][0]) and not is_stopped(before[0][0]))


def test_when_the_server_has_moved_workers_are_started_again_for_it(provider):
    cloud = provider()
    id = cloud.order(1)
    until(lambda: cloud.phases() == {1: RUNNING} and cloud.works(id))
    before = cloud.processes(id)
    cloud.open("http://127.0.0.1:10")
    assert cloud.phases() == {1: RUNNING}
    until_gone(before)
    assert b"http://127.0.0.1:10" in Path(f"/proc/{cloud.processes(id)[0]}/cmdline").read_bytes()


def test_what_cannot_be_done_to_a_machine_is_said(provider):
    cloud = provider()
    id = cloud.order(1)
    until(lambda: cloud.phases() == {1: RUNNING})
    for machine, what, words in (
        (id, "resume", "must be hibernated"),
        ("x", "resume", "no machine"),
        (id, "fly", "fly"),
    ):
        with pytest.raises(BadInput) as caught:
            cloud.pool.poke(machine, what)
        assert words in str(caught.value)
