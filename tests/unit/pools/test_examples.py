"""The examples and pages of pools that people copy: they can be read, and they say the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.pools.command import CommandSettings
from windfall.pools.config import read_pools
from windfall.pools.kinds import kind_names
from windfall.pools.ssh.pool import SshSettings

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "pools"


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.toml")), ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_every_example_can_be_read(file):
    assert read_pools(file)


@pytest.mark.parametrize(
    ("page", "example", "settings"),
    [("ssh", "ssh.toml", SshSettings), ("command", "processes/pools.toml", CommandSettings)],
)
def test_the_page_shows_the_example_and_names_every_field(tmp_path, page, example, settings):
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "pools.toml").write_text(block)
    (written,), (copied,) = read_pools(tmp_path / "pools.toml"), read_pools(EXAMPLES / example)
    assert (written.rules, written.settings) == (copied.rules, copied.settings)
    assert [name for name in settings.__struct_fields__ if f"`{name}`" not in text] == []


def test_the_example_of_htcondor_speaks_with_its_commands_as_they_answer(tmp_path):
    """Programs of the same names print what HTCondor prints."""
    answers = {
        "condor_submit": "cat > submitted; echo '17.0 - 17.0'",
        "condor_q": """echo '[{"ClusterId":17,"ProcId":0,"JobStatus":5,"WindfallHost":"c-1-1","WindfallOwner":"me",'
                       echo '"HoldReason":"no room"}]'""",
        "condor_rm": 'echo "$@" > removed',
    }
    for name, script in answers.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    def call(what: str) -> object:
        asked = {"host": "c-1-1", "owner": "me", "pool": "c", "folder": "/f", "slots": 2}
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WINDFALL_ID": "17.0"}
        command = [sys.executable, str(EXAMPLES / "htcondor" / "pool.py"), what]
        ran = subprocess.run(command, input=json.dumps(asked), text=True, capture_output=True, env=env, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    assert call("start") == {"id": "17.0"}
    assert '+WindfallHost = "c-1-1"' in (tmp_path / "submitted").read_text()
    assert call("list") == [{"id": "17.0", "state": "pending", "host": "c-1-1", "owner": "me", "about": "no room"}]
    assert call("stop") == {} and (tmp_path / "removed").read_text().split() == ["17.0"]


def test_the_page_on_machines_that_vanish_has_a_row_for_every_kind():
    page = (ROOT / "docs" / "explanation" / "pools.md").read_text()
    firsts = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [name for name in kind_names() if f"`{name}`" not in firsts] == []
