"""How the worker lives with its server, its host and its own death. Real processes, a fake server with faults."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.server.cluster import cluster
from tests.support.server.fake_server import FakeServer
from tests.support.server.pair import eventually
from tests.support.server.worker_process import SOURCE, Worker, alive, until_gone, until_written, worker


def sleeper(file: Path, trap: str = "") -> list[str]:
    """A task that writes its process id and then stays."""
    return ["sh", "-c", f"{trap} echo $$ > {file}.tmp; mv {file}.tmp {file}; while :; do sleep 0.05; done"]


def first_runner(started: Worker) -> int:
    """The process id of the runner that a worker starts before it has a task."""
    end_s = time.monotonic() + 30
    while True:
        for pid in started.runners():
            # Until it has a program of its own, its parent waits for it and cannot be served.
            if b"worker.running.runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        assert time.monotonic() < end_s, "the worker started no runner"
        time.sleep(0.01)


@pytest.mark.parametrize("as_file", [False, True], ids=["package", "one file"])
def test_it_runs_commands_and_calls_and_leaves_when_told(tmp_path, as_file):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "2", as_file=as_file) as started:
        commands = [server.add(server.job(), ["echo", str(i)]) for i in range(5)]
        calls = [server.call(server.job(kind="call"), int, i) for i in range(5)]
        assert [server.result(key)["stdout"] for key in commands] == [b"%d\n" % i for i in range(5)]
        assert {server.result(key)["cause"] for key in calls} == {"done"}
        ad = server.requests[0]["ad"]
        assert (ad["name"], ad["slots"]) == (tmp_path.name, 2) and ad["speed"] > 0 and ad["memory_mb"] > 0
        family = started.family()
        code, said = started.end()
        assert code == 0 and "Traceback" not in said
        assert server.requests[-1]["leaving"] == "signal"
        until_gone(family)


def test_lost_answers_and_errors_cost_no_result_and_double_none(tmp_path):
    with FakeServer() as server:
        seen = {"n": 0}

        def odd(header: dict) -> int:
            seen["n"] += 1
            return 503 if seen["n"] % 5 == 0 else 429 if seen["n"] % 7 == 0 else 200

        server.status_of = odd
        server.drop_answer = lambda header: seen["n"] % 3 == 0
        job = server.job()
        keys = [server.add(job, ["echo", str(i)]) for i in range(150)]
        with worker(server.url, tmp_path, "--slots", "2"):
            server.wait_for(lambda: len(server.results) == 150)
        assert [server.results[key][0]["stdout"] for key in keys] == [b"%d\n" % i for i in range(150)]
        assert all(len(found) == 1 for found in server.results.values())
        assert any(a["n"] == b["n"] for a, b in zip(server.requests, server.requests[1:], strict=False))


def test_it_works_through_an_outage_and_reports_when_the_server_is_back(tmp_path):
    server = FakeServer()
    file = tmp_path / "ran"
    with worker(server.url, tmp_path, "--slots", "1"):
        server.add(server.job(), ["sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.02; done; echo ran > {file}"])
        server.wait_for(lambda: any(header["held"] for header in server.requests))
        server.status_of = lambda header: 500
        (tmp_path / "go").touch()
        until_written(file)
        server.status_of = lambda header: 200
        server.wait_for(lambda: len(server.results) == 1)
    server.close()


def test_results_of_an_outage_survive_the_death_of_the_worker(tmp_path):
    with FakeServer() as server:
        with worker(server.url, tmp_path, "--slots", "1") as first:
            file = tmp_path / "ran"
            go = tmp_path / "go"
            key = server.add(server.job(), ["sh", "-c", f"until test -e {go}; do sleep 0.02; done; echo ran > {file}"])
            server.wait_for(lambda: any(header["held"] for header in server.requests))
            server.status_of = lambda header: 500
            go.touch()
            until_written(file)
            spool = tmp_path / "worker" / tmp_path.name / "spool"
            server.wait_for(lambda: any(path.stat().st_size for path in spool.glob("*.spool")))
            first.end(signal.SIGKILL)
        assert key not in server.results
        server.status_of = lambda header: 200
        with worker(server.url, tmp_path, "--slots", "1"):
            assert server.result(key)["cause"] == "done"
            boots = {header["boot"] for header in server.requests}
            assert len(boots) == 2
            server.wait_for(lambda: not list(spool.glob("*.spool")))


def test_killing_the_worker_leaves_no_process_behind(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "2") as started:
        files = [tmp_path / "task", tmp_path / "call"]

        def call(path: str) -> None:
            subprocess.run(["sh", "-c", f"echo $$ > {path}.tmp; mv {path}.tmp {path}; sleep 600"], check=False)

        server.add(server.job(), sleeper(files[0], trap="trap '' TERM HUP INT;"))
        server.call(server.job(kind="call"), call, str(files[1]))
        pids = [int(until_written(file)) for file in files]
        family = started.family()
        assert set(pids) <= set(family)
        started.end(signal.SIGKILL)
        until_gone(family)


def test_killing_a_runner_loses_its_attempt_and_nothing_else(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        file = tmp_path / "pid"
        lost = server.add(server.job(), sleeper(file))
        pid = int(until_written(file))
        (runner,) = started.runners()
        os.kill(runner, signal.SIGKILL)
        assert server.result(lost)["cause"] == "lost"
        assert not alive(pid)
        assert server.result(server.add(server.job(), ["true"]))["cause"] == "done"


def test_killing_a_runner_before_it_has_begun_loses_an_attempt_and_nothing_else(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        runner = first_runner(started)
        # A stopped runner begins nothing, so the attempt waits for it when it dies.
        os.kill(runner, signal.SIGSTOP)
        lost = server.add(server.job(), sleeper(tmp_path / "pid"))
        server.wait_for(lambda: any(header["held"] for header in server.requests))
        os.kill(runner, signal.SIGKILL)
        assert server.result(lost)["cause"] == "lost"
        assert server.result(server.add(server.job(), ["true"]))["cause"] == "done"


def test_a_task_that_stops_its_runner_keeps_its_time_limit_and_can_be_cancelled(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1"):
        stopping = ["sh", "-c", "kill -STOP $PPID; sleep 600"]
        assert server.result(server.add(server.job(wall_s=1.0), stopping))["cause"] == "time"
        file = tmp_path / "pid"
        script = f"echo $$ > {file}.new; mv {file}.new {file}; kill -STOP $PPID; exec sleep 600"
        cancelled = server.add(server.job(), ["sh", "-c", script])
        pid = int(until_written(file))
        with server.changed:
            server.cancel = [list(cancelled)]
            server.changed.notify_all()
        assert server.result(cancelled)["cause"] == "cancelled"
        assert not alive(pid)
        assert server.result(server.add(server.job(), ["true"]))["cause"] == "done"


def test_killing_an_idle_runner_loses_nothing(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        runner = first_runner(started)
        os.kill(runner, signal.SIGKILL)
        # A task that reaches it before its worker knows of its death has an attempt lost.
        while Path(f"/proc/{runner}").exists():
            time.sleep(0.01)
        assert server.result(server.add(server.job(), ["true"]))["cause"] == "done"


def test_a_terminated_worker_gives_its_tasks_their_grace_and_hands_back_the_rest(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        warm_up = [server.add(server.job(), ["true"]) for _ in range(20)]
        for key in warm_up:
            server.result(key)
        file = tmp_path / "pid"
        job = server.job()
        running = server.add(job, sleeper(file, trap="trap 'echo saved; exit 0' TERM;"))
        waiting = [server.add(job, ["true"]) for _ in range(3)]
        until_written(file)
        code, _ = started.end()
        assert code == 0
        result = server.result(running)
        assert (result["cause"], result["stdout"]) == ("preempted", b"saved\n")
        handed = [server.results[key][0] for key in waiting if key in server.results]
        assert all((found["cause"], found["run_s"]) == ("preempted", 0) for found in handed)
        # What it had not fetched yet is still the server's.
        assert len(handed) + len(server.queue) == 3


@pytest.mark.parametrize("children_first", [True, False])
def test_a_signal_to_all_processes_of_a_job_preempts_what_runs(tmp_path, children_first):
    """As batch systems do when a job is cancelled: a task that it ends has not failed."""
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "3") as started:
        files = [tmp_path / name for name in ("dies", "saves", "call")]

        def call(path: str) -> None:
            subprocess.run(["sh", "-c", f"echo $$ > {path}.tmp; mv {path}.tmp {path}; sleep 600"], check=False)
            time.sleep(600)  # or it may be done before the signal comes to its own process

        dies = server.add(server.job(), sleeper(files[0]))
        saves = server.add(server.job(), sleeper(files[1], trap="trap 'echo saved; exit 7' TERM;"))
        calls = server.call(server.job(kind="call"), call, str(files[2]))
        for file in files:
            until_written(file)
        for pid in sorted(started.family(), reverse=children_first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        assert started.ended()[0] == 0
        assert [server.result(key)["cause"] for key in (dies, saves, calls)] == ["preempted"] * 3
        said = server.result(saves)["stdout"].split()
        assert said and set(said) == {b"saved"}, "twice where it heard our notice, too, before it ended"


def test_a_preemption_notice_is_passed_on_as_the_task_wishes(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        file = tmp_path / "pid"
        job = server.job(env={"WINDFALL_NOTICE_SIGNAL": "USR1"})
        key = server.add(job, sleeper(file, trap="trap 'echo checkpoint; exit 0' USR1;"))
        until_written(file)
        started.end(signal.SIGUSR1)
        assert (server.result(key)["cause"], server.results[key][0]["stdout"]) == ("preempted", b"checkpoint\n")
        assert server.requests[-1]["leaving"] == "notice"


def test_a_notice_file_has_the_same_effect(tmp_path):
    notice = tmp_path / "notice"
    with FakeServer() as server, worker(server.url, tmp_path, "--notice-file", str(notice)) as started:
        server.wait_for(lambda: bool(server.requests))
        notice.touch()
        assert started.ended()[0] == 0
        assert server.requests[-1]["leaving"] == "notice"


def test_the_end_of_its_lifetime_preempts_what_runs(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--lifetime", "2s") as started:
        key = server.add(server.job(grace_s=0.2), sleeper(tmp_path / "pid"))
        assert started.ended()[0] == 0
        assert server.result(key)["cause"] == "preempted"
        assert server.requests[-1]["leaving"] == "lifetime"
        # Half a second is kept for leaving: a task that takes longer than what is said would be cut off.
        assert 0 < server.requests[0]["ad"]["lifetime_s"] <= 1.5


def test_it_ends_itself_when_there_is_no_work(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--idle-exit", "1s") as started:
        server.result(server.add(server.job(), ["true"]))
        assert started.ended()[0] == 0
        assert server.requests[-1]["leaving"] == "idle"


def test_a_server_that_drains_it_gets_what_runs_finished(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        go, begun = tmp_path / "go", tmp_path / "begun"
        script = f"echo yes > {begun}; until test -e {go}; do sleep 0.02; done"
        key = server.add(server.job(), ["sh", "-c", script])
        until_written(begun)
        with server.changed:
            server.stop = "drain"
            server.changed.notify_all()
        server.wait_for(lambda: server.requests[-1]["want"] == 0)
        go.touch()
        assert started.ended()[0] == 0
        assert server.result(key)["cause"] == "done"
        assert server.requests[-1]["leaving"] == "drained"


def test_stop_now_kills_what_runs(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        file = tmp_path / "pid"
        key = server.add(server.job(), sleeper(file, trap="trap '' TERM;"))
        pid = int(until_written(file))
        with server.changed:
            server.stop = "now"
            server.changed.notify_all()
        assert started.ended()[0] == 0
        assert server.result(key)["cause"] == "preempted" and not alive(pid)


def test_a_recalled_worker_lets_its_task_save_and_ends(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--slots", "1") as started:
        file = tmp_path / "pid"
        job = server.job(env={"WINDFALL_NOTICE_SIGNAL": "USR1"})
        key = server.add(job, sleeper(file, trap="trap 'sleep 0.3; echo saved; exit 0' USR1;"))
        until_written(file)
        with server.changed:
            server.stop = "save"
            server.changed.notify_all()
        assert started.ended()[0] == 0
        assert (server.result(key)["cause"], server.results[key][0]["stdout"]) == ("preempted", b"saved\n")


@pytest.mark.parametrize(("status", "code"), [(401, 3), (403, 3), (409, 2), (426, 2)])
def test_a_server_that_refuses_it_is_quoted(tmp_path, status, code):
    with FakeServer() as server:
        server.status_of = lambda header: status
        with worker(server.url, tmp_path) as started:
            ended, said = started.ended()
        assert ended == code and f"fake {status}" in said and "Traceback" not in said


def test_a_wrong_token_is_refused(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path, "--token", "wrong") as started:
        ended, said = started.ended()
        assert ended == 3 and "token" in said


def test_too_large_an_exchange_is_sent_in_parts_and_the_last_is_cut(tmp_path):
    with FakeServer() as server:
        server.limit_bytes = 20_000
        job = server.job()
        keys = [server.add(job, ["sh", "-c", "seq 1 1000"]) for _ in range(30)]
        large = server.add(job, ["sh", "-c", "seq 1 20000"])
        value = server.call(server.job(kind="call"), lambda: b"x" * 100_000)
        with worker(server.url, tmp_path, "--slots", "2"):
            assert {len(server.result(key)["stdout"]) for key in keys} == {3893}
            cut = server.result(large)
            assert cut["cause"] == "done" and cut["dropped"][0] > 80_000 and cut["stdout"].endswith(b"20000\n")
            assert server.result(value)["cause"] == "python"
        assert all(len(found) == 1 for found in server.results.values())


def test_it_dies_with_the_process_that_started_it(tmp_path):
    with FakeServer() as server:
        file = tmp_path / "pid"
        server.add(server.job(), sleeper(file, trap="trap '' TERM HUP;"))
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; "
            "import tests.support.server.worker_process as w; "
            "p = w.Worker(sys.argv[2], Path(sys.argv[3]), '--die-with-parent'); print(p.pid, flush=True); input()"
        )
        root = str(Path(__file__).parents[3])
        parent = subprocess.Popen(
            [sys.executable, "-c", code, root, server.url, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCE},
        )  # fmt: skip
        assert parent.stdout
        pid = int(parent.stdout.readline())
        task = int(until_written(file))
        parent.kill()
        parent.communicate()
        until_gone([pid, task])


def test_two_workers_on_one_host_have_different_ids_that_come_back(tmp_path):
    environment = {"TMPDIR": str(tmp_path)}

    def start(folder: str, server: FakeServer) -> Worker:
        (tmp_path / folder).mkdir(exist_ok=True)
        made = Worker(server.url, tmp_path / folder, **environment)
        made.end(signal.SIGKILL)
        command = [sys.executable, "-m", "windfall.worker", "--server", server.url, "--dir", str(tmp_path / folder)]
        env = {**os.environ, **environment, "PYTHONPATH": SOURCE, "WINDFALL_TOKEN": "sesame"}
        made.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        return made

    with FakeServer() as server:
        hosts = []
        for wanted in (2, 2):
            pair = [start(name, server) for name in ("a", "b")]
            server.requests.clear()
            server.wait_for(lambda wanted=wanted: len({header["host"] for header in server.requests}) == wanted)
            hosts.append({header["host"] for header in server.requests})
            for each in pair:
                assert each.end()[0] == 0
        assert hosts[0] == hosts[1]


def test_a_name_that_is_taken_on_this_host_is_refused(tmp_path):
    with FakeServer() as server, worker(server.url, tmp_path):
        server.wait_for(lambda: bool(server.requests))
        with worker(server.url, tmp_path) as second:
            ended, said = second.ended()
        assert ended == 2 and "--name" in said


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--server", "nonsense"], "address"),
        (["--token-file", "/no/such/file"], "token"),
        (["--slots", "0"], "slots"),
        (["--lifetime", "soon"], "duration"),
        (["--tag", "novalue"], "KEY=VALUE"),
        (["--cafile", "/no/such/file"], "certificate"),
    ],
)
def test_a_bad_option_is_named_and_nothing_starts(tmp_path, options, word):
    with worker("http://127.0.0.1:1", tmp_path, *options) as started:
        ended, said = started.ended()
    assert ended == 2 and word in said and "Traceback" not in said


def test_a_worker_that_was_forgotten_while_it_stood_still_says_what_it_is_and_goes_on(tmp_path):
    with cluster(tmp_path, lease_s=1.0) as made:
        made.start_server("--retain", "hosts=0")
        made.start_worker("w", slots=3, extra=("--pool", "crowd"))
        client = made.client()
        assert [task.state for task in client.submit("true", params=range(4)).results(timeout=60)] == ["done"] * 4
        made.workers["w"].send_signal(signal.SIGSTOP)
        eventually(lambda: not client.hosts(), what="the host is forgotten")
        assert client.all_hosts()["forgotten"] == [{"pool": "crowd", "hosts": 1, "done": 4, "failed": 0, "lost": 0}]
        made.workers["w"].send_signal(signal.SIGCONT)
        assert [task.state for task in client.submit("true", params=range(4)).results(timeout=60)] == ["done"] * 4
        (row,) = client.hosts()
        assert (row["pool"], row["slots"], row["done"]) == ("crowd", 3, 4)
        made.stop_server()
        assert made.accepted().total() == 8
