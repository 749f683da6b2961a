"""A state that cannot be used: damaged, on a read-only mount, somebody else's. Two lines and an exit code, always."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands.typed import WINDFALL, Ended, Shell

COMMANDS = [
    ["status"],
    ["results", "last"],
    ["run", "--range", "1-2", "--", "echo", "{}"],
    ["run", "--resume", "last"],
    ["submit", "--range", "1-2", "--", "echo", "{}"],
    ["token", "list"],
    ["server", "--listen", "127.0.0.1:0"],
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A directory with a state in which a bag has run."""
    home = tmp_path_factory.mktemp("kept")
    ended = Shell(home).windfall("run", "--range", "1-3", "--", "echo", "{}")
    assert ended.code == 0, ended
    return home / ".windfall"


@pytest.fixture
def shell(tmp_path, kept):
    shutil.copytree(kept, tmp_path / ".windfall")
    made = Shell(tmp_path)
    yield made
    made.close()


def is_short(ended, *words):
    lines = ended.err.splitlines()
    return ended.code == 2 and len(lines) == 2 and not ended.out and all(word in ended.err for word in words)


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("damage", [garbage, emptied, Path.unlink], ids=["garbage", "emptied", "removed"])
def test_a_damaged_database_is_said_to_be_damaged(shell, command, damage):
    if damage is not garbage and command[0] not in ("status", "run"):
        pytest.skip("the same as for status")
    damage(shell.directory / ".windfall" / "windfall.db")
    ended = shell.windfall(*command)
    assert is_short(ended, "is damaged", "restore a backup"), ended


def test_a_database_without_its_lock_is_a_state(shell):
    (shell.directory / ".windfall" / "lock").unlink()
    assert "3 done" in shell.windfall("status", "last").out
    (shell.directory / ".windfall" / "lock").unlink()
    garbage(shell.directory / ".windfall" / "windfall.db")
    assert is_short(shell.windfall("status"), "is damaged")


@pytest.fixture
def read_only(shell):
    """The state on a mount that cannot be written. Only root may make one."""
    state = shell.directory / ".windfall"
    bound = subprocess.run(["mount", "--bind", state, state], capture_output=True, text=True, check=False)
    if bound.returncode:
        pytest.skip(f"a read-only mount needs the right to mount: {bound.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", state], check=True)
        yield shell
    finally:
        subprocess.run(["umount", state], check=True)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_state_on_a_read_only_mount_is_refused_in_two_lines(read_only, command):
    ended = read_only.windfall(*command)
    assert is_short(ended, "Read-only file system", "cp -r"), ended


def test_a_new_state_on_a_read_only_mount_is_refused_in_two_lines(read_only):
    ended = read_only.windfall("run", "--state", ".windfall/new", "--range", "1-2", "--", "echo", "{}")
    assert is_short(ended, "Read-only file system", "--state DIR"), ended


def without_rights_of_root() -> list[str]:
    """What to type in front of a command so that the modes of files hold for root, too."""
    if os.geteuid() != 0:
        return []
    prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("root may read everything, and setpriv cannot take that right away")
    return prefix


@pytest.mark.parametrize("hidden", [".windfall", ".windfall/windfall.db", ".windfall/lock", ".windfall/snapshots"])
@pytest.mark.parametrize("command", COMMANDS[:3], ids=" ".join)
def test_a_state_that_may_not_be_read_is_refused_in_two_lines(shell, command, hidden):
    path = shell.directory / hidden
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        ended = subprocess.run(
            [*without_rights_of_root(), *WINDFALL, *command],
            cwd=shell.directory, env=shell.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        path.chmod(mode)
    if hidden == ".windfall":
        assert (ended.returncode, len(ended.stderr.splitlines())) == (3, 2), ended
        assert "may not be read by you" in ended.stderr
    else:
        assert is_short(Ended(ended.returncode, ended.stdout, ended.stderr), "Permission denied", "cp -r"), ended


@pytest.fixture
def full(tmp_path, kept):
    """The state on a disk of its own, with a file that can be grown to fill it. Only root may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount: {mounted.stderr.strip()}")
    made = Shell(disk)
    made.env["TMPDIR"] = str(tmp_path)
    try:
        shutil.copytree(kept, disk / ".windfall")
        yield made
    finally:
        made.close()
        subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> None:
    try:
        with open(disk / "filler", "ab", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass
    except OSError:
        return


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_state_on_a_full_disk_is_refused_in_two_lines(full, command):
    fill(full.directory)
    assert is_short(full.windfall(*command), "no space left", "make space there")


def test_a_disk_that_fills_under_a_server_hangs_nobody_and_loses_nothing(full):
    server = full.start("server", "--listen", "127.0.0.1:0", "--json")
    assert server.stdout is not None and server.stdout.readline()
    assert full.windfall("submit", "--range", "1-5", "--", "true").code == 0
    fill(full.directory)
    refused = full.windfall("cancel", "last")
    assert refused.code and "no space left" in refused.err and len(refused.err.splitlines()) == 2, refused
    assert "running" in full.windfall("status").out
    stopped = full.finish(server, signal.SIGTERM)
    assert stopped.code == 0 and "Traceback" not in stopped.err, stopped
    (full.directory / "filler").unlink()
    assert full.windfall("status", "last", "--json").document["tasks"]["waiting"] == 5
