"""The plug-in of Snakemake: its own tests, Snakemake's suite among them, run with the real Snakemake.

Snakemake is large, and has an environment of its own (tools/snakemake.sh), which sees this one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.pages import blocks, commands

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "snakemake.md"
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


SNAKEFILE = """
rule all:
    input: "sum.txt"

rule part:
    output: "part.txt"
    shell: "echo 7 > {output}"

rule sum:
    input: "part.txt"
    output: "sum.txt"
    shell: "cat {input} {input} > {output}"
"""


@pytest.mark.slow
def test_the_lines_of_the_page_install_the_plug_in_and_run_a_workflow(python, tmp_path):
    (install, _), (run, _) = commands(blocks(PAGE, "console")[0])
    # A copy: pip leaves what it builds beside the sources. The environment has everything else already.
    for name in ("src", "integrations/snakemake-executor-plugin-windfall"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "Snakefile").write_text(SNAKEFILE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    path = f"{python.parent}{os.pathsep}{kept['PATH']}"
    env = {**kept, "PATH": path, "PYTHONPATH": str(tmp_path / "installed")}

    def typed(line: str, folder: Path) -> str:
        done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    typed(f"{install} --quiet --no-deps --target {tmp_path / 'installed'}", tmp_path)
    where = typed("python -c 'import snakemake_executor_plugin_windfall as p, windfall as w; print(p, w)'", tmp_path)
    assert where.count(str(tmp_path / "installed")) == 2, where
    typed(run, tmp_path / "work")
    assert (tmp_path / "work" / "sum.txt").read_text() == "7\n7\n"
    assert "snakemake-part" in typed("python -m windfall status", tmp_path / "work")
    options = set(re.findall(r"--windfall-[a-z-]+", typed("snakemake --help", tmp_path)))
    told = set(re.findall(r"--windfall-[a-z-]+", PAGE.read_text()))
    assert told == options - {"--windfall-token"}, "a token is better in the environment, as the page says"
