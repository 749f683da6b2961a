"""Fail-overs of the database below a running server: `python -m tests.e2e.server.failovers NUMBER` (`make failovers`).

PostgreSQL with a synchronous standby, a server that names both, a worker, jobs all the time. Each round the primary is
killed as a whole, its standby is promoted, and the old primary comes back as it was, first or second in the URL, before
it becomes the next standby. At the end everything that was acknowledged is recounted from the log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.server.takeovers import TASKS, Load
from tests.support.server.cluster import accepted_in, free_port
from tests.support.server.pair import WINDFALL, eventually
from tests.support.server.replicated import Replicated
from windfall.client import Client
from windfall.client.transport import Transport
from windfall.errors import WindfallError
from windfall.store.location import locate
from windfall.store.view import open_view
from windfall.upkeep.checking import check


def ready(url: str) -> bool:
    transport = Transport(url, timeout_s=2.0)
    try:
        transport.request("GET", "/readyz")
    except WindfallError:
        return False
    finally:
        transport.close()
    return True


class Site:
    """A server on a replicated database, and a worker."""

    def __init__(self, directory: Path, database: Replicated) -> None:
        self._directory, self._database = directory, database
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start_server()
        self.token = next(directory.glob("windfall/*/token")).read_text().strip()
        words = ["worker", "--server", self.url, "--slots", "2", "--name", "w", "--dir", str(directory / "w")]
        self._start("worker", words, WINDFALL_TOKEN=self.token)

    def start_server(self) -> None:
        words = ["server", "--listen", f"127.0.0.1:{self._port}", "--state", self._database.url]
        self._start("server", words, XDG_STATE_HOME=str(self._directory))
        eventually(lambda: ready(self.url), 120, "the server is ready")

    def _start(self, name: str, words: list[str], **env: str) -> None:
        with open(self._directory / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [*WINDFALL, *words], stdout=log, stderr=log, env={**os.environ, **env}
            )

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()

    def close(self) -> None:
        for name in [*self._processes]:
            self.stop(name)


def campaign(directory: Path, number: int) -> dict[str, Any]:
    """Run fail-overs and recount. AssertionError if anything acknowledged is lost or counted twice."""
    database = Replicated()
    site = None
    try:
        site = Site(directory, database)
        client = Client(site.url, site.token, patience_s=180.0)
        load = Load(client)
        load.start()
        eventually(lambda: load.jobs, 120, what="a first job is taken")
        gaps = []
        for index in range(number):
            time.sleep(0.5)
            began = time.monotonic()
            database.kill_primary()
            database.promote()
            gaps.append(load.gap_s(began))
            database.revive()
            if index == number - 1:
                # A server that starts now finds both of them, and has to choose the right one.
                site.stop("server")
                site.start_server()
            database.stop_other()
            if index < number - 1:
                database.add_standby()
            if number > 5:
                print(json.dumps({"round": index + 1, "without_service_s": round(gaps[-1], 2)}), flush=True)
        load.finish()
        for job in load.jobs:
            assert client.job(job).wait(120)["state"] == "done"
            assert [task.stdout for task in client.job(job).results()] == [f"{n}\n" for n in range(TASKS)]
        client.close()
        site.close()
        accepted = accepted_in(database.url, take_over=True)
        view = open_view(locate(database.url))
        try:
            problems = check(view).problems
        finally:
            view.close()
    finally:
        if site is not None:
            site.close()
        database.close()
    tasks = [(job, task) for job in load.jobs for task in range(TASKS)]
    report = {
        "failovers": number, "jobs_acknowledged": len(load.jobs), "results": len(tasks),
        "results_lost": sum(accepted[task] == 0 for task in tasks),
        "results_twice": sum(count > 1 for count in accepted.values()), "log_problems": problems,
        "without_service_s": {"median": round(sorted(gaps)[len(gaps) // 2], 2), "longest": round(max(gaps), 2)},
    }  # fmt: skip
    assert report["results_lost"] == report["results_twice"] == 0 and not problems, report
    return report


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="wf-") as folder:
        print(json.dumps(campaign(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 20)))
