"""Each statement of the page on security names the tests that show it: they have to be there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/explanation/security.md").read_text()


def test_every_test_that_the_page_names_is_there():
    names = set(re.findall(r"`(test_\w+)`", PAGE))
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    assert len(names) > 15 and names - found == set()


def test_every_file_of_tests_that_the_page_names_is_there():
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert files and [name for name in files if not (ROOT / name).is_file()] == []
