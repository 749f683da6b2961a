"""The how-to for volunteers, typed as it stands in an empty home, with Debian's real client."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pools import boinc
from tests.support.pools.boinc import BoincClient
from tests.support.server.cluster import free_port

pytestmark = pytest.mark.slow
HOWTO = Path(__file__).parents[3] / "docs" / "howto"
FIRST, KEY_ELSEWHERE = "From nothing to a first volunteer", "Keep the key off the server"
SHOWN_KEY = "5c1b2f0e8d5a4f6f9d3e2b7a1c0d9e8f"


def commands_of(title: str, page: str = "boinc.md") -> list[str]:
    """What the reader types below a heading, up to the next one of its rank."""
    rank, _, rest = re.split(rf"^(##+) ({title})$", (HOWTO / page).read_text(), flags=re.M)[1:]
    text = re.split(rf"^#{{2,{len(rank)}}} ", rest, flags=re.M)[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


class Reader:
    """Somebody with an empty home who types what the page says, with a URL, a key and a client of their own."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.home.mkdir()
        tools = directory / "bin"
        tools.mkdir()
        (tools / "windfall").write_text(f'#!/bin/sh\nexec {sys.executable} -m windfall "$@"\n')
        (tools / "windfall").chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
        self._env = {**own, "HOME": str(self.home), "PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(directory)}
        self.address = f"127.0.0.1:{free_port()}"
        self.key = SHOWN_KEY
        self.client = BoincClient(directory / "client", f"http://{self.address}/grid/", "")
        (self.client.folder / "global_prefs_override.xml").unlink()
        self._server: subprocess.Popen[bytes] | None = None

    def type(self, command: str) -> str:
        for old, new in (
            ("volunteers.example.org:7272", self.address), ("0.0.0.0:7272", self.address), (SHOWN_KEY, self.key),
            ("rsync -a --mkpath for-server/ server:", "mkdir -p .windfall/pools/boinc && cp -r for-server/. "),
        ):  # fmt: skip
            command = command.replace(old, new)
        if command.startswith("sudo apt-get install"):
            assert all(shutil.which(name) for name in ("boinc", "boinccmd"))
            return ""
        if command.startswith("boinccmd "):
            return self.client.tell(*command.split()[1:])
        if command.startswith("windfall server"):
            with open(self.home.parent / "server.log", "wb") as log:
                self._server = subprocess.Popen(command.split(), cwd=self.home, env=self._env, stdout=log, stderr=log)
            self._until(lambda: (self.home / ".windfall" / "server.json").exists())
            return ""
        ended = subprocess.run(
            ["sh", "-c", command], cwd=self.home, env=self._env, capture_output=True, text=True, timeout=240
        )
        assert ended.returncode == 0, (command, ended.stdout, ended.stderr, self.client.log()[-3000:])
        if " add-account " in command:
            self.key = ended.stdout.strip()
        return ended.stdout

    def start_client(self) -> None:
        """As the package does when it is installed."""
        self.client.start()
        self._until(lambda: (self.client.folder / "gui_rpc_auth.cfg").exists())

    @staticmethod
    def _until(condition) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)

    def close(self) -> None:
        if self.client.process is not None:
            self.client.close()
        if self._server is not None:
            self._server.terminate()
            self._server.wait(30)


@pytest.fixture
def reader(tmp_path) -> Iterator[Reader]:
    boinc.require()
    made = Reader(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_first_volunteer_works_for_a_server_that_never_had_the_signing_key(reader):
    """First the two commands that sign elsewhere, then the page from its top; in the end the key is changed."""
    sign, copy, rotate, copy_again, reload = commands_of(KEY_ELSEWHERE)
    reader.type(sign)
    reader.type(copy)
    commands = commands_of(FIRST)
    assert len(commands) >= 8
    reader.start_client()
    for command in commands:
        reader.type(command)
    squares = sorted((reader.home / "squares").rglob("out-*.txt"))
    assert [path.read_text() for path in squares] == [f"{n} squared is {n * n}\n" for n in range(1, 7)]
    assert "the signing key is not on this server" in reader.type("windfall boinc show")
    state = reader.home / ".windfall"
    assert not [path for path in state.rglob("*") if path.name.startswith("code_sign.key")]
    for command in (rotate, copy_again, reload):
        reader.type(command)
    reader.type("windfall submit --quorum 1 --range 1-1 -- echo with another key {}")
    reader.type(f"boinccmd --project http://{reader.address}/grid/ update")
    reader.type("windfall wait last")
    assert "with another key" in reader.type("windfall results last")
    assert "windfall_101_x86_64-pc-linux-gnu" in reader.client.log()


def test_a_volunteer_makes_an_account_with_an_invitation_and_finds_its_key_again(reader):
    """As the page for volunteers says; the hash is typed together with the address that needs it."""
    serve, enable, *_ = commands_of(FIRST)
    reader.type(serve)
    reader.type(enable)
    code = reader.type("windfall boinc invite").strip()
    hashes, create, look_up = commands_of("To begin", "volunteers.md")[-3:]
    url = f"http://{reader.address}/grid/"
    made = reader.type(f"{hashes}; {create.replace('URL', url).replace('CODE', code)}")
    key = re.findall(r"<authenticator>([0-9a-f]{32})</authenticator>", made)
    reader.start_client()
    assert [f"account key: {each}" for each in key] == re.findall(
        "account key: .*", reader.type(look_up.replace("URL", url))
    )
    assert len(key) == 1
    wrong = look_up.replace("URL", url).replace("PASSWORD", "PASSPORT")
    assert "bad password" in reader.type(wrong)
