"""What the service manager hears of a server, and what the processes of a server hear of the manager: nothing."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from windfall.server.systemd import ServiceManager


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A socket like that of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def test_signs_of_life_are_given_only_while_the_server_is_well(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    told = ServiceManager()
    assert told.watchdog_s == 0.003 and "NOTIFY_SOCKET" not in os.environ
    ill = ["", "a commit has been under way for 40 s", ""]

    async def watch() -> None:
        await asyncio.wait_for(told.watch(lambda: ill.pop(0)), 60)

    with pytest.raises(IndexError):
        asyncio.run(watch())
    heard = [manager.recv(1000).decode().split("\n") for _ in range(3)]
    assert ["WATCHDOG=1" in lines for lines in heard] == [True, False, True]
    assert "STATUS=not well: a commit has been under way for 40 s" in heard[1]


def test_nobody_is_told_anything_where_nobody_asks(monkeypatch):
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC"):
        monkeypatch.delenv(name, raising=False)
    told = ServiceManager()
    told.tell("READY=1")
    assert told.watchdog_s == 0.0


def test_the_watchdog_of_another_process_is_not_ours(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert ServiceManager().watchdog_s == 0.0
