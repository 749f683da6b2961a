"""Workers that a pool has started go on when a standby takes over, and its pool keeper knows them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess

import pytest

from tests.support.server import postgres
from tests.support.server.cluster import WINDFALL, accepted_in, free_port
from tests.support.server.pair import eventually
from windfall.client import Client
from windfall.client.transport import Transport
from windfall.errors import WindfallError

pytestmark = pytest.mark.slow
TASKS = 40
POOLS = '[[pool]]\nname = "here"\nlimit = 2\nslots = 2\nidle_exit = "30s"\n'


def answers(url, path):
    transport = Transport(url, timeout_s=2.0)
    with contextlib.closing(transport), contextlib.suppress(WindfallError):
        transport.request("GET", path)
        return True
    return False


def end_workers(home):
    for path in home.glob("windfall/*/pools/here/*/worker.json"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_of_a_pool_go_on_with_the_server_that_takes_over(tmp_path, how):
    postgres.require()
    (tmp_path / "pools.toml").write_text(POOLS)
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with contextlib.ExitStack() as stack:
        database = postgres.new_database(stack.enter_context(postgres.server()), "pooled")
        processes = []

        def start(number, *more):
            command = [*WINDFALL, "server", "--listen", urls[number].removeprefix("http://"), "--state", database]
            command += ["--pools", str(tmp_path / "pools.toml"), "--advertise", ",".join(urls), *more]
            env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
            with open(tmp_path / f"server{number}.log", "wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=env))

        stack.callback(end_workers, tmp_path / "home")
        stack.callback(lambda: [(process.kill(), process.wait()) for process in processes])
        start(0)
        eventually(lambda: answers(urls[0], "/readyz"), what="the first server is ready")
        start(1, "--standby", "--takeover-after", "3s")
        eventually(lambda: answers(urls[1], "/healthz"), what="the standby answers")
        token = next((tmp_path / "home").glob("windfall/*/token")).read_text().strip()
        client = stack.enter_context(contextlib.closing(Client(",".join(urls), token, patience_s=120.0)))
        job = client.submit(["sh", "-c", "sleep 0.4; echo $1", "sh", "{}"], list(range(TASKS)))
        eventually(lambda: job.status()["tasks"]["done"] >= 8, what="workers of the pool work")
        before = {host["host"] for host in client.hosts() if host["pool"] == "here"}
        processes[0].send_signal(how)
        eventually(lambda: answers(urls[1], "/readyz"), what="the standby takes over")
        ended = list(job.results(timeout=120))
        assert sorted(int(task.stdout) for task in ended) == list(range(TASKS))
        assert len(before) == 2 and {task.host for task in ended} == before, "other workers were started"
        # The keeper of the new server lists them.
        transport = Transport(urls[1], token)
        (pool,) = [pool for pool in transport.get("/v1/pools")["pools"] if pool["pool"] == "here"]
        transport.close()
        assert pool["running"] == 2, pool
        assert accepted_in(database, take_over=True) == {(job.id, task): 1 for task in range(TASKS)}
