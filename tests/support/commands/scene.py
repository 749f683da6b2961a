"""A directory in which every example of the help can be typed: its files, a server with pools, a worker, jobs.

Stand-ins: emulated machines for a cloud, processes of this host for a cluster and for hosts elsewhere, small programs
for the user's own. What an example names and nobody can know (an address, the number of a token) is replaced by what
there is in the scene; `typed` does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.commands.traces import nextflow_run, pegasus_run
from windfall.bench.harness import cpu_of_family
from windfall.client import Client

ROOT = Path(__file__).parents[3]
PROGRAM = "#!/bin/sh\necho done\n"
WORKED_S = 1.5
"""Processor seconds after which a long command is past its start; loading all modules takes half of one."""
WAITING_S = 3.0
"""Seconds after which one that waits rather than computes has begun, too."""
POOLS = """
[[pool]]
name = "cloud"
kind = "emulated"
time_scale = 60
seed = 1
[[pool.offer]]
name = "spot"
market = "spot"
cores = 2
price_usd = 0.031
cycle_s = 3600
lag_s = 60
when_taken = "hibernate"
[[pool.offer]]
name = "on-demand"
cores = 2
price_usd = 0.104
cycle_s = 3600
lag_s = 60

[[pool]]
name = "cluster"
kind = "local"
limit = 1
"""
WORKFLOW = """
name = "nightly"
[[task]]
name = "count"
command = "wc -l raw.csv > count.txt"
inputs = ["raw.csv"]
outputs = ["count.txt"]
estimate = "1m"
[[task]]
name = "show"
command = "cat count.txt"
inputs = ["count.txt"]
estimate = "1m"
"""
JOB = """
[job]
name = "fit-job"
command = "./fit {}"
range = "1-4"
estimate = "5m"
[job.policies]
Rank = "Host.Speed"
"""
CHAIN = """
[[task]]
name = "a"
command = "true"
[[task]]
name = "b"
command = "true"
after = "a"
"""
PRICES = """timestamp,availability_zone,instance_type,usd_per_hour
2024-03-01T00:00:00Z,us-east-1a,m5.large,0.04
2024-03-02T00:00:00Z,us-east-1b,m5.large,0.05
2024-03-03T00:00:00Z,us-east-1a,m5.large,0.06
"""
SCENARIO = """
name = "small"
[[pool]]
name = "here"
hosts = 5
[[bag]]
name = "bag"
tasks = 20
run = "1m"
"""


def write_files(folder: Path) -> None:
    """The files that examples name."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name in ("sim", "fit", "serve"):
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)
    texts = {
        "tasks.txt": "".join(f"echo {number}\n" for number in range(4)),
        "runs.csv": "x,seed\n1,2\n3,4\n",
        "a.log": "one\n",
        "array.sh": "#!/bin/sh\n#SBATCH --array=1-3\necho $SLURM_ARRAY_TASK_ID\n",
        "b.log": "two\n",
        "job.toml": JOB,
        "workflow.toml": CHAIN,
        "wf.toml": WORKFLOW,
        "raw.csv": "1\n2\n",
        "tuesday.csv": "1\n",
        "fit.py": "print('fitted')\n",
        "pools.toml": POOLS,
        "more.toml": '[[pool]]\nname = "annex"\nlimit = 1\n',
        "bag.toml": '[job.policies]\nJobRequirements = "Host.Memory >= 1024"\n',
        "host.json": json.dumps({"Name": "node7", "Memory": 4096}),
        "latencies.csv": "latency\n" + "".join(f"{10 + number % 37}\n" for number in range(200)),
        "trace.json": json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 1, 1, 0, 0, 1] * 200}),
        "prices.csv": PRICES,
        "bids.json": json.dumps([{"id": "b1", "bid_usd_per_h": 0.1, "resources": {"vcpu": 1, "ram_mb": 1000}}]),
        "a.toml": SCENARIO,
        "b.toml": SCENARIO,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    copies = {
        "offers.toml": "deadline/offers.toml", "wf.json": "workflows/diamond.json",
        "hosts.json": "placement/hosts.json", "request.json": "placement/large.json",
    }  # fmt: skip
    for name, source in copies.items():
        shutil.copy(ROOT / "examples" / source, folder / name)
    nextflow_run(folder / "results")
    pegasus_run(folder / "submit/user/pegasus/diamond/run0001")


