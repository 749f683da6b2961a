"""PostgreSQL with a synchronous standby, as a site would run it: a primary dies, and its standby is promoted."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.server import postgres
from tests.support.server.cluster import free_port

_CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{home}'
port = {port}
wal_level = replica
max_wal_senders = 5
hot_standby = on
max_connections = 60
shared_buffers = 32MB
wal_receiver_status_interval = 1s
"""


class Replicated:
    """Two data directories on two ports; one of them is the primary."""

    def __init__(self) -> None:
        self._programs = postgres.require()
        self._home = Path(tempfile.mkdtemp(prefix="wf-pg-", dir="/tmp"))
        self._user = postgres._unprivileged()
        if self._user:
            os.chown(self._home, self._user.pw_uid, self._user.pw_gid)
        self._ports = [free_port(), free_port()]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.primary = 0
        data = self._data(0)
        self._run("initdb", "-D", data, "-U", "windfall", "-A", "trust", "-N", "--no-instructions")
        self._configure(0)
        self._start(0)
        self._sql(0, "CREATE DATABASE windfall")
        self.add_standby()

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://windfall@{places}/windfall?connect_timeout=3"

    def _data(self, index: int) -> Path:
        return self._home / f"data{index}"

    def _run(self, program: str, *words: object) -> None:
        postgres._run(self._user, self._home, self._programs / program, *words)

    def _configure(self, index: int) -> None:
        with open(self._data(index) / "postgresql.conf", "a") as file:
            file.write(_CONF.format(home=self._home, port=self._ports[index]))

    def _start(self, index: int) -> None:
        who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
        command = [str(self._programs / "postgres"), "-D", str(self._data(index))]
        with open(self._home / f"log{index}", "ab") as log:
            self._running[index] = subprocess.Popen(
                command, cwd=self._home, stdout=log, stderr=log, start_new_session=True, **who  # type: ignore[call-overload]
            )  # fmt: skip
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._ports[index])]
        end = time.monotonic() + 60
        while subprocess.run(ready, check=False).returncode:
            assert time.monotonic() < end, (self._home / f"log{index}").read_text()[-2000:]
            time.sleep(0.05)

    def _sql(self, index: int, *statements: str) -> list[tuple[object, ...]]:
        import psycopg

        url = f"postgresql://windfall@127.0.0.1:{self._ports[index]}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            found = [connection.execute(statement) for statement in statements]  # type: ignore[arg-type]
            return found[-1].fetchall() if found[-1].description else []

    def add_standby(self) -> None:
        """A new standby in the other place; from then on every commit waits for it."""
        other = 1 - self.primary
        shutil.rmtree(self._data(other), ignore_errors=True)
        with contextlib.suppress(Exception):
            self._sql(self.primary, "SELECT pg_drop_replication_slot('s')")
        self._run(
            "pg_basebackup", "-h", "127.0.0.1", "-p", self._ports[self.primary], "-U", "windfall", "-D",
            self._data(other), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-C", "-S", "s", "-d",
            "application_name=standby",
        )  # fmt: skip
        self._configure(other)
        # What the copy says of its own standby is the primary's.
        self._start(other)
        self._sql(
            self.primary, "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)'", "SELECT pg_reload_conf()"
        )
        end = time.monotonic() + 60
        while self._sql(self.primary, "SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            assert time.monotonic() < end, "the standby does not follow"
            time.sleep(0.05)

    def kill_primary(self) -> None:
        """The whole machine dies at once: its first process is stopped, so that it tells the others nothing."""
        process = self._running.pop(self.primary)
        os.kill(process.pid, signal.SIGSTOP)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in [*map(int, children), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def promote(self) -> None:
        """The standby becomes the primary, without a standby of its own."""
        self.primary = 1 - self.primary
        self._run("pg_ctl", "promote", "-D", self._data(self.primary), "-w")
        self._sql(self.primary, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    def revive(self) -> None:
        """The primary that died comes back as it was, and knows nothing of its successor."""
        self._start(1 - self.primary)

    def stop_other(self) -> None:
        process = self._running.pop(1 - self.primary)
        process.send_signal(signal.SIGQUIT)
        process.wait()

    def close(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGQUIT)
        for process in self._running.values():
            process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
