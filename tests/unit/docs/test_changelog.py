"""The CHANGELOG: every change once, every kind of change under one heading."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"


def test_no_change_is_told_twice():
    beginnings = Counter(line[:80] for line in CHANGELOG.read_text().splitlines() if line.strip())
    assert not [beginning for beginning, times in beginnings.items() if times > 1]


def test_changes_of_a_kind_stand_in_one_list():
    lines = CHANGELOG.read_text().splitlines()
    gaps = [
        number + 1
        for number, line in enumerate(lines[1:-1], 1)
        if not line and lines[number - 1].lstrip().startswith("- ") and lines[number + 1].lstrip().startswith("- ")
    ]
    assert not gaps
