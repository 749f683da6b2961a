"""What the worker does with single tasks: how they end, and what it says of that. Real processes, a fake server."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server.fake_server import FakeServer
from tests.support.server.worker_process import Worker, alive, until_gone, until_written, worker

HOG = f"{sys.executable} -c \"x = b'x' * (200 << 20); import time; time.sleep(30)\""


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


@pytest.fixture(scope="module")
def two_slots(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with worker(server.url, tmp_path_factory.mktemp("shared"), "--slots", "2") as started:
        yield started


@pytest.fixture
def run(server: FakeServer, two_slots: Worker) -> Any:
    """Run a shell command in a job of its own; its result."""

    def run_it(command: str | list[str], payload: bytes = b"", **spec: Any) -> dict[str, Any]:
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        return server.result(server.add(server.job(**spec), argv, payload))

    return run_it


@pytest.fixture
def call(server: FakeServer, two_slots: Worker) -> Any:
    def call_it(function: Any, *args: Any, **spec: Any) -> dict[str, Any]:
        return server.result(server.call(server.job(kind="call", **spec), function, *args))

    return call_it


def test_a_command_runs_with_its_input_environment_and_a_directory_of_its_own(run, two_slots):
    result = run(
        'cat; echo "$X $WINDFALL_TASK-$WINDFALL_ATTEMPT"; test "$PWD" = "$WINDFALL_DIR"; echo no >&2',
        b"in ",
        env={"X": "y"},
    )
    assert (result["cause"], result["exit"]) == ("done", 0)
    assert result["stdout"].startswith(b"in y ") and result["stderr"] == b"no\n"
    assert result["rss_bytes"] > 0 and result["run_s"] > 0


def test_the_token_is_never_passed_on(run):
    assert run('echo "[$WINDFALL_TOKEN]"')["stdout"] == b"[]\n"


def test_each_attempt_finds_its_directory_empty(run, server):
    job = server.job()
    keys = [server.add(job, ["sh", "-c", "ls -A; touch left .hidden; mkdir d; chmod 500 d"]) for _ in range(6)]
    assert [server.result(key)["stdout"] for key in keys] == [b""] * 6


def test_an_exit_code_a_signal_and_a_missing_program_are_told_apart(run):
    assert (run("exit 3")["cause"], run("exit 3")["exit"]) == ("exit", 3)
    killed = run("kill -SEGV $$")
    assert (killed["cause"], killed["exit"], killed["text"]) == ("signal", -signal.SIGSEGV, "killed by SIGSEGV")
    assert run(["no-such-program"])["cause"] == "no-command"
    assert run(["/etc/passwd"])["cause"] == "no-command"
    assert run([])["cause"] == "no-command"
    assert run(["true", "\0"])["cause"] == "no-command"


def test_a_script_without_an_interpreter_line_is_run_by_the_shell(run, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo $1\n")
    script.chmod(0o755)
    assert run([str(script), "hello"])["stdout"] == b"hello\n"
    script.write_text("#!/no/such/interpreter\n")
    assert "interpreter" in run([str(script)])["text"]


def test_a_working_directory_is_used_if_it_is_there(run, tmp_path):
    assert run(["pwd"], cwd=str(tmp_path))["stdout"].decode().strip() == str(tmp_path)
    assert run(["pwd"], cwd=str(tmp_path / "gone"))["cause"] == "no-cwd"
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool")
    (tmp_path / "tool").chmod(0o755)
    assert run(["./tool"], cwd=str(tmp_path))["stdout"] == b"tool\n"


def test_a_task_over_its_wall_time_gets_its_grace_and_then_the_end(run):
    gentle = run("trap 'echo saved; exit 0' TERM; sleep 60 & wait", wall_s=0.2)
    assert (gentle["cause"], gentle["stdout"]) == ("time", b"saved\n")
    stubborn = run("trap '' TERM; while :; do sleep 1; done", wall_s=0.2, grace_s=0.2)
    assert (stubborn["cause"], stubborn["exit"]) == ("time", -signal.SIGKILL)


def test_a_task_over_its_memory_is_out_of_memory(run):
    result = run(HOG, memory_bytes=100 << 20)
    assert result["cause"] == "oom" and "100 MB" in result["text"]
    assert run("true", memory_bytes=100 << 20)["cause"] == "done"


def test_without_a_control_group_memory_is_watched_and_bounded(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1", WINDFALL_CGROUP="off"):
        held = server.add(server.job(memory_bytes=100 << 20), ["sh", "-c", HOG])
        at_once = server.add(server.job(memory_bytes=50 << 20), [sys.executable, "-c", "x = b'x' * (1 << 33)"])
        fine = server.add(server.job(memory_bytes=100 << 20), ["sh", "-c", "exit 7"])
        assert [server.result(key)["cause"] for key in (held, at_once, fine)] == ["oom", "oom", "exit"]
        call = server.call(server.job(kind="call", memory_bytes=100 << 20), lambda: len(b"x" * (1 << 33)))
        assert server.result(call)["cause"] == "oom"


def test_output_over_the_cap_keeps_its_head_and_its_tail(run):
    result = run("seq 1 100000", output_cap_bytes=1000)
    assert result["stdout"].startswith(b"1\n2\n") and result["stdout"].endswith(b"99999\n100000\n")
    assert b"[... 587,895 bytes dropped ...]" in result["stdout"]
    assert result["dropped"] == [587_895, 0]


def test_nothing_that_a_task_started_outlives_it(run, tmp_path):
    file = tmp_path / "pid"
    run(f"setsid sh -c 'echo $$ > {file}; exec sleep 600' & while ! test -s {file}; do sleep 0.01; done")
    until_gone([int(file.read_text())])
    assert run("sleep 600 & echo done")["stdout"] == b"done\n"


def test_a_task_with_more_cpus_takes_as_many_slots(server, two_slots, tmp_path):
    one = server.job(cpus=1)
    both = server.job(cpus=2)
    log = tmp_path / "log"
    script = f"echo begin >> {log}; sleep 0.1; echo end >> {log}"
    keys = [
        server.add(both, ["sh", "-c", script]),
        server.add(one, ["sh", "-c", script]),
        server.add(both, ["sh", "-c", script]),
    ]
    assert [server.result(key)["cause"] for key in keys] == ["done"] * 3
    assert log.read_text().split() == ["begin", "end"] * 3


def test_inputs_arrive_once_and_outputs_are_sent(run, server):
    data = b"input" * 1000
    sha256 = server.blob(data)
    inputs = [["in/data.bin", sha256, len(data), 0o640]]
    for _ in range(2):
        result = run(
            "mkdir -p out/sub; cat in/data.bin > out/a; echo b > out/sub/b; stat -c %a in/data.bin",
            inputs=inputs, outputs=["out/a", "out/**/b"],
        )  # fmt: skip
        assert result["cause"] == "done" and result["stdout"] == b"640\n"
        names = {name: digest for name, digest, _, _ in result["outputs"]}
        assert names == {"out/a": sha256, "out/sub/b": hashlib.sha256(b"b\n").hexdigest()}
        assert server.blobs[names["out/sub/b"]] == b"b\n"
    assert server.blob_requests.count(("GET", sha256)) == 1


def test_a_missing_input_or_output_is_the_cause(run):
    assert run("true", inputs=[["x", "0" * 64, 1, 0o644]])["cause"] == "inputs"
    result = run("true", outputs=["not-there"])
    assert result["cause"] == "outputs" and "not-there" in result["text"]


@pytest.mark.parametrize("name", ["../x", "/tmp/windfall-escape", "a/../../x", "", ".", "a/..", "link/x"])
def test_an_input_cannot_escape_from_the_directory(run, server, tmp_path, name):
    (tmp_path / "outside").mkdir()
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    (cwd / "link").symlink_to(tmp_path / "outside")
    sha256 = server.blob(b"evil")
    assert run("true", inputs=[[name, sha256, 4, 0o644]], cwd=str(cwd))["cause"] == "inputs"
    assert [path.name for path in tmp_path.rglob("x")] == []


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../*", "link"])
def test_an_output_cannot_reach_out_of_the_directory(run, pattern):
    assert run("ln -s /etc/passwd link", outputs=[pattern])["cause"] == "outputs"


def test_a_large_input_and_a_long_command_line_arrive_whole(run):
    assert len(run(["cat"], b"x" * 5_000_000, output_cap_bytes=6_000_000)["stdout"]) == 5_000_000
    assert run(["sh", "-c", "echo ${#1}", "sh", "y" * 120_000])["stdout"] == b"120000\n"


def test_jobs_with_large_environments_and_many_inputs_run(run, server):
    many = {f"V{number}": "x" * 1000 for number in range(230)}
    assert run("echo ${#V7}", env=many)["stdout"] == b"1000\n"
    files = [[f"in/{number}", server.blob(b"same"), 4, 0o644] for number in range(2000)]
    assert run("ls in | wc -l", inputs=files)["stdout"].strip() == b"2000"


def test_an_environment_that_the_system_refuses_fails_its_task_alone(run):
    result = run("echo never", env={"V": "x" * 230_000})
    assert result["cause"] == "no-command" and "too long" in result["text"]


def test_a_run_folder_that_somebody_removes_costs_no_later_task(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1"):
        server.result(server.add(server.job(), ["true"]))
        shutil.rmtree(tmp_path / "worker" / tmp_path.name / "run")
        results = [server.result(server.add(server.job(), ["sh", "-c", "pwd >file"])) for _ in range(3)]
        calls = [server.result(server.call(server.job(kind="call"), int, number)) for number in range(2)]
    assert {result["cause"] for result in results + calls} == {"done"}


def test_a_call_returns_its_value_and_its_output(call):
    result = call(lambda x: print("said") or x * 2, 21)
    assert (result["cause"], pickle.loads(result["value"]), result["stdout"]) == ("done", (True, 42), b"said\n")


def test_a_call_that_raises_brings_exception_and_traceback(call):
    result = call(lambda: {}["key"])
    ok, error, text = pickle.loads(result["value"])
    assert result["cause"] == "python" and not ok
    assert isinstance(error, KeyError) and "Traceback" in text and "caller.py" not in text


def test_an_exception_that_cannot_travel_becomes_its_text(call):
    def fail() -> None:
        class Odd(Exception):
            def __reduce__(self) -> Any:
                raise TypeError("not me")

        raise Odd("strange")

    ok, error, _ = pickle.loads(call(fail)["value"])
    assert not ok and type(error) is RuntimeError and "strange" in str(error)


def test_sys_exit_in_a_call_is_an_exception_like_others(call):
    assert isinstance(pickle.loads(call(lambda: sys.exit(3))["value"])[1], SystemExit)


def test_a_function_may_come_as_a_blob(server, call):
    import cloudpickle

    sha256 = server.blob(cloudpickle.dumps(lambda a, b: a + b))
    assert pickle.loads(call(sha256, 1, 2)["value"]) == (True, 3)
    assert call("0" * 64)["cause"] == "python"


def test_a_call_that_crashes_its_process_harms_no_other(server, two_slots):
    job = server.job(kind="call")
    calls = [server.call(job, os.getpid) for _ in range(20)]
    crash = server.call(job, lambda: os.kill(os.getpid(), 11))
    leave = server.call(job, lambda: os._exit(4))
    calls += [server.call(job, os.getpid) for _ in range(20)]
    assert (server.result(crash)["cause"], server.result(crash)["exit"]) == ("signal", -11)
    assert (server.result(leave)["cause"], server.result(leave)["exit"]) == ("exit", 4)
    assert {server.result(key)["cause"] for key in calls} == {"done"}
    assert all(len(server.results[key]) == 1 for key in [*calls, crash, leave])


def test_a_call_over_its_wall_time_is_ended_alone(server, two_slots):
    job = server.job(kind="call", wall_s=0.3, grace_s=0.1)

    def forever() -> None:
        import time

        time.sleep(600)

    keys = [server.call(job, forever), *(server.call(job, int) for _ in range(10))]
    causes = [server.result(key)["cause"] for key in keys]
    assert causes == ["time"] + ["done"] * 10


def test_a_call_for_an_interpreter_that_is_not_there_says_so(call):
    assert call(int, python="/no/such/python")["cause"] == "no-command"


def test_a_cancelled_attempt_ends_whether_it_runs_or_waits(server, two_slots, tmp_path):
    job = server.job(grace_s=5)
    file = tmp_path / "pid"
    running = server.add(job, ["sh", "-c", f"echo $$ > {file}; exec sleep 600"])
    pid = int(until_written(file))
    with server.changed:
        server.cancel = [list(running)]
        server.changed.notify_all()
    assert server.result(running)["cause"] == "cancelled"
    assert not alive(pid)


def test_a_cancelled_call_ends_and_the_slot_goes_on(server, two_slots, tmp_path):
    job = server.job(kind="call", grace_s=1)
    file = tmp_path / "up"

    def block(path: str) -> None:
        import pathlib
        import time

        pathlib.Path(path).write_text("up")
        time.sleep(600)

    running = server.call(job, block, str(file))
    until_written(file)
    with server.changed:
        server.cancel = [list(running)]
        server.changed.notify_all()
    assert server.result(running)["cause"] == "cancelled"
    assert server.result(server.call(job, int))["cause"] == "done"


def test_watched_output_comes_while_the_task_runs(tmp_path):
    with FakeServer(next_s=0.5) as server, worker(server.url, tmp_path, "--slots", "2"):
        go, go_call = tmp_path / "go", tmp_path / "go-call"
        os.mkfifo(go)
        os.mkfifo(go_call)

        def speak(path: str) -> None:
            print("called", flush=True)
            with open(path) as file:
                file.read()

        command = server.add(server.job(), ["sh", "-c", f"echo first; read x < {go}; echo last"])
        server.watch = [list(command)]
        server.wait_for(lambda: bytes(server.live[command]) == b"first\n")
        call = server.call(server.job(kind="call"), speak, str(go_call))
        server.watch = [list(call)]
        server.wait_for(lambda: bytes(server.live[call]) == b"called\n")
        go.write_text("x\n")
        go_call.write_text("x\n")
        assert server.result(command)["stdout"] == b"first\nlast\n"
        assert server.result(call)["stdout"] == b"called\n"


def test_threads_are_as_many_as_cores_unless_the_user_says_otherwise(run):
    assert run("echo $OMP_NUM_THREADS", cpus=2)["stdout"] == b"2\n"
    assert run("echo $OMP_NUM_THREADS", cpus=0.5)["stdout"] == b"1\n"
    assert run("echo $OMP_NUM_THREADS", cpus=2, env={"OMP_NUM_THREADS": "7"})["stdout"] == b"7\n"


ALLOWED = "sed -n 's/^Cpus_allowed_list:\\t//p' /proc/self/status"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is every task's own")
def test_pinned_tasks_have_cores_of_their_own_and_others_all_of_them(server, two_slots, run, tmp_path):
    whole = run(ALLOWED)["stdout"]
    job = server.job(pin=True)
    wait = f"echo here >> {tmp_path}/here; until [ $(wc -l < {tmp_path}/here) = 2 ]; do sleep 0.01; done"
    keys = [server.add(job, ["sh", "-c", f"{ALLOWED}; {wait}"]) for _ in range(2)]
    cores = [server.result(key)["stdout"] for key in keys]
    assert len(set(cores)) == 2 and all(core.strip().isdigit() for core in cores)
    assert run(ALLOWED, pin=True, cpus=2)["stdout"] != cores[0]
    assert run(ALLOWED)["stdout"] == whole


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is every call's own")
def test_a_pinned_call_keeps_to_its_core(call):
    result = call(lambda: len(os.sched_getaffinity(0)), pin=True)
    assert pickle.loads(result["value"]) == (True, 1)
