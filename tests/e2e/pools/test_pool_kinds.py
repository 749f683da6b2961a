"""Bags over pools of kind command and ssh to their end, and what the doctor says of pools that do not work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.pools.fake_condor import install
from tests.support.pools.sshd import behind, sshd
from tests.support.server.cluster import WINDFALL
from windfall.cli.serve.pools import pool
from windfall.client import Client
from windfall.pools.config import read_pools
from windfall.server import embedded

EXAMPLES = Path(__file__).parents[3] / "examples" / "pools"
TASKS = 40


def run_bag(tmp_path: Path, pools: Path) -> list[str]:
    """Run a bag over the pools of a file; the names of the hosts that ran its tasks."""
    state = tmp_path / "state"
    with embedded.start(state, pools=read_pools(pools)) as server, Client(server.url, server.token) as client:
        job = client.submit(["sh", "-c", "sleep 0.05; echo {}"], range(TASKS), name="bag")
        assert job.wait(120)["tasks"]["done"] == TASKS
        assert {task.stdout.strip() for task in job.results()} == {str(n) for n in range(TASKS)}
        return sorted({row["host"] for row in client.hosts()})


@pytest.fixture
def processes(tmp_path, monkeypatch):
    """The example of kind `command`, copied, with a list of its own."""
    shutil.copytree(EXAMPLES / "processes", tmp_path / "processes")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "processes" / "pools.toml"


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.glob("windfall-processes-*/*") if Path(f"/proc/{path.name}").exists()]


def test_the_example_of_processes_runs_a_bag_and_leaves_nothing_behind(tmp_path, processes):
    assert run_bag(tmp_path, processes) in (["mine-1-1"], ["mine-1-1", "mine-1-2"])
    assert kept(tmp_path) == []


def test_a_run_is_reached_from_other_hosts_where_it_is_told_to_listen(tmp_path):
    (tmp_path / "pools.toml").write_text('[[pool]]\nname = "here"\n')
    command = [*WINDFALL, "run", "--pools", "pools.toml", "--listen", "0.0.0.0:0", "--range", "1-2", "--json", "--"]
    ran = subprocess.run([*command, "sh", "-c", "cat .windfall/server.json #{}"], cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    told = subprocess.run([*WINDFALL, "results", "last", "--json"], cwd=tmp_path, capture_output=True, check=True)
    outputs = [json.loads(line)["stdout"] for line in told.stdout.splitlines()]
    assert len(outputs) == 2 and all("http://0.0.0.0:" in text for text in outputs)
    wrong = [
        *WINDFALL,
        "run",
        "--server",
        "http://127.0.0.1:9",
        "--listen",
        "0.0.0.0:0",
        "--range",
        "1-2",
        "--",
        "true",
    ]
    refused = subprocess.run(wrong, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2 and "--listen goes with a server of one's own" in refused.stderr


def test_the_example_of_htcondor_runs_a_bag_over_programs_that_play_its_commands(tmp_path, monkeypatch):
    """No HTCondor is here: programs of its commands' names run jobs (tests/support/pools/fake_condor.py)."""
    monkeypatch.setenv("PATH", f"{install(tmp_path)}:{os.environ['PATH']}")
    shutil.copytree(EXAMPLES / "htcondor", tmp_path / "htcondor")
    file = tmp_path / "htcondor" / "pools.toml"
    quick = file.read_text().replace('interval = "30s"', 'interval = "1s"').replace("limit = 50", "limit = 2")
    file.write_text(f'{quick}\npython = "{sys.executable}"\n')
    hosts = run_bag(tmp_path, file)
    assert hosts and {host.partition("-")[0] for host in hosts} == {read_pools(file)[0].name}
    queue = subprocess.run([tmp_path / "condor" / "condor_q"], capture_output=True, check=True)
    assert json.loads(queue.stdout) == [], "nothing is left behind"


