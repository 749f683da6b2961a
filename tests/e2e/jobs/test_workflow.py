"""Workflows typed as a person would, and built in Python: real server, real worker, real commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import zlib
from array import array
from pathlib import Path

import pytest

from tests.support.commands.typed import Shell
from tests.support.server.cluster import Cluster, cluster
from windfall import Client
from windfall.bags.chunks import encode_tasks
from windfall.bags.spec import TaskRow
from windfall.client import TaskFailed
from windfall.core.decisions import HostAnswered, ResultsJudged
from windfall.core.events import ResultsReported
from windfall.core.records import decode_record
from windfall.errors import BadInput
from windfall.store import open_store
from windfall.workflows import read

EXAMPLES = Path(__file__).parents[3] / "examples" / "workflows"

COUNT = """
name = "count"

[[task]]
name = "split"
command = ["sh", "-c", "for i in 1 2 3; do echo $i > part-$i; done; cat words >> part-1"]
inputs = ["words"]
outputs = ["part-1", "part-2", "part-3"]

[[task]]
name = "count-{i}"
map = { i = "1-3" }
command = ["sh", "-c", "test ! -e $GATE/broken-{i} || exit 3; wc -l < part-{i} > n-{i}"]
inputs = ["part-{i}"]
outputs = ["n-{i}"]
max_failures = 1

[[task]]
name = "sum"
command = "cat n-1 n-2 n-3"
inputs = ["n-1", "n-2", "n-3"]

