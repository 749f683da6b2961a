"""Pictures as files: the kinds that there are, from one drawing."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

from windfall.errors import BadInput
from windfall.figures.saved import check_picture, in_light, save
from windfall.figures.sheet import Line, Mark, Panel, sheet
from windfall.figures.standalone import standalone
from windfall.figures.timeline import Axis, Bar, rows_chart

DRAWN = sheet([Panel(lines=[Line(x=[0, 1], y=[2, 3], name="a < b")], upright=[Mark(0.5, "here")])], "a line")


@pytest.mark.parametrize(("ending", "begin"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_one_drawing_is_saved_as_each_kind_of_file(tmp_path, ending, begin):
    path = save(DRAWN, tmp_path / "new" / f"p.{ending}")
    assert path.read_bytes().startswith(begin) and path.stat().st_size > 1000


def test_no_colour_is_left_to_a_browser():
    assert "var(" in DRAWN and "@media" in DRAWN
    assert "var(" not in in_light(DRAWN) and "@media" not in in_light(DRAWN)
    ElementTree.fromstring(in_light(DRAWN))


@pytest.mark.parametrize("name", ["p.xyz", "p", "p.jpg"])
def test_another_kind_of_file_is_refused_with_the_kinds_that_there_are(name):
    with pytest.raises(BadInput) as caught:
        check_picture(name)
    assert ".svg, .png, .pdf" in caught.value.hint


def test_a_host_without_cairo_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(BadInput, match="Cairo") as caught:
        save(DRAWN, tmp_path / "p.png")
    assert "libcairo2" in caught.value.hint
    assert save(DRAWN, tmp_path / "p.svg").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        save(DRAWN, tmp_path / "file" / "p.svg")


def test_a_picture_of_a_page_stands_alone_with_its_key():
    html = '<p><span><i class="key done"></i>do &lt;ne</span> </p>' + rows_chart(
        [("host & co", [Bar(0, 5, "done", "<b>")])], Axis(10.0, 9.0), lambda value: f"{value:g} s"
    )
    drawn = standalone("a <title>", [{"name": "Who", "html": html, "says": "One & all."}])
    texts = [node.text for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("}text")]
    assert {"a <title>", "Who", "do <ne", "host & co", "deadline"} <= set(texts)
