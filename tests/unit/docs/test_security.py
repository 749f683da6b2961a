"""Each statement of the pages on security and on faults names the tests that show it: they have to be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = {name: (ROOT / f"docs/explanation/{name}.md").read_text() for name in ("security", "faults")}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_the_page_names_is_there(page):
    names = set(re.findall(r"`(test_\w+)`", PAGES[page]))
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    assert len(names) > 9 and names - found == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_tests_that_the_page_names_is_there(page):
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGES[page]))
    assert files and [name for name in files if not (ROOT / name).is_file()] == []
