"""Preemptible servers in OpenStack Nova: the tests of integrations/nova, run with the real one in its environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.openstack import environment_of_nova, python_of_nova

ROOT = Path(__file__).parents[3]
INTEGRATION = ROOT / "integrations" / "nova"
FILES = sorted(file.name for file in (INTEGRATION / "tests").glob("test_*.py"))


@pytest.mark.nova
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_integration_passes(tmp_path, name):
    command = [str(python_of_nova()), "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", str(INTEGRATION), "--show-capture", "no", str(INTEGRATION / "tests" / name)],
        cwd=tmp_path,
        env=environment_of_nova(),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