class Scene:
    """The directory, its server and what runs beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_files(folder)
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        program = f'#!/bin/sh\nexec "{sys.executable}" -m windfall "$@"\n'
        (bin_folder / "windfall").write_text(program)
        (bin_folder / "make").write_text(PROGRAM)
        for file in bin_folder.iterdir():
            file.chmod(0o755)
        own = [name for name in os.environ if name.startswith("WINDFALL_") and name != "WINDFALL_DATA"]
        kept = {name: value for name, value in os.environ.items() if name not in own}
        self.env = {
            **kept, "PATH": f"{bin_folder}:{kept['PATH']}", "TMPDIR": str(folder), "HOME": str(folder),
            "SHELL": "/bin/bash", "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.spawn("server", "server --listen 127.0.0.1:0 --pools pools.toml")
        self.until(lambda: (folder / ".windfall" / "server.json").exists())
        self.url = json.loads((folder / ".windfall" / "server.json").read_text())["url"]
        self.token = (folder / ".windfall" / "token").read_text().strip()
        (folder / ".windfall-token").write_text(self.token)
        (folder / "worker.token").write_text(self.token)
        self.start_worker()

    def spawn(self, name: str, words: str) -> subprocess.Popen[bytes]:
        return self.start(f"exec windfall {words}", name)

    def start(self, line: str, name: str) -> subprocess.Popen[bytes]:
        """Type a line that stays."""
        with open(self.folder / f"{name}.out", "ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", line], cwd=self.folder, env=self.env, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.processes[name] = process
        return process

    def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        end_s = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end_s, "it does not come about"
            time.sleep(0.05)

    def client(self) -> Client:
        return Client(self.url, self.token)

    def start_worker(self) -> None:
        """The worker on `node7`, if it does not run."""
        running = self.processes.get("node7")
        if running is None or running.poll() is not None:
            self.type("windfall host unblock node7")
            self.spawn("node7", f"worker --server {self.url} --token-file worker.token --name node7 --slots 2 --dir w")
            self.until(lambda: any(host["host"] == "node7" and host["state"] == "live" for host in self.hosts()))

    def hosts(self) -> list[dict[str, object]]:
        with self.client() as client:
            return client.hosts()

    def type(self, line: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Type a line into a shell in the directory."""
        return subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=seconds,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def interrupted(self, line: str) -> tuple[int, str]:
        """Type a line that goes on for long; press Ctrl-C when it is at work. Exit code and standard error."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.env, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        end_s = time.monotonic() + WAITING_S
        while process.poll() is None and cpu_of_family(process.pid) < WORKED_S and time.monotonic() < end_s:
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, err

    def typed(self, example: str) -> str:
        """The line to type for an example: without its remark, and with what only the scene knows."""
        line = re.split(r"\s{3,}", example)[0]
        line = line.replace("python3 worker.pyz", "windfall worker").replace("http://10.0.0.1:7272", self.url)
        line = line.replace("http://head-node:7272", self.url).replace("URL", self.url)
        line = line.replace("--token-file FILE", "--token-file worker.token").replace("~/.windfall", ".windfall")
        line = line.replace("0.0.0.0:7272", "127.0.0.1:0 --state other")
        # The log of a server that runs cannot be replayed: of one that has ended.
        line = line.replace("--replay .windfall", "--replay replayed")
        if line.startswith("windfall pool "):
            # There is a site called lab, and there are no hosts to reach by ssh: processes of this host stand in.
            line = re.sub(r"kind=ssh 'hosts=[^']*'", "kind=local", re.sub(r"\blab\b", "shed", line))
            line = line.replace("pool add pools.toml", "pool add more.toml")  # those of the first are there already
        if "WINDFALL_SERVER" in example:
            line = f"env WINDFALL_SERVER={self.url} WINDFALL_TOKEN={self.token} {line}"
        if "1f0c2a77" in line:
            made = self.type("windfall token create --role read --json | jq -r .id").stdout.strip()
            line = line.replace("1f0c2a77", made)
        return line.strip()

    def close(self) -> None:
        for name in reversed(self.processes):
            process = self.processes[name]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._end_machines()

    def _end_machines(self) -> None:
        """End the emulated machines that examples have rented: they outlive their server, as those of a cloud do."""
        end_s = time.monotonic() + 20
        while (pids := [*running_in(self.folder / ".windfall" / "cloud")]) and time.monotonic() < end_s:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def running_in(folder: Path) -> dict[int, str]:
    """Processes whose command lines name a folder, by their numbers."""
    found: dict[int, str] = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found[int(file.parent.name)] = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return {pid: line for pid, line in found.items() if str(folder) in line}
