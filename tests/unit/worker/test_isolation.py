"""What tasks can see of their worker: the command line of the sandbox, and memory that is hidden."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.engine.hand import Hand
from windfall.core.matching.ads import host_ad
from windfall.worker.running import isolation

DUMPABLE = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)"


def test_the_memory_of_a_worker_is_hidden():
    """And that of what it starts is not: a task may look at itself."""
    program = (
        "import subprocess, sys; from windfall.worker.running import system; assert system.hide_memory()\n"
        f"{DUMPABLE}\nsubprocess.run([sys.executable, '-c', {DUMPABLE!r}], check=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "1"]


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="root and setpriv are needed")
def test_root_without_the_capability_to_trace_cannot_read_the_memory_of_a_worker():
    """As in a container: its root is without SYS_PTRACE."""
    program = "import sys; from windfall.worker.running import system; print(system.hide_memory(), flush=True); input()"
    look = "import sys; open(f'/proc/{sys.argv[1]}/mem', 'rb').close()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hidden:
        assert hidden.stdout is not None and hidden.stdout.readline() == b"True\n"
        command = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", sys.executable, "-c", look]
        tried = subprocess.run([*command, str(hidden.pid)], capture_output=True, text=True, timeout=60, check=False)
        hidden.kill()
    assert tried.returncode == 1 and "PermissionError" in tried.stderr


def test_the_files_of_a_worker_are_hidden_behind_what_the_task_is_shown(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    settings = isolation.settings_of("/w", str(token), network=False)
    argv = isolation.argv_of(settings, ["prog", "-x"], "/w/h/run/1", ["/w/h/run-checkpoints"])
    assert argv.index("/w") < argv.index("/w/h/run/1")  # hidden first, then shown
    assert argv[argv.index(str(token)) - 2 :][:2] == ["--ro-bind", "/dev/null"]
    assert "--unshare-net" in argv and argv[-2:] == ["prog", "-x"]
    assert "--unshare-net" not in isolation.argv_of({**settings, "network": True}, ["prog"], "/w/h/run/1", [])


def test_the_state_of_a_server_is_hidden_where_the_token_lies_in_it(tmp_path):
    (tmp_path / "token").write_text("secret")
    assert isolation.settings_of("/w", str(tmp_path / "token"), network=False)["hidden"] == []
    (tmp_path / "windfall.db").touch()
    settings = isolation.settings_of(f"{tmp_path}/workers", str(tmp_path / "token"), network=False)
    argv = isolation.argv_of(settings, ["prog"], f"{tmp_path}/workers/h/run/1", [])
    state, workers, run = (argv.index(f"{tmp_path}{place}") for place in ("", "/workers", "/workers/h/run/1"))
    assert argv[state - 1] == argv[workers - 1] == "--tmpfs" and state < workers < run


def test_policies_see_whether_a_host_isolates_its_tasks():
    hand = Hand()
    for name, ad in (("plain", {}), ("boxed", {"isolation": "bubblewrap"})):
        hand.ask(name, want=0, **ad)
        assert host_ad(hand.state.host(name), hand.t)["Isolated"] is bool(ad)
