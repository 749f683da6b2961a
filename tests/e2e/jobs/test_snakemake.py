"""The plug-in of Snakemake: its own tests, Snakemake's suite among them, run with the real Snakemake.

Snakemake is large, and has an environment of its own (tools/snakemake.sh), which sees this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "integrations" / "snakemake-executor-plugin-windfall" / "tests"


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of the environment with Snakemake."""
    base = Path(sys.prefix)
    made = base.with_name(f"{base.name}-snakemake")
    subprocess.run(["sh", str(ROOT / "tools" / "snakemake.sh"), str(base), str(made)], check=True, timeout=550)
    return made / "bin" / "python"


# Each job without shared files installs the plug-in of its storage: that takes minutes.
WITH_S3 = pytest.mark.skipif(os.environ.get("WINDFALL_TEST_SNAKEMAKE_S3") != "1", reason="run by `make test-snakemake`")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["test_suite.py", "test_workflows.py", "test_deadlines.py", pytest.param("test_s3.py", marks=WITH_S3)]
)
def test_the_plug_in_passes(python, tmp_path, name):
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run([*command, str(TESTS / name)], cwd=tmp_path, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
