"""The pool of batch jobs against commands that are a few lines of shell: what is unsure, forgotten or slow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.errors import BadInput
from windfall.pools.batch import pool as batch
from windfall.pools.batch.pool import BatchPool
from windfall.pools.batch.settings import SlurmSettings
from windfall.pools.batch.systems import SLURM
from windfall.pools.config import read_pools
from windfall.pools.contract import ENDED, PENDING, RUNNING, TRANSIENT, Order, PoolError
from windfall.pools.kinds import Place, PoolConfig

TAG = "windfall+me+p+"


class Commands:
    """sbatch, squeue and scancel; `queue` is what squeue prints, `told` what scancel was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.says("sbatch", "echo Submitted batch job 7")
        self.says("squeue", f"cat {folder}/queue")
        self.says("scancel", f'echo "$@" >> {folder}/told')
        self.queue()

    def says(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def queue(self, *lines: str) -> None:
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in lines))

    @property
    def told(self) -> str:
        path = self.folder / "told"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def commands(tmp_path, monkeypatch) -> Commands:
    made = Commands(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return made


class Clock:
    t = 1000.0

    def __call__(self) -> float:
        return self.t


def opened(tmp_path: Path, clock: Clock | None = None, **settings) -> BatchPool:
    (tmp_path / "token").write_text("wf_x")
    place = Place("http://127.0.0.1:1", tmp_path / "token", tmp_path / "pool", owner="me")
    config = PoolConfig("p", "slurm", settings=SlurmSettings(**settings))
    return BatchPool(SLURM, config, place, clock or Clock())


def test_a_submission_without_an_answer_may_have_been_taken_and_is_found_by_its_name(tmp_path, commands):
    clock = Clock()
    pool = opened(tmp_path, clock, time_limit="0.2s")
    commands.says("sbatch", "sleep 5")
    answer = pool.start(Order("p-1-1"))
    assert isinstance(answer, PoolError) and answer.kind == TRANSIENT and "took longer" in answer.error
    pool = opened(tmp_path, clock)
    assert [(row.host, row.phase) for row in pool.list()] == [("p-1-1", PENDING)], "nobody knows yet"
    commands.queue(f"7|R|900|None|{TAG}p-1-1")
    assert pool.start(Order("p-1-1")) == "7", "the queue is asked before anything is submitted again"
    assert [(row.id, row.host, row.phase) for row in pool.list()] == [("7", "p-1-1", RUNNING)]


def test_workers_that_are_asked_for_together_are_one_array(tmp_path, commands):
    commands.says("sbatch", f"echo >> {tmp_path}/submitted; cp $1 {tmp_path}/script; echo Submitted batch job 7")
    pool = opened(tmp_path)
    three = [Order(f"p-3-{number}") for number in (1, 2, 3)]
    assert pool.start_many(three) == ["7_1", "7_2", "7_3"] == pool.start_many(three)
    assert (tmp_path / "submitted").read_text() == "\n", "one call for all of them, and none for a repeated one"
    script = (tmp_path / "script").read_text()
    assert "--array=1-3" in script and f'--job-name="{TAG}p-3-"' in script
    assert f'--output="{tmp_path}/pool/p-3-%a/batch.log"' in script
    assert {path.parent.name for path in tmp_path.glob("pool/*/token")} == {order.host for order in three}
    commands.queue(*(f"7_{number}|R|900|None|{TAG}p-3-" for number in (1, 3)))
    assert {row.host: row.phase for row in pool.list()} == {"p-3-1": RUNNING, "p-3-2": ENDED, "p-3-3": RUNNING}
    pool.stop("7_3")
    assert commands.told.splitlines()[0] == f"--quiet --name={TAG}p-3- --batch --signal=TERM 7_3"


def test_an_array_without_an_answer_that_was_taken_is_found_and_not_submitted_again(tmp_path, commands):
    rows = [f"7_{number}|R|900|None|{TAG}p-3-" for number in (1, 2)]
    write = "; ".join(f"echo '{row}' >> {tmp_path}/queue" for row in rows)
    commands.says("sbatch", f"echo >> {tmp_path}/submitted; {write}; sleep 5")
    two = [Order("p-3-1"), Order("p-3-2")]
    answers = opened(tmp_path, time_limit="0.3s").start_many(two)
    assert {answer.kind for answer in answers} == {TRANSIENT}
    pool = opened(tmp_path)
    assert pool.start_many(two) == ["7_1", "7_2"] and (tmp_path / "submitted").read_text() == "\n"


def test_a_submission_whose_answer_slurm_lost_may_have_been_taken(tmp_path, commands):
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    commands.says("sbatch", f"echo '{said}' >&2; exit 1")
    pool = opened(tmp_path)
    assert pool.start(Order("p-1-1")) == PoolError(said, TRANSIENT)
    commands.queue(f"7|PD|N/A|Priority|{TAG}p-1-1")
    assert pool.start(Order("p-1-1")) == "7"


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ("Batch job submission failed: Invalid job array specification", False),
        ("Job violates accounting/QOS policy (job submit limit)", True),
    ],
)
def test_an_array_that_is_refused_as_such_is_submitted_job_by_job(tmp_path, commands, said, again):
    commands.says(
        "sbatch",
        f"grep -q array= $1 && {{ echo array >> {tmp_path}/calls; echo '{said}' >&2; exit 1; }}\n"
        f"echo one >> {tmp_path}/calls; echo Submitted batch job $(wc -l < {tmp_path}/calls)",
    )
    pool = opened(tmp_path)
    assert pool.start_many([Order("p-3-1"), Order("p-3-2")]) == ["2", "3"]
    pool.start_many([Order("p-4-1"), Order("p-4-2")])
    calls = (tmp_path / "calls").read_text().split()
    assert calls == ["array", "one", "one", *(["array"] if again else []), "one", "one"]


