"""The examples of the how-to are run, and give what is printed there."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from windfall.cli import cli

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/howto/placement.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ windfall (.*?)\n(.*?)```", TEXT, re.DOTALL)


def unpadded(text):
    return [line.rstrip() for line in text.rstrip().splitlines()]


@pytest.mark.parametrize(("words", "printed"), EXAMPLES)
def test_an_example_of_the_howto_prints_what_it_says(words, printed, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, shlex.split(words), catch_exceptions=False)
    assert unpadded(result.output) == unpadded(printed)


def test_the_python_of_the_howto_runs():
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL).group(1)
    names = {}
    exec(code, names)
    assert names["decision"].victims == ("p1",)
    assert list(names["site"].instances) == ["n1"]
