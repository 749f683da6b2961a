"""Panels of lines and bars: everything that is given is drawn, within its panel, as one well-formed SVG."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.errors import BadInput
from windfall.figures.sheet import Bars, Line, Mark, Panel, nice, sheet, write

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e6, 1e6) | st.just(math.nan)


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans(), st.booleans())
def test_lines_stay_well_formed_whatever_the_values(values, log, steps):
    places = [float(place + 1) for place in range(len(values))]
    line = Line(x=places, y=values, name="a <b> & c", steps=steps, dots=True)
    drawn = sheet([Panel(lines=[line], y_log=log, across=[Mark(1.0, "one")])], "values & more")
    tree = ElementTree.fromstring(drawn)
    shown = [value for value in values if math.isfinite(value)]
    assert len(tree.findall(f".//{SVG}circle")) == len(shown)
    assert "nan" not in drawn and "a &lt;b&gt; &amp; c" in drawn
    assert drawn.count("http://www.w3.org") == 1 and "https://" not in drawn  # nothing comes from elsewhere


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e9))
def test_ticks_are_few_and_inside(low, length):
    high = low + length
    ticks = nice(low, high, 5)
    assert len(ticks) <= 7 and all(low - 1e-6 * length <= tick <= high + 1e-6 * length for tick in ticks)


def test_bars_of_a_group_stand_beside_each_other_and_the_key_names_each_once():
    groups = [Bars(name=name, values=[1.0, 2.0], hue=hue) for hue, name in enumerate(("ours", "theirs"))]
    drawn = sheet([Panel(bars=groups, names=["first", "second"])] * 2, "bars", title="Costs")
    rects = [
        each for each in ElementTree.fromstring(drawn).iter(f"{SVG}rect") if each.get("class", "").startswith("hue")
    ]
    assert len(rects) == 8
    one, two = (float(rect.get("x")) for rect in (rects[0], rects[2]))
    assert one + float(rects[0].get("width")) <= two
    assert drawn.count(">theirs</text>") == 1 and ">Costs</text>" in drawn


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        write(tmp_path / "file" / "x.svg", "<svg/>")
    assert write(tmp_path / "new" / "x.svg", "<svg/>").exists()
