"""`windfall lab opie --nova`: the page, and what is said where Nova is not installed."""

from __future__ import annotations

import pytest

from windfall.errors import BadInput
from windfall.lab.opie.command import command
from windfall.lab.opie.nova import python_of_nova, report

MS = {"mean": 12.0, "deviation": 1.0, "median": 11.4, "best": 10.0}


def test_the_page_has_tables_and_latencies():
    table = {
        "table": 3,
        "paper": {"host": "b", "victims": ["x"]},
        "nova": {"host": "b", "victims": ["x"]},
        "same": True,
    }
    other = {**table, "table": 4, "nova": {"host": "a", "victims": ["y", "z"]}, "same": False}
    point = {"scheduler": "windfall", "scenario": "saturated, normal", "hosts": 1000, "api_ms": MS, "call_ms": MS}
    page = report({"tables": [table, other], "figure_2": [point]})
    assert "| 3 | b: x | b: x |" in page
    assert "| 4 | b: x | a: y, z (differs) |" in page
    assert "| 1,000 | saturated, normal |  |  |  |  | 11 (10) | 11 (10) |" in page


def test_where_nova_is_missing_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("WINDFALL_NOVA", str(tmp_path))
    with pytest.raises(BadInput, match="OpenStack Nova is not in") as caught:
        python_of_nova()
    assert "tools/nova.sh" in caught.value.hint


def test_the_command_takes_the_option_and_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("WINDFALL_NOVA", str(tmp_path))
    with pytest.raises(BadInput, match="OpenStack Nova is not in"):
        command.main(["--nova", "--out", str(tmp_path / "lab")], standalone_mode=False)
    assert not (tmp_path / "lab").exists()
