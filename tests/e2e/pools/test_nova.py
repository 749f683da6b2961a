"""Preemptible servers in OpenStack Nova: the tests of integrations/nova, run with the real one in its environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTEGRATION = ROOT / "integrations" / "nova"
FILES = sorted(file.name for file in (INTEGRATION / "tests").glob("test_*.py"))


def python_of_nova() -> Path:
    """The Python of the environment with Nova; the test is skipped where there is none, also in CI."""
    if os.environ.get("WINDFALL_TEST_NOVA") != "1":
        pytest.skip("tests against a real OpenStack Nova run in `make test-nova`")
    asked = subprocess.run(["sh", str(ROOT / "tools" / "nova.sh"), "--check"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(asked.stderr.strip())
    return Path(asked.stdout.strip()) / "venv" / "bin" / "python"


@pytest.mark.nova
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_integration_passes(tmp_path, name):
    python = python_of_nova()
    command = [str(python), "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-c", "/dev/null"]
    paths = f"{ROOT / 'src'}{os.pathsep}{INTEGRATION}"
    done = subprocess.run(
        [*command, "--rootdir", str(INTEGRATION), "--show-capture", "no", str(INTEGRATION / "tests" / name)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
