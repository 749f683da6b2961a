"""The launcher, compiled and run as a client runs it: in a slot, with links to files and shared memory."""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.pools import boinc
from windfall.boinc.bundle import LaunchTask, TaskEnd, job_file, read_archive
from windfall.boinc.keys import Keys

ENV = {"PATH": os.environ["PATH"], "GREETING": "hi there"}
CHANNEL, STATUS = 1024, 5 * 1024


@pytest.fixture(scope="module")
def launcher(tmp_path_factory) -> Path:
    boinc.require()
    folder = tmp_path_factory.mktemp("built")
    path = folder / "launcher"
    path.write_bytes(Keys(folder / "keys").build())
    path.chmod(0o755)
    return path


class Slot:
    """A folder as the client makes it."""

    def __init__(self, folder: Path, launcher: Path, tasks: list[LaunchTask]) -> None:
        self.folder, self.launcher, self.tasks = folder / "slot", launcher, tasks
        self.folder.mkdir()
        (folder / "project").mkdir()
        (folder / "project" / "job1").write_bytes(job_file(tasks))
        (self.folder / "job").write_text("<soft_link>../project/job1</soft_link>\n")
        (self.folder / "boinc_mmap_file").write_bytes(b"\0" * 8 * CHANNEL)
        with open(self.folder / "boinc_mmap_file", "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 8 * CHANNEL)

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([str(self.launcher)], cwd=self.folder, stderr=subprocess.DEVNULL)

    def say(self, text: str) -> None:
        while self.shared[0]:
            time.sleep(0.01)
        self.shared[1 : 2 + len(text)] = text.encode() + b"\0"
        self.shared[0] = 1

    def ends(self) -> list[TaskEnd]:
        assert (self.folder / "boinc_finish_called").read_text() == "0\n"
        with open(self.folder / "out", "rb") as file:
            first = self.tasks[0].task
            size = (self.folder / "out").stat().st_size
            return read_archive(file, size, range(first, first + len(self.tasks)), 1 << 20)

    def run(self) -> list[TaskEnd]:
        assert self.start().wait(60) == 0
        return self.ends()


def task(number: int, script: str, **more) -> LaunchTask:
    return LaunchTask(number, ["sh", "-c", script], ENV, more.pop("inputs", []), more.pop("outputs", []), **more)


def until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_tasks_run_with_their_inputs_and_leave_their_outputs(tmp_path, launcher):
    script = "cat; echo $GREETING; ./tool; cat d/x; mkdir -p o/p; echo 1 > o/p/one; echo 2 > two.txt; echo bad >&2"
    inputs = [("tool", "in_a", 0o755), ("d/x", "in_b", 0o644)]
    slot = Slot(
        tmp_path, launcher, [task(7, script, stdin=b"in\n", inputs=inputs, outputs=["o", "*.txt"]), task(8, "exit 3")]
    )
    (tmp_path / "project" / "a").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "project" / "b").write_text("data\n")
    (slot.folder / "in_a").write_text("<soft_link>../project/a</soft_link>\n")
    (slot.folder / "in_b").write_text("<soft_link>../project/b</soft_link>\n")
    first, second = slot.run()
    assert (first.cause, first.stdout, first.stderr) == ("done", b"in\nhi there\ntool\ndata\n", b"bad\n")
    data = (slot.folder / "out").read_bytes()
    assert {name: data[at : at + size] for name, _, at, size in first.files} == {"o/p/one": b"1\n", "two.txt": b"2\n"}
    assert (second.cause, second.exit) == ("exit", 3)


def test_limits_and_other_ends_are_told_apart(tmp_path, launcher):
    hungry = "x=0; python3 -c 'import time; b = bytearray(200 << 20); time.sleep(60)'"
    tasks = [
        task(0, "sleep 60", wall_s=0.3),
        task(1, hungry, memory_bytes=50 << 20),
        task(2, "kill -SEGV $$"),
        LaunchTask(3, ["./nothing-here"], ENV, [], []),
        task(4, "true", outputs=["missing"]),
        task(5, "true", inputs=[("../escape", "in_none", 0o644)]),
        task(6, "ln -s /etc/passwd p; echo x > q", outputs=["*"]),
        task(7, "seq 1 100000", output_cap_bytes=1000),
    ]
    ends = Slot(tmp_path, launcher, tasks).run()
    assert [end.cause for end in ends] == [
        "time", "oom", "signal", "no-command", "outputs", "inputs", "done", "done",
    ]  # fmt: skip
    assert [name for name, *_ in ends[6].files] == ["q"]
    assert len(ends[7].stdout) == 1000 and ends[7].stdout.startswith(b"1\n2\n") and ends[7].stdout.endswith(b"100000\n")
    assert ends[7].dropped[0] == 588_895 - 1000


def test_it_suspends_resumes_and_says_how_far_it_is(tmp_path, launcher):
    slot = Slot(tmp_path, launcher, [task(0, "while [ ! -e ../go ]; do sleep 0.05; done")])
    process = slot.start()
    until(lambda: slot.shared[STATUS] == 1)
    assert b"<fraction_done>" in slot.shared[STATUS : STATUS + CHANNEL]
    slot.say("<suspend/>")
    until(lambda: "T" in states(process.pid))
    (slot.folder / "go").touch()
    slot.say("<resume/>")
    assert process.wait(30) == 0
    assert slot.ends()[0].cause == "done"


@pytest.mark.parametrize(("order", "code"), [("<quit/>", 0), ("<abort/>", 194)])
def test_quit_and_abort_leave_no_process_and_no_finish_file(tmp_path, launcher, order, code):
    slot = Slot(tmp_path, launcher, [task(0, "sleep 300 & sleep 300")])
    process = slot.start()
    until(lambda: len(states(process.pid)) >= 1)
    group = children(process.pid)[0]
    slot.say(order)
    assert process.wait(30) == code
    until(lambda: not in_group(group))
    assert not (slot.folder / "boinc_finish_called").exists()


def test_a_bundle_goes_on_behind_the_tasks_that_have_ended(tmp_path, launcher):
    tasks = [task(0, "echo x >> ../../runs; echo 0"), task(1, "while [ ! -e ../go ]; do sleep 0.05; done; echo 1")]
    slot = Slot(tmp_path, launcher, tasks)
    process = slot.start()
    until(lambda: (slot.folder / "progress").exists())
    process.kill()
    process.wait()
    (slot.folder / "go").touch()
    assert [end.stdout for end in slot.run()] == [b"0\n", b"1\n"]
    assert (tmp_path / "runs").read_text() == "x\n"


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def states(pid: int) -> list[str]:
    return [stat(child)[0] for child in children(pid)]


def stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["gone", "0", "0"]


def in_group(group: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if (about := stat(pid))[2] == str(group) and about[0] not in ("Z", "gone")]
