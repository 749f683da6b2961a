"""A new user who types a page along: in an empty folder, with a home directory of their own. Touches processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.commands.pages import blocks, commands, says
from tests.support.server.cluster import free_port
from windfall.client.local.server import running_server

ROOT = Path(__file__).parents[3]


class Reader:
    """`instead`: what the page names and only its reader can know (a host, an address), and what it is here."""

    def __init__(self, folder: Path, page: str, instead: dict[str, str] | None = None) -> None:
        self.folder, self.page = folder, ROOT / "docs" / "howto" / f"{page}.md"
        self.port = free_port()
        self.instead = {"0.0.0.0:7272": f"127.0.0.1:{self.port}", "SERVER:7272": f"127.0.0.1:{self.port}"}
        self.instead |= instead or {}
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
        self.env |= {"HOME": str(folder), "TERM": "dumb", "XDG_RUNTIME_DIR": str(folder)}
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}"
        self._left: list[subprocess.Popen[bytes]] = []

    def here(self, text: str) -> str:
        for told, own in self.instead.items():
            text = text.replace(told, own)
        return text

    def file(self, name: str, place: int = 0, more: str = "") -> None:
        """Write the toml block of this place into a file, and `more` behind it."""
        (self.folder / name).write_text(self.here(blocks(self.page, "toml")[place]) + more)

    def block(self, place: int, language: str = "console") -> list[tuple[str, list[str]]]:
        """The commands of a block, each with what the page says that it prints."""
        text = self.here(blocks(self.page, language)[place])
        return commands(text) if language == "console" else [(line, []) for line in text.splitlines() if line]

    def types(self, command: str, exit_code: int = 0) -> str:
        """What it prints. `windfall server`, and whatever ends with `&`, goes on until the end."""
        if command.startswith("windfall server") or command.endswith("&"):
            return self._starts(command.removesuffix("&"))
        ended = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=180,
        )  # fmt: skip
        assert ended.returncode == exit_code, f"$ {command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def follows(self, command: str, expected: list[str], exit_code: int = 0) -> str:
        """Type a command of the page; it must print what the page says."""
        got = self.types(command, exit_code)
        assert says(expected, got), f"{self.page.name}: $ {command}\n{got}\ninstead of\n" + "\n".join(expected)
        return got

    def _starts(self, command: str) -> str:
        with open(self.folder / "background.log", "ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.env, stdout=log, stderr=log
            )
        self._left.append(process)
        end = time.monotonic() + 60.0
        while running_server(self.folder / ".windfall") is None:
            assert process.poll() is None, (self.folder / "background.log").read_text()
            assert time.monotonic() < end, f"no server came: {command}"
            time.sleep(0.05)
        return ""

    def until(self, command: str, word: str) -> str:
        """Type a command again and again, until its answer has this word."""
        end = time.monotonic() + 60.0
        while word not in (got := self.types(command)):
            assert time.monotonic() < end, f"$ {command}\n{got}"
            time.sleep(0.2)
        return got

    def leaves(self) -> None:
        """Ctrl-C to what still runs, the newest first."""
        for process in reversed(self._left):
            process.terminate()
            process.wait(60)
        self._left = []