def test_a_bag_runs_over_ssh_with_a_jump_host_and_leaves_nothing_behind(tmp_path):
    with sshd(tmp_path / "sshd") as server:
        file = tmp_path / "pools.toml"
        file.write_text(
            f'[[pool]]\nname = "lab"\nkind = "ssh"\nhosts = ["node*", "far"]\nslots = 2\nconfig = "{server.config}"\n'
            f'folder = "{server.home}"\npython = "{sys.executable}"\ninterval = "1s"\n'
        )
        hosts = run_bag(tmp_path, file)
        assert hosts and all(host.startswith("lab-1-") for host in hosts)
        left = [path.read_text().strip() for path in server.home.rglob("pid")]
        assert left and [pid for pid in left if Path(f"/proc/{pid}").exists()] == []


def doctor(*options: str) -> tuple[int, dict]:
    ran = CliRunner().invoke(pool, ["doctor", *options, "--json"])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.output
    return ran.exit_code, json.loads(ran.stdout)


def test_the_doctor_starts_a_worker_and_ends_it(tmp_path, processes):
    code, found = doctor("mine", "--pools", str(processes))
    assert (code, found["ok"]) == (0, True), found
    assert "reaches the server" in found["checks"][-1]["what"] and kept(tmp_path) == []


def test_a_pool_can_be_removed_straight_after_its_doctor(tmp_path):
    (tmp_path / "pools.toml").write_text(
        '[[pool]]\nname = "cloud"\nkind = "emulated"\ntime_scale = 60\n'
        '[[pool.offer]]\nname = "vm"\ncores = 1\nprice_usd = 0.1\ncycle_s = 3600\nlag_s = 1\n'
    )
    state = ["--state", str(tmp_path / "state")]
    for words in (["add", str(tmp_path / "pools.toml")], ["doctor", "cloud"], ["remove", "cloud"]):
        ran = CliRunner().invoke(pool, [*words, *state])
        assert ran.exit_code == 0, (words, ran.output, ran.exception)


def test_a_host_behind_a_jump_host_works_and_no_connection_has_to_stay_open(tmp_path):
    """Two real sshd: one is the gate to the other. While tasks run, every connection is cut and the gate is closed."""
    with sshd(tmp_path / "inner") as inner, ExitStack() as open_gate:
        gate = open_gate.enter_context(sshd(tmp_path / "gate"))
        behind(inner, gate, tmp_path / "config")
        (tmp_path / "pools.toml").write_text(
            f'[[pool]]\nname = "lab"\nkind = "ssh"\nhosts = ["inside"]\nconfig = "{tmp_path / "config"}"\n'
            f'folder = "{inner.home}"\npython = "{sys.executable}"\ninterval = "1s"\n'
        )
        with (
            embedded.start(tmp_path / "state", pools=read_pools(tmp_path / "pools.toml")) as server,
            Client(server.url, server.token) as client,
        ):
            job = client.submit(["sleep", "{}"], ["4", "0.1"])
            until = time.monotonic() + 60.0
            while not job.status()["tasks"]["running"]:
                assert time.monotonic() < until, client.pools()
                time.sleep(0.1)
            assert "Accepted publickey" in (tmp_path / "gate" / "log").read_text(), "the way leads through the gate"
            kill_connections(str(tmp_path / "config"))
            open_gate.close()
            assert job.wait(60)["tasks"]["done"] == 2
            assert [row["lost"] for row in client.hosts()] == [0] and len(client.hosts()) == 1


