"""GPUs that a fake nvidia-smi shows, and licences of a server, with real workers and tasks that watch over them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.typed import Shell

NVIDIA_SMI = f"""#!{sys.executable}
import os, sys
if sys.argv[1:] != ["--query-gpu=index", "--format=csv,noheader"]:
    sys.exit("the contract of docs/howto/resources.md is another")
print("\\n".join(str(index) for index in range(int(os.environ["FAKE_GPUS"]))))
"""
GUARD = """#!/bin/sh
# Takes every GPU that it was given, and fails if another task has one.
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do mkdir "$1/$gpu" || exit 4; done
sleep 0.05
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do rmdir "$1/$gpu"; done
echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $WINDFALL_RESOURCES"
"""


@pytest.fixture
def shell(tmp_path: Path):
    made = Shell(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "taken").mkdir()
    made.write("bin/nvidia-smi", NVIDIA_SMI, 0o755)
    made.write("guard", GUARD, 0o755)
    made.env |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "FAKE_GPUS": "2"}
    made.env.pop("CUDA_VISIBLE_DEVICES", None)
    yield made
    made.close()


def test_two_tasks_never_have_one_gpu(shell):
    ended = shell.windfall("run", "--range", "1-12", "--slots", "4", "--gpus", "1", "--", "./guard", "taken")
    assert ended.code == 0, ended
    said = {row["stdout"] for row in shell.windfall("results", "last", "--json").lines}
    shares = {index: json.dumps({"gpus": {"amount": 1.0, "units": [index]}}) for index in (0, 1)}
    assert said <= {f"{index} PCI_BUS_ID {share}\n" for index, share in shares.items()} and said


def test_a_call_of_python_has_its_gpu_from_the_beginning(shell):
    shell.write(
        "program.py",
        "import os\n"
        "from windfall import Client\n"
        "def which(n):\n    return os.environ['CUDA_VISIBLE_DEVICES']\n"
        "if __name__ == '__main__':\n"
        "    with Client() as client:\n"
        "        print([task.result() for task in client.submit(which, params=range(6), gpus=1).results()])\n",
    )
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=shell.directory, env=shell.env, capture_output=True, text=True, timeout=90
    )
    assert ended.returncode == 0 and set(eval(ended.stdout)) <= {"0", "1"}, ended


def test_a_plan_of_a_file_counts_the_licences_of_the_server_that_it_is_told_of(shell):
    shell.write("offers.toml", '[[offer]]\nname = "steady"\nprice_usd = 0.1\ncores = 1\nlag_s = 60\nlimit = 8\n')
    shell.write(
        "job.toml",
        '[job]\nname = "fit"\ncommand = "./fit {}"\nrange = "1-8"\nestimate = "10m"\nresources = { licence = 1 }\n',
    )
    server = shell.start("server", "--listen", "127.0.0.1:0", "--state", "state", "--resource", "licence=2")
    shell.eventually(lambda: (shell.directory / "state" / "server.json").exists())
    words = ("plan", "job.toml", "--offers", "offers.toml", "--deadline", "90m", "--seeds", "1", "--json")
    counted, free = shell.windfall(*words, "--state", "state"), shell.windfall(*words)
    shell.finish(server, signal.SIGTERM)
    assert counted.document["machines"]["at_once"] == 2, counted
    assert counted.document["earliest_s"] == 60 + 8 * 600 / 2 > free.document["earliest_s"]
    assert any("the server has 2 licence" in line for line in counted.document["assumed"])
    assert any("name the server that has it" in line for line in free.document["assumed"])
