"""A worker whose machine hibernates: while it is frozen nothing of it runs, and that time counts against no task.

Real processes, frozen as the emulated cloud does it. The tasks need about a second; their limit is several times that,
and they are frozen for longer than their limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.server.fake_server import FakeServer
from tests.support.server.worker_process import until_gone, until_written, worker
from windfall.pools.starting.process_tree import Tree

LIMIT_S = 6.0
FROZEN_S = LIMIT_S + 1.5


def counting(file: Path) -> list[str]:
    """A task that counts to 20 in about a second, in a process group of its own."""
    inner = f"i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i > {file}; sleep 0.05; done"
    return ["setsid", "-w", "sh", "-c", inner]


def test_frozen_time_counts_against_no_task(tmp_path):
    def a_call(file: str) -> None:  # in here, so that it travels by value
        import pathlib
        import time

        for i in range(20):
            pathlib.Path(file).write_text(str(i))
            time.sleep(0.05)

    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "2") as started:
        command = server.add(server.job(wall_s=LIMIT_S), counting(tmp_path / "count"))
        call = server.call(server.job(kind="call", wall_s=LIMIT_S), a_call, str(tmp_path / "calls"))
        until_written(tmp_path / "count")
        until_written(tmp_path / "calls")
        tree = Tree(started.pid)
        tree.freeze()
        frozen_at = (tmp_path / "count").read_text(), (tmp_path / "calls").read_text()
        time.sleep(FROZEN_S)
        assert ((tmp_path / "count").read_text(), (tmp_path / "calls").read_text()) == frozen_at
        tree.thaw()
        results = [server.result(command), server.result(call)]
        assert [result["cause"] for result in results] == ["done", "done"]
        assert all(result["run_s"] < LIMIT_S for result in results)


def test_killing_a_tree_takes_what_has_left_its_group_and_session(tmp_path):
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 1000' & wait"
    root = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    stray = int(until_written(tmp_path / "pid"))
    tree = Tree(root.pid)
    tree.freeze()
    tree.kill()
    until_gone([root.pid, stray])
    root.wait()


def test_a_stop_that_is_under_way_is_called_back_though_the_process_seems_to_run(monkeypatch):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        tree, told = Tree(process.pid), []
        monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))
        tree.thaw()
        monkeypatch.undo()
        process.kill()
    assert told == [(process.pid, signal.SIGCONT)]
