"""Which servers are preemptible: the order of flavor, image and hint."""

from __future__ import annotations

import pytest
from windfall_nova.words import FLAVOR, HINT, IMAGE, number, said, truth


def _said(flavor=None, image=None, hint=None, closed=()):
    return said(
        {} if flavor is None else {"windfall:preemptible": flavor},
        {} if image is None else {"windfall_preemptible": image},
        {} if hint is None else {"windfall:preemptible": hint},
        lambda source: source not in closed,
    )


def test_nothing_said_is_a_normal_server():
    assert _said() == said(None, None, None)
    assert not _said().preemptible


@pytest.mark.parametrize(
    ("flavor", "image", "hint", "preemptible", "source"),
    [
        ("true", "false", "false", True, FLAVOR),
        ("false", "true", ["true"], False, FLAVOR),
        (None, "true", "false", True, IMAGE),
        (None, "no", ["yes"], False, IMAGE),
        (None, None, ["true"], True, HINT),
        ("maybe", None, "1", True, HINT),
    ],
)
def test_the_first_that_speaks_decides(flavor, image, hint, preemptible, source):
    answer = _said(flavor, image, hint)
    assert (answer.preemptible, answer.source) == (preemptible, source)
    assert answer.unclear == ((FLAVOR,) if flavor == "maybe" else ())


def test_a_source_that_policy_closes_is_not_heard():
    answer = _said(None, "true", "true", closed=(IMAGE, HINT))
    assert not answer.preemptible
    assert answer.closed == (IMAGE, HINT)


def test_policy_is_asked_only_where_something_is_said():
    asked = []
    said({}, {}, {"windfall:preemptible": "yes"}, lambda source: not asked.append(source))
    assert asked == [HINT]


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), (" off ", False), (["on"], True), ("2", None), ([], None)])
def test_truth(text, value):
    assert truth(text) is value


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("-1", None), ("nan", None), (None, None), ("1e300", None)])
def test_numbers_are_bounded(text, value):
    assert number(text) == value