def kill_connections(config: str) -> None:
    """Kill every ssh process that uses this configuration."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
            if words[0].rpartition("/")[2] == "ssh" and config in words:
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue


@pytest.mark.parametrize(
    ("settings", "what", "hint"),
    [
        ('start = ["false"]', "exit code 1", "transient"),
        ('start = ["sh", "-c", "echo no such queue >&2; exit 3"]', "exit code 3: no such queue", "transient"),
        ('start = ["echo", "hello"]', "no valid answer", "correct the settings"),
        ('start = ["echo", \'{"error": "over your quota", "kind": "quota"}\']', "over your quota", "quota"),
        ('start = ["/no/such/program"]', "no such program", "whole path"),
        ('list = ["echo", \'[{"state": "running"}]\']', "missing required field `id`", "docs/howto/command.md"),
        ('list = ["sleep", "60"]\ntime_limit = "0.5s"', "took longer than 0.5 s", "by hand"),
        ('start = ["sh", "-c", "echo {\\\\\\"id\\\\\\": 1}"]', "no valid answer", "correct the settings"),
        ('start = ["echo", \'{"id": "7"}\']\nappears = "0s"', "ended without a word", "by hand"),
        ('python = "/no/python"\nappears = "1s"', "/no/python", "by hand"),
    ],
)
def test_the_doctor_says_what_is_wrong_with_commands(tmp_path, processes, settings, what, hint):
    names = {line.split(" = ")[0] for line in settings.splitlines()}
    lines = [line for line in processes.read_text().splitlines() if line.split(" = ")[0] not in names]
    processes.write_text("\n".join([*lines, settings]))
    code, found = doctor("mine", "--pools", str(processes), "--wait", "8s")
    wrong = [check for check in found["checks"] if check["error"]]
    assert code == 1 and wrong, found
    assert what in wrong[-1]["error"] and hint in wrong[-1]["hint"], wrong


@pytest.mark.parametrize(
    ("settings", "what", "hint"),
    [
        ('hosts = ["refused"]', "Permission denied", "BatchMode=yes refused"),
        ('hosts = ["unknown"]', "Host key verification failed", "accept the key"),
        ('hosts = ["nowhere.invalid"]', "resolve hostname", "by hand"),
        ('hosts = ["node1"]\npython = "/no/python"', "ended with code 127", "/no/python --version"),
        ('hosts = ["node1"]\nserver = "http://127.0.0.1:9"', "refused", "how the hosts reach it"),
        ('hosts = ["node1"]\nfolder = "/proc/none"', "/proc/none", "folder ="),
    ],
)
def test_the_doctor_says_what_is_wrong_with_hosts(tmp_path, settings, what, hint):
    with sshd(tmp_path / "sshd") as server:
        lines = [f'[[pool]]\nname = "lab"\nkind = "ssh"\nconfig = "{server.config}"', settings]
        lines += [] if "python" in settings else [f'python = "{sys.executable}"']
        lines += [] if "folder" in settings else [f'folder = "{server.home}"']
        (tmp_path / "pools.toml").write_text("\n".join(lines))
        code, found = doctor("lab", "--pools", str(tmp_path / "pools.toml"), "--no-trial")
    wrong = [check for check in found["checks"] if check["error"]]
    assert code == 1 and len(wrong) == 1, found
    assert what in wrong[0]["error"] and hint in wrong[0]["hint"], wrong


def test_the_last_words_of_workers_that_never_reached_the_server_are_shown(tmp_path):
    with sshd(tmp_path / "sshd") as there:
        file = tmp_path / "pools.toml"
        file.write_text(
            f'[[pool]]\nname = "lab"\nkind = "ssh"\nhosts = ["node1"]\nconfig = "{there.config}"\ninterval = "1s"\n'
            f'folder = "{there.home}"\npython = "{sys.executable}"\nserver = "http://127.0.0.1:9"\nidle_exit = "1s"\n'
        )
        with (
            embedded.start(tmp_path / "state", pools=read_pools(file)) as server,
            Client(server.url, server.token) as client,
        ):
            client.submit(["true", "{}"], range(1), name="bag")
            until = time.monotonic() + 60
            while not (error := client.pools()[0]["last_error"]):
                assert time.monotonic() < until, client.pools()
                time.sleep(0.2)
    assert "worker lab-1-1 on node1" in error and "the server cannot be reached" in error
