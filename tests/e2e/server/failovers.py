"""Fail-overs of the database below a running server: `python -m tests.e2e.server.failovers NUMBER --seeds N`
(`make failovers`).

PostgreSQL with a synchronous standby, a server that names both, a worker, jobs all the time. Each round the primary is
killed as a whole, its standby is promoted, and the old primary comes back as it was, first or second in the URL, before
it becomes the next standby. At the end everything that was acknowledged is recounted from the log.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.server.takeovers import Load, recounted
from tests.support.server.campaigns import Row, run_seeds
from tests.support.server.cluster import accepted_in, free_port
from tests.support.server.pair import WINDFALL, eventually
from tests.support.server.replicated import Replicated
from windfall.client import Client
from windfall.client.transport import Transport
from windfall.errors import WindfallError
from windfall.store.location import locate


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


def campaign(directory: Path, number: int, seed: int) -> Row:
    """Run fail-overs and recount. AssertionError if anything acknowledged is lost or counted twice."""
    chance = random.Random(seed)
    database = Replicated()
    site = None
    gaps = []
    try:
        site = Site(directory, database)
        client = Client(site.url, site.token, patience_s=180.0)
        load = Load(client)
        load.start()
        eventually(lambda: load.jobs, 120, what="a first job is taken")
        for index in range(number):
            time.sleep(chance.uniform(0.0, 1.0))
            began = time.monotonic()
            database.kill_primary()
            database.promote()
            gaps.append(round(load.gap_s(began), 2))
            database.revive()
            if index == number - 1:
                # A server that starts now finds both of them, and has to choose the right one.
                site.stop("server")
                site.start_server()
            database.stop_other()
            if index < number - 1:
                database.add_standby()
        load.finish(client)
        client.close()
        site.close()
        counts = recounted(load, accepted_in(database.url, take_over=True), locate(database.url))
    finally:
        if site is not None:
            site.close()
        database.close()
    return Row("failovers", seed, seed, counts | {"primary killed": number}, {"primary killed": gaps})


if __name__ == "__main__":
    sys.exit(run_seeds("Fail-overs of the database below a server.", 5, campaign))
