"""Completion in real shells: installed by one command in an empty home, then keys are pressed in a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHELLS = {"bash": ["bash", "-i"], "zsh": ["zsh", "-i"], "fish": ["fish", "-i"]}

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x07|\x0f")


class Terminal:
    """A shell in a terminal: what is typed, and what it has shown since."""

    def __init__(self, words: list[str], env: dict[str, str], folder: Path) -> None:
        self.pid, self.line = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe(words[0], words, env)
        fcntl.ioctl(self.line, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))  # no line goes on below
        self.shown = ""

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self.line, text.encode())

    def until(self, pattern: str, seconds: float = 60.0) -> None:
        end_s = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert time.monotonic() < end_s, f"{pattern} does not come: {self.shown!r}"
            if select.select([self.line], [], [], 0.1)[0]:
                self.shown = CONTROL.sub("", self.shown + os.read(self.line, 4096).decode(errors="replace"))

    def close(self) -> None:
        os.close(self.line)
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param}; sh tools/system.sh installs it")
    return request.param


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "windfall"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m windfall "$@"\n')
    program.chmod(0o755)
    (tmp_path / "home").mkdir()
    return {
        "HOME": str(tmp_path / "home"), "PATH": f"{tmp_path / 'bin'}:/usr/local/bin:/usr/bin:/bin", "TERM": "dumb",
        "PYTHONPATH": str(ROOT / "src"), "LANG": "C.UTF-8",
    }  # fmt: skip


@contextlib.contextmanager
def terminal(shell: str, env: dict[str, str], folder: Path) -> Iterator[Terminal]:
    made = Terminal(SHELLS[shell], env, folder)
    try:
        while "begun" not in made.shown:  # what is typed before the shell reads may be lost
            made.type("echo be''gun\n")
            with contextlib.suppress(AssertionError):
                made.until("begun", 5.0)
        yield made
    finally:
        made.close()


def install(shell: str, env: dict[str, str]) -> str:
    ended = subprocess.run(
        ["windfall", "completion", "--install"], env=env | {"SHELL": f"/bin/{shell}"}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_one_command_lets_a_shell_complete_commands_and_options(shell, env, tmp_path):
    assert install(shell, env).startswith("wrote ") and install(shell, env).startswith("nothing to do")
    with terminal(shell, env, tmp_path) as typed:
        for begun, ended in (
            ("windfall statu", "windfall status "),
            ("windfall run --dead", "windfall run --deadline "),
        ):
            typed.type(f"{begun}\t")
            typed.until(ended)
            typed.type("\x15")  # Ctrl-U: an empty line again


def test_what_a_settings_file_says_is_kept(env, tmp_path):
    settings = tmp_path / "home" / ".bashrc"
    settings.write_text("alias w=windfall")  # without an end of line
    install("bash", env)
    install("bash", env)
    assert settings.read_text() == 'alias w=windfall\neval "$(windfall completion bash)"\n'


def test_a_shell_that_is_not_known_is_asked_for(env):
    ended = subprocess.run(
        ["windfall", "completion"], env=env | {"SHELL": "/bin/tcsh"}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) <= 2 and "tcsh" in ended.stderr