[[task]]
name = "goodbye"
command = "echo bye"
after = "sum"
"""


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    made.write("wf.toml", COUNT)
    made.write("words", "a\nb\n")
    yield made
    made.close()


def run(shell, *more):
    return shell.windfall("run", "--workflow", "wf.toml", "--env", f"GATE={shell.directory}", *more)


def test_files_go_from_task_to_task_and_order_is_kept(shell):
    ended = run(shell)
    assert ended.code == 0, ended
    assert "6 tasks: 6 done" in ended.out
    assert shell.windfall("logs", "last", "sum").out.split() == ["3", "1", "1"]
    assert shell.windfall("logs", "last.goodbye").out == "bye\n"
    rows = {row["name"]: row for row in shell.windfall("results", "last", "--json").lines}
    assert rows["sum"]["start_s"] >= max(rows[f"count-{i}"]["end_s"] for i in (1, 2, 3))
    assert [file["name"] for file in rows["count-2"]["outputs"]] == ["n-2"]
    shell.windfall("results", "last", "--download", "out")
    assert (shell.directory / "out" / "count-2" / "n-2").read_text().strip() == "1"


def test_a_workflow_that_has_run_is_exported_and_read_back(shell):
    shell.windfall("run", "--range", "1-1", "--", "true", "{}")
    assert "is no workflow" in shell.windfall("workflow", "export", "last").err
    run(shell)
    ended = shell.windfall("workflow", "export", "last", "-o", "recorded.json")
    assert ended.code == 0, ended
    checked = shell.windfall("workflow", "check", "recorded.json", "--json").document
    assert (checked["tasks"], checked["without_command"]) == (6, [])
    assert checked["files_from_outside"] == ["words"]
    recorded = json.loads((shell.directory / "recorded.json").read_text())["workflow"]
    sizes = {file["id"]: file["sizeInBytes"] for file in recorded["specification"]["files"]}
    assert (sizes["words"], sizes["n-2"]) == (4, 2)
    ran = {task["id"]: task for task in recorded["execution"]["tasks"]}
    assert len(ran) == 6
    assert all(task["runtimeInSeconds"] >= 0 and task["memoryInBytes"] > 1 << 18 for task in ran.values())
    again = shell.windfall("run", "--workflow", "recorded.json", "--emulate", "--time-scale", "1000")
    assert again.code == 0, again
    assert "6 tasks: 6 done" in again.out


def test_a_failed_task_holds_up_what_waits_for_it_and_retry_takes_it_up_again(shell):
    shell.write("broken-2", "")
    ended = run(shell)
    assert ended.code == 1
    assert "3 done, 1 failed, 2 blocked " in ended.out and "task count-2" in ended.out
    assert "task count-2 wrote nothing" in shell.windfall("logs", "last", "count-2").err
    told = shell.windfall("explain", "last.goodbye").out
    assert "task goodbye of job 1 'count' is blocked" in told
    assert "it waits for 1 of 1 parent: sum; blocked by count-2, which failed" in told
    states = {row["name"]: row for row in shell.windfall("tasks", "last", "--json").lines}
    assert states["sum"]["blocked"] and states["sum"]["parents_left"] == 1
    assert "blocked" in shell.windfall("tasks", "last").out
    (shell.directory / "broken-2").unlink()
    assert shell.windfall("retry", "last", "--failed").code == 0
    again = shell.windfall("run", "--resume", "last", "--json")
    assert again.code == 0 and json.loads(again.out)["tasks"]["done"] == 6
    attempts = {row["name"]: row["attempts"] for row in shell.windfall("tasks", "last", "--json").lines}
    assert attempts == {"split": 1, "count-1": 1, "count-2": 2, "count-3": 1, "sum": 1, "goodbye": 1}


def test_a_task_that_does_not_make_its_file_has_failed_with_that_cause(shell):
    shell.write("wf.toml", COUNT.replace("> n-{i}", "> m-{i}"))
    ended = run(shell)
    assert ended.code == 1 and "3 failed: declared output missing   task count-1" in ended.out
    assert "missing declared output" in ended.out


def test_cancelling_a_task_cancels_what_waits_for_it(shell):
    assert shell.windfall("submit", "--workflow", "wf.toml", "--env", f"GATE={shell.directory}").code == 0
    assert "3 tasks cancelled" in shell.windfall("cancel", "last", "count-3", "--reason", "no need").out
    ended = shell.windfall("run", "--resume", "last")
    assert ended.code == 1 and "3 done, 3 cancelled" in ended.out
    assert "is cancelled with count-3" in shell.windfall("explain", "last.sum").out


def test_a_program_beside_the_file_goes_along(shell):
    shell.write("greet.sh", "#!/bin/sh\ncat name\n").chmod(0o755)
    shell.write("name", "windfall\n")
    shell.write("wf.toml", '[[task]]\nname = "greet"\ncommand = "./greet.sh"\ninputs = ["name"]\n')
    assert shell.windfall("run", "--workflow", "wf.toml").code == 0
    assert shell.windfall("logs", "last", "greet").out == "windfall\n"


def test_directories_and_patterns_stand_for_the_files_that_there_are(shell):
    (shell.directory / "data").mkdir()
    shell.write("data/a", "1\n")
    shell.write("data/b", "2\n")
    shell.write(
        "wf.toml",
        """
        [[task]]
        name = "split"
        command = "cat data/* | split -l 1 - part- && mkdir more && cp data/b more/b"
        inputs = ["data"]
        outputs = ["part-*", "more"]
        [[task]]
        name = "join"
        command = "cat part-* more/*"
        inputs = ["part-*", "more"]
        """,
    )
    assert shell.windfall("run", "--workflow", "wf.toml").code == 0
    assert shell.windfall("logs", "last", "join").out == "1\n2\n2\n"


def test_a_recorded_workflow_can_be_tried_without_its_programs(shell):
    ended = shell.windfall(
        "run", "--workflow", str(EXAMPLES / "diamond.json"), "--emulate", "--time-scale", "10000", "--deadline", "1h"
    )
    assert ended.code == 0, ended
    assert "job 1 'diamond'  4 tasks: 4 done" in ended.out
    shown = shell.windfall("workflow", "show", "last", "--plot", "dag.svg")
    assert shown.code == 0 and "longest chain: 3 tasks" in shown.out and "split_ID01 -> analyse_ID0" in shown.out
    steps = [line.split()[0] for line in shown.out.splitlines()[2:5]]
    assert steps == ["split", "analyse", "merge"], "in the order in which they run"
    assert "<svg" in (shell.directory / "dag.svg").read_text()
    assert shell.windfall("workflow", "show", "last", "--plot", "dag.xyz").code == 2


def test_a_recorded_workflow_with_commands_runs_them_on_its_files(shell):
    def command(text):
        return {"program": "sh", "arguments": ["-c", text]}

    specification = {
        "tasks": [
            {"id": "up_1", "parents": [], "children": ["down_1"], "inputFiles": ["in"], "outputFiles": ["big"]},
            {"id": "down_1", "parents": ["up_1"], "children": [], "inputFiles": ["big"], "outputFiles": []},
            {"id": "note_1", "parents": ["down_1"], "children": []},
        ],
        "files": [{"id": "in", "sizeInBytes": 4}, {"id": "big", "sizeInBytes": 4}],
    }
    texts = {"up_1": "tr a-z A-Z < in > big", "down_1": "cat big", "note_1": "echo noted"}
    runs = [
        {"id": name, "runtimeInSeconds": 1, "coreCount": 1, "memoryInBytes": 1, "command": command(text)}
        for name, text in texts.items()
    ]
    workflow = {"specification": specification, "execution": {"tasks": runs, "makespanInSeconds": 3}}
    shell.write("wf.json", json.dumps({"name": "shout", "schemaVersion": "1.5", "workflow": workflow}))
    shell.write("in", "abc\n")
    ended = shell.windfall("run", "--workflow", "wf.json")
    assert ended.code == 0, ended
    assert shell.windfall("logs", "last", "down_1").out == "ABC\n"
    specification["tasks"][0]["parents"] = ["note_1"]
    shell.write("wf.json", json.dumps({"name": "shout", "schemaVersion": "1.5", "workflow": workflow}))
    wrong = shell.windfall("run", "--workflow", "wf.json")
    assert wrong.code == 2 and "workflow.specification.tasks[" in wrong.err and "waits for itself" in wrong.err


def test_jobs_of_a_class_share_their_tasks_and_have_files_and_deadlines_of_their_own(shell):
    assert run(shell, "--class", "nightly", "--deadline", "1h").code == 0
    shell.write("more", "a\nb\nc\nd\n")
    ended = shell.windfall("run", "--class", "nightly", "--input", "words=more", "--deadline", "3h", "--name", "second")
    assert ended.code == 0 and "job 2 'second'  6 tasks: 6 done" in ended.out
    assert shell.windfall("logs", "second", "sum").out.split() == ["5", "1", "1"]
    third = shell.windfall("submit", "--class", "nightly", "--json")
    assert json.loads(third.out)["tasks"] == 6
    rows = json.loads(shell.windfall("workflow", "classes", "--json").out)["classes"]
    assert rows == [{"class": "nightly", "job": 1, "tasks": 6, "jobs": 3, "running": 1, "failed": 0}]
    wrong = shell.windfall("submit", "--class", "weekly")
    assert wrong.code == 2 and "there is no class 'weekly'" in wrong.err and "nightly" in wrong.err


def test_nothing_is_started_of_a_workflow_that_is_wrong(shell):
    shell.write("wf.toml", COUNT.replace('after = "sum"', 'after = "sun"'))
    ended = run(shell)
    assert ended.code == 2 and ended.out == ""
    assert ended.err.splitlines() == [
        "windfall: wf.toml: line 23, task[3] 'goodbye' waits for 'sun', and there is no such task",
        "  did you mean 'sum'?",
    ]
    assert not (shell.directory / ".windfall").exists()


# -- through a crash -------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path):
    with cluster(tmp_path) as running:
        running.start_server()
        yield running


def grid(client: Client, width: int, depth: int):
    """Columns of tasks, each row waiting for two of the row above; every task writes what it got, and one line more."""
    wf = client.workflow(name="grid", max_losses=1000)
    before: list = []
    for row in range(depth):
        steps = []
        for column in range(width):
            mine = [before[column], before[(column + 1) % width]] if before else []
            files = [name for step in mine for name in step.outputs]
            script = (
                f"sleep 0.02; cat {' '.join(files)} /dev/null | sort -u > out-{row}-{column}; echo {row}-{column} >> $1"
            )
            steps.append(
                wf.task(["sh", "-c", script, "sh", f"out-{row}-{column}"], name=f"t-{row}-{column}", inputs=mine,
                        outputs=[f"out-{row}-{column}"])
            )  # fmt: skip
        before = steps
    wf.task(["sh", "-c", "cat out-*"], name="all", inputs=before)
    return wf.submit()


@pytest.mark.slow
def test_killed_servers_and_workers_lose_nothing_and_start_nothing_too_early(made: Cluster):
    made.start_worker("w1")
    made.start_worker("w2")
    job = grid(made.client(), width=6, depth=6)
    for share in (5, 14, 25):
        end = time.monotonic() + 60
        while job.status()["tasks"]["done"] < share:
            assert time.monotonic() < end, job.status()
            time.sleep(0.02)
        made.kill_server()
        if share == 14:
            made.kill_worker("w1")
        made.start_server()
    made.start_worker("w3")
    status = job.wait(timeout=120)
    assert status["state"] == "done" and status["tasks"]["done"] == 37
    (last,) = job.results(["all"])
    # Row 5 takes from all of row 4 between its columns, and so on up: every task above stands in the last one's input.
    assert {f"{row}-{column}" for row in range(6) for column in range(6)} <= set(last.result().split())
    parents = {task["task"]: task["parents"] for task in job.graph()["tasks"]}
    made.stop_server()
    assert set(made.accepted().values()) == {1}
    assert too_early(made, parents) == []


def too_early(made: Cluster, parents: dict[int, list[int]]) -> list[int]:
    """Tasks that were handed out before the results of their parents had been accepted, by the log alone."""
    store = open_store(made.state)
    done: set[int] = set()
    early = []
    try:
        after = 0
        while rows := store.records(after, 1000):
            for record in (decode_record(row.data) for row in rows):
                event, decided = record.event, record.decided
                if isinstance(event, ResultsReported) and isinstance(decided, ResultsJudged):
                    done |= {r.task for r, verdict in zip(event.results, decided.verdicts, strict=True) if verdict == 0}
                if isinstance(decided, HostAnswered):
                    sent = [t for piece in decided.assigned for t in range(piece.first, piece.first + piece.count)]
                    early += [task for task in sent if not set(parents[task]) <= done]
            after = rows[-1].seq
    finally:
        store.close()
    return early


# -- in Python -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with Client(state=tmp_path_factory.mktemp("state"), slots=2) as made:
        yield made


def test_the_workflow_that_users_expect_to_write(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"prep": "date > prepared", "step": "test -e prepared && echo step $1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    wf = client.workflow(deadline="4h")
    a = wf.task("./prep")
    b = wf.map("./step {i}", range(10), after=a)
    job = wf.submit()
    assert job.wait(timeout=60)["state"] == "done"
    assert len(wf) == 11 and [step.name for step in b][:2] == ["step-0", "step-1"]
    ended = {task.name: task for task in job.results()}
    assert ended["step-4"].result() == "step 4\n"
    assert job.status()["deadline_s"] is not None and job.status()["workflow"]["edges"] == 10


def test_steps_hand_their_files_on(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").write_text("x\n")
    wf = client.workflow(name="files")
    items = [{"x": "u", "y": 1}, {"x": "v", "y": 2}]
    copies = wf.map(["sh", "-c", "cat raw > $0; echo $1 >> $0", "{x}.out", "{y}"], items,
                    name="copy-{x}", inputs=["raw"], outputs="{x}.out", cpus=1)  # fmt: skip
    wf.task("cat u.out v.out", name="merge", inputs=copies)
    job = wf.submit()
    assert job.wait(timeout=60)["state"] == "done"
    assert next(job.results(["merge"])).result() == "x\n1\nx\n2\n"


def test_a_pattern_gathers_the_outputs_of_steps(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wf = client.workflow(name="gather")
    wf.map(["sh", "-c", "echo {} > part-{}.txt"], range(3), outputs="part-{}.txt")
    wf.task("cat part-*.txt", name="all", inputs="part-*.txt")
    assert repr(wf) == "<Workflow 'gather': 4 tasks, not submitted>"
    job = wf.submit()
    assert job.wait(timeout=60)["state"] == "done"
    assert next(job.results(["all"])).result() == "0\n1\n2\n"


def test_a_failed_step_raises_by_its_name_and_can_be_retried(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wf = client.workflow(name="again", max_failures=1)
    first = wf.task(["sh", "-c", f"test -e {tmp_path}/there"], name="first")
    wf.task("true", name="second", after=first)
    job = wf.submit()
    assert job.wait(timeout=60)["state"] == "failed"
    (task,) = job.results(["first"])
    with pytest.raises(TaskFailed, match="task first: exit code 1"):
        task.result()
    assert job.explain("second")["waiting"]["blocked_by"] == [{"task": 0, "name": "first"}]
    (tmp_path / "there").touch()
    assert job.retry() == 1 and job.wait(timeout=60)["state"] == "done"


def test_a_workflow_that_cannot_be_is_refused_before_it_is_sent(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wf = client.workflow()
    step = wf.task("true", name="x", after="y")
    wf.task("true", name="y", after=step)
    with pytest.raises(BadInput, match="task 'y' waits for itself: y -> x -> y"):
        wf.submit()
    wf = client.workflow()
    wf.task("cat ghost", inputs="ghost")
    with pytest.raises(BadInput, match="'ghost', which no task makes"):
        wf.submit()
    with pytest.raises(BadInput, match="not a function"):
        wf.task(print)
    with pytest.raises(BadInput, match="unknown setting 'dedline'"):
        client.workflow(dedline="4h")
    with pytest.raises(BadInput, match="unknown setting 'cpu'"):
        wf.task("true", cpu=2)
    with pytest.raises(BadInput, match=r"map uses \{a\} and \{b\}"):
        wf.map("run {a} {b}", range(3))


def test_the_same_program_twice_gets_two_names(client):
    wf = client.workflow()
    assert [wf.task("true").name, wf.task("true").name, wf.map("true {}", [1])[0].name] == [
        "true",
        "true.2",
        "true.3-0",
    ]


def test_a_stream_of_jobs_of_one_class(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n").write_text("0\n")
    wf = client.workflow(name="stream", workflow_class="stream")
    copy = wf.task("cp n m", name="copy", inputs="n", outputs="m")
    wf.task("cat m", name="show", inputs=copy)
    jobs = [wf.submit(deadline="1h")]
    for number in range(1, 20):
        (tmp_path / f"n{number}").write_text(f"{number}\n")
        own = {"deadline": f"{number}h", "inputs": [f"n=n{number}"], "priority": number % 3, "name": f"number-{number}"}
        jobs.append(client.submit_class("stream", **own))
    assert [job.wait(timeout=60)["state"] for job in jobs] == ["done"] * 20
    assert [next(job.results(["show"])).stdout for job in jobs] == [f"{number}\n" for number in range(20)]
    deadlines = [job.status()["deadline_s"] - job.status()["submitted_s"] for job in jobs]
    assert deadlines == pytest.approx([3600.0, *(3600.0 * number for number in range(1, 20))])
    assert next(row for row in client.classes() if row["class"] == "stream")["jobs"] == 20


def packed(*numbers: int) -> bytes:
    return zlib.compress(array("I", numbers).tobytes())


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ([packed(0, 1, 2), packed(1, 0)], "circle"),
        ([packed(0, 1, 1), packed(7)], "leads out"),
        ([packed(0, 1, 1)], "two packed columns"),
        (["AAAA", "AAAA"], "cannot be decompressed"),
        ([zlib.compress(b"abc"), packed()], "four bytes"),
    ],
)
def test_a_shape_that_is_none_is_refused_by_the_server(client, shape, word):
    spec = {"name": "odd", "source": {"kind": "tasks"}}
    with pytest.raises(BadInput, match=word):
        client.transport.post("/v1/jobs", {"spec": spec, "shape": shape})


def test_a_workflow_has_as_many_tasks_as_its_shape(client):
    spec = {"name": "odd", "source": {"kind": "tasks"}}
    job = client.transport.post("/v1/jobs", {"spec": spec, "shape": [packed(0, 1, 1), packed(1)]})["job"]
    with pytest.raises(BadInput, match="2 tasks by its shape, and 0 were sent"):
        client.transport.post(f"/v1/jobs/{job}/seal")
    row = encode_tasks([TaskRow(argv=["true"], name="a")])
    chunk = {"first": 0, "count": 1, "klass": 0, "codec": "tasks", "bytes": len(row)}
    with pytest.raises(BadInput, match="2 tasks by its shape, and 1 were sent"):
        client.transport.post_frame(f"/v1/jobs/{job}/tasks", {"chunks": [chunk], "seal": True}, [row])
    row = encode_tasks([TaskRow(argv=["true"], name="a", takes=[("ghost", -1)])])
    with pytest.raises(BadInput, match="'ghost', which is not among"):
        client.transport.post_frame(f"/v1/jobs/{job}/tasks", {"chunks": [{**chunk, "bytes": len(row)}]}, [row])
    client.job(job).cancel()


def test_a_file_of_a_task_that_is_not_there_fails_the_task_and_nobody_else(client):
    """What a client of another make may send: our own refuses it."""
    spec = {"name": "odd", "source": {"kind": "tasks"}, "max_failures": 1}
    job = client.transport.post("/v1/jobs", {"spec": spec, "shape": [packed(0, 0, 0), packed()]})["job"]
    rows = [TaskRow(argv=["true"], name="a", takes=[("ghost", 99)]), TaskRow(argv=["true"], name="b")]
    data = encode_tasks(rows)
    chunk = {"first": 0, "count": 2, "klass": 0, "codec": "tasks", "bytes": len(data)}
    client.transport.post_frame(f"/v1/jobs/{job}/tasks", {"chunks": [chunk], "seal": True}, [data])
    assert client.job(job).wait(timeout=60)["tasks"]["done"] == 1
    (failed,) = client.job(job).results(["a"])
    assert failed.cause == "inputs"


def test_only_the_first_of_a_class_can_be_followed(client):
    bag = client.submit("true")
    with pytest.raises(BadInput, match="not the first of a class"):
        client.transport.post("/v1/jobs", {"spec": {"name": "odd", "source": {"kind": "tasks"}, "like": bag.id}})
    with pytest.raises(BadInput, match="is no workflow"):
        bag.graph()


# -- the pages -------------------------------------------------------------------------------------------------------

ROOT = EXAMPLES.parents[1]


def commands_of_the_howto() -> list[str]:
    """What the live half of the page says to type."""
    text = (ROOT / "docs/howto/workflows.md").read_text().partition("# Plan a workflow")[0]
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_howto_work(tmp_path):
    commands = commands_of_the_howto()
    assert any("wordcount.toml" in command for command in commands)
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    env |= {"WINDFALL_STATE": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    for command in commands:
        typed = shlex.split(command)
        assert typed[0] == "windfall"
        ended = subprocess.run(
            [sys.executable, "-m", *typed], cwd=ROOT, env=env, capture_output=True, text=True, timeout=90
        )
        assert ended.returncode == 0, (command, ended)


def test_every_workflow_among_the_examples_is_right():
    files = sorted([*EXAMPLES.glob("*.toml"), *EXAMPLES.glob("*.json")])
    assert len(files) >= 3
    for file in files:
        assert read(file).tasks
