"""Tasks that checkpoint, on real workers that go away: the next attempt goes on where the last one was safe."""

from __future__ import annotations

import sqlite3
import sys
import time

import pytest

from tests.support.server.cluster import cluster

COUNT = """\
import os, pathlib, signal, sys, time


def goodbye(*_):
    (home / "said-goodbye-at").write_text(saved.read_text())
    sys.exit(1)


signal.signal(signal.SIGTERM, goodbye)
home, saved = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["WINDFALL_CHECKPOINT"])
n = int(saved.read_text()) if saved.exists() else 0
(home / f"began-{os.environ['WINDFALL_ATTEMPT']}").write_text(str(n))
while n < 40:
    time.sleep(0.1)
    n += 1
    saved.with_suffix(".new").write_text(str(n))
    saved.with_suffix(".new").rename(saved)
    if n == 20 and (home / "fail").exists():
        (home / "fail").unlink()
        sys.exit(3)
print("counted to", n)
"""


@pytest.fixture
def made(tmp_path):
    (tmp_path / "count.py").write_text(COUNT)
    (tmp_path / "c").mkdir()
    with cluster(tmp_path / "c") as found:
        found.start_server()
        yield found


def submit(made, tmp_path):
    command = [sys.executable, str(tmp_path / "count.py"), str(tmp_path)]
    return made.client().submit(command, checkpoint="0.5s")


def until_one_is_safe(made) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        log = sqlite3.connect(f"file:{made.state / 'windfall.db'}?mode=ro", uri=True)
        (count,) = log.execute("select count(*) from records where kind = 'CheckpointSaved'").fetchone()
        log.close()
        if count:
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint came")


def began(tmp_path, attempt: int) -> int:
    return int((tmp_path / f"began-{attempt}").read_text())


def test_a_task_whose_worker_is_killed_goes_on_from_its_last_checkpoint(made, tmp_path):
    job = submit(made, tmp_path)
    made.start_worker("one", slots=1)
    until_one_is_safe(made)
    made.kill_worker("one")
    made.start_worker("two", slots=1)
    assert job.wait(timeout=90)["tasks"]["done"] == 1
    assert began(tmp_path, 2) > 0
    assert job.output(0)["stdout"] == b"counted to 40\n"


def test_what_is_saved_in_the_grace_time_is_not_lost(made, tmp_path):
    job = submit(made, tmp_path)
    made.start_worker("one", slots=1)
    until_one_is_safe(made)
    made.workers["one"].terminate()
    made.workers["one"].wait(60)
    made.start_worker("two", slots=1)
    assert job.wait(timeout=90)["tasks"]["done"] == 1
    assert began(tmp_path, 2) == int((tmp_path / "said-goodbye-at").read_text())


def test_a_task_that_failed_begins_at_its_beginning(made, tmp_path):
    (tmp_path / "fail").touch()
    job = submit(made, tmp_path)
    made.start_worker("one", slots=1)
    assert job.wait(timeout=90)["tasks"]["done"] == 1
    assert began(tmp_path, 2) == 0


def test_a_task_is_told_how_often_to_save(made):
    client = made.client()
    say = ["sh", "-c", "echo $WINDFALL_CHECKPOINT_EVERY_S"]
    jobs = [client.submit(say, checkpoint="90s"), client.submit(say, checkpoint="auto", estimate="10h")]
    made.start_worker("one", slots=1)
    said = [float(job.wait(timeout=90) and job.output(0)["stdout"]) for job in jobs]
    # A host that nobody interrupts is lost once a day: sqrt(2 * 13 s * 86,400 s), and a little more.
    assert said == [90.0, 1500.0]
