"""Manual pages: one for every command, which groff sets without a warning."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, TOOLS / "man.py", folder], check=True, capture_output=True, timeout=120)
    return sorted(folder.iterdir())


def test_every_command_has_a_page_with_name_synopsis_and_examples(pages):
    from windfall.cli import COMMANDS

    names = {page.stem for page in pages}
    assert {f"windfall-{name}" for name in COMMANDS} <= names and {"windfall", "windfall-host-list"} <= names
    for page in pages:
        text = page.read_text()
        assert text.startswith(".TH ") and ".SH NAME" in text and ".SH SYNOPSIS" in text, page.name
    assert "Examples:" in next(page for page in pages if page.stem == "windfall-run").read_text()


def test_groff_sets_every_page_without_a_warning(pages):
    if shutil.which("groff") is None:
        pytest.skip("groff is missing: apt-get install groff-base")
    said = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-z", *pages], capture_output=True, text=True, timeout=60, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