def test_what_is_not_alike_but_for_its_number_is_no_array(tmp_path, commands):
    commands.says("sbatch", f"grep -c array= $1 >> {tmp_path}/calls; echo Submitted batch job 7")
    pool = opened(tmp_path)
    pool.start_many([Order("p-1-1", 2), Order("p-1-2", 1)])
    pool.start_many([Order("p-2-1"), Order("p-2-3")])
    pool.start_many([Order("p-3-1"), Order("p-4-2")])
    pool.start_many([Order("p-5-1000"), Order("p-5-1001")])
    opened(tmp_path, arrays=False).start_many([Order("p-6-1"), Order("p-6-2")])
    assert (tmp_path / "calls").read_text().split() == ["0"] * 10


def test_a_submission_without_an_answer_that_never_shows_up_has_ended(tmp_path, commands):
    clock = Clock()
    pool = opened(tmp_path, clock, time_limit="1.5s")
    commands.says("sbatch", "sleep 5")
    pool.start(Order("p-1-1"))
    clock.t += batch.UNSURE_S + 1
    assert [row.phase for row in pool.list()] == [ENDED]


def test_a_refused_submission_leaves_nothing_behind(tmp_path, commands):
    pool = opened(tmp_path)
    commands.says("sbatch", "echo sbatch: error: invalid partition specified: x >&2; exit 1")
    answer = pool.start(Order("p-1-1"))
    assert answer == PoolError("sbatch: error: invalid partition specified: x", "invalid")
    assert pool.list() == [] and not (tmp_path / "pool" / "p-1-1").exists()
    assert list((tmp_path / "pool" / "submit").rglob("*.job")) == []


def test_an_id_that_is_given_again_belongs_to_the_job_of_the_right_name(tmp_path, commands):
    pool = opened(tmp_path)
    assert pool.start(Order("p-1-1")) == "7"
    commands.queue(f"7|R|900|None|{TAG}p-2-1")
    rows = {row.host: row.phase for row in pool.list()}
    assert rows == {"p-1-1": ENDED, "p-2-1": RUNNING}
    pool.stop("7")
    assert f"--name={TAG}p-2-1" in commands.told and "p-1-1" not in commands.told


def test_jobs_of_others_are_never_told_anything(tmp_path, commands):
    commands.queue("1|R|900|None|my own job", "2|R|900|None|windfall+other+p+p-1-1", "3|R|900|None|windfall+me+q+q-1-1")
    pool = opened(tmp_path)
    assert [(row.id, row.host) for row in pool.list()] == [("2", None)], "only Windfall's are shown at all"
    for id in "123":
        assert pool.stop(id) is None
    assert commands.told == ""


def test_a_pending_job_is_cancelled_and_a_running_one_hands_back_first(tmp_path, commands):
    clock = Clock()
    pool = opened(tmp_path, clock)
    pool.start(Order("p-1-1"))
    commands.queue(f"7|PD|N/A|Priority|{TAG}p-1-1")
    assert [(row.phase, row.about) for row in pool.list()] == [(PENDING, "Priority")]
    pool.stop("7", gently=True)
    assert commands.told == f"--quiet --name={TAG}p-1-1 7\n"
    (tmp_path / "told").unlink()
    other = opened(tmp_path, clock)
    commands.queue(f"7|R|900|None|{TAG}p-1-1")
    other.list()
    other.stop("7")
    assert commands.told.count("--signal=TERM") == 1, "it had been told before"
    clock.t += batch.HAND_BACK_S + 1
    other.stop("7")
    assert commands.told.splitlines()[-1] == f"--quiet --name={TAG}p-1-1 7"


def test_the_queue_is_asked_less_often_while_nothing_changes_and_soon_after_a_change(tmp_path, commands):
    pool = opened(tmp_path, interval="1s")
    pool.start(Order("p-1-1"))
    commands.queue(f"7|PD|N/A|Priority|{TAG}p-1-1")
    pool.list()
    first = pool.interval_s
    for _ in range(20):
        pool.list()
    assert first < pool.interval_s == batch.SLOWEST_S
    commands.queue(f"7|R|900|None|{TAG}p-1-1")
    pool.list()
    assert pool.interval_s < batch.SLOWEST_S


def test_a_list_that_fails_is_an_error_and_never_an_empty_list(tmp_path, commands):
    pool = opened(tmp_path)
    pool.start(Order("p-1-1"))
    commands.says("squeue", "echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1")
    found = pool.list()
    assert isinstance(found, PoolError) and "Unable to contact" in found.error


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('walltime = "10s"', "walltime = 10s"),
        ('notice = "50m"', "notice = 50m"),
        ('partition = "a\\"b"', "partition or queue"),
        ('native = ["qos=low"]', "'qos=low' is not an option"),
        ('memory = "lots"', "memory"),
        ("cores = 0", "cores = 0"),
        ('queue = "x"', "unknown field 'queue'"),
    ],
)
def test_a_field_that_cannot_be_right_is_named(tmp_path, line, words):
    (tmp_path / "pools.toml").write_text(f'[[pool]]\nname = "c"\nkind = "slurm"\n{line}\n')
    with pytest.raises(BadInput, match=words.replace("[", r"\[")):
        read_pools(tmp_path / "pools.toml")
