"""Nothing that a peer names is obeyed by a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis.strategies import text

from windfall.cli.show.terminal import Terminal
from windfall.escaping import as_folder, for_spreadsheet, for_terminal, harmless, visible

TRICKS = [
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x1b[1A",
    "\x9b2J",
    "a\rb",
    "\x08\x08",
    "\u202eevil",
    "\x1bP+q\x1b\\",
    "\x1b[c",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_a_terminal_is_told_nothing_by_a_text(trick):
    shown = for_terminal(f"before {trick} after")
    assert not set(shown) & {"\x1b", "\x9b", "\x07", "\x08", "\r", "\u202e"}
    assert shown.startswith("before ") and shown.endswith(" after")


def test_colours_tabs_and_ends_of_lines_are_kept_on_a_terminal():
    said = "\x1b[31mred\x1b[0m\tand\r\nmore\n"
    assert for_terminal(said) == said


@given(text())
def test_a_visible_text_is_one_line_without_control_characters(said):
    shown = visible(said)
    assert "\n" not in shown and all(ord(character) >= 32 for character in shown)


def test_every_text_of_a_document_becomes_visible():
    document = {"a": ["x\x1b", {"b": "y\n"}], "n": 3, "none": None}
    assert harmless(document) == {"a": ["x␛", {"b": "y␊"}], "n": 3, "none": None}


@pytest.mark.parametrize("name", ["..", ".", "", "/", "../../x", "a/../..", "/etc", "x\0y"])
def test_the_folder_of_a_task_lies_below_the_folder_that_the_user_named(name, tmp_path):
    made = tmp_path / "out" / as_folder(name)
    made.mkdir(parents=True)
    assert made.resolve().parent == (tmp_path / "out").resolve()


def test_a_spreadsheet_computes_nothing_that_a_host_wrote():
    assert for_spreadsheet('=HYPERLINK("x")') == '\'=HYPERLINK("x")'
    assert for_spreadsheet("@SUM(A1)") == "'@SUM(A1)" and for_spreadsheet("-1+cmd") == "'-1+cmd"
    assert [for_spreadsheet(text) for text in ("-1.5\n", "+3", "plain", "")] == ["-1.5\n", "+3", "plain", ""]


def test_a_guarded_stream_cleans_texts_and_lets_rich_pass():
    under = io.StringIO()
    guarded = Terminal(under)
    print("name\x1b[2J", file=guarded)
    assert under.getvalue() == "name␛[2J\n" and guarded.rich_proxied_file is under
