"""Failures are grouped by kind first, and by what their messages have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.server.queries.failures import MOST_READ, Groups, pattern, sample

EXIT_1 = ("exit", 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: bad seed 17", "ValueError: bad seed 1234"),
        ("cannot open /data/run-17/in.csv: no such file", "cannot open /data/run-x/other.csv: no such file"),
        ("cannot open out/17.csv", "cannot open out/18.csv"),
        ("residual 1.5e-07 > 1e-9", "residual 3 > 1e-9"),
        ("<Thing object at 0x7f3a2c> has no x", "<Thing object at 0x9912ff> has no x"),
        ("run 123e4567-e89b-12d3-a456-426614174000 lost", "run 00000000-e89b-12d3-a456-426614174111 lost"),
    ],
)
def test_numbers_paths_and_addresses_make_no_groups(one, other):
    assert pattern(one) == pattern(other)


def test_the_parameters_of_a_task_make_no_groups():
    assert pattern("no spectrum for alpha-cen", "alpha-cen") == pattern("no spectrum for vega", "vega")
    assert pattern("bad x=lo", {"x": "lo", "y": "2"}) == pattern("bad x=hi", {"x": "hi", "y": "3"})


def test_a_parameter_that_is_part_of_a_number_makes_no_group():
    assert pattern("rate 1.5 at 1", "1") == pattern("rate 3.0 at 2", "2") == pattern("rate 4.5 at 3", {"x": "3"})


def test_other_words_make_other_groups():
    assert pattern("No module named 'numpy'") != pattern("No module named 'scipy'")


def test_27_failures_of_four_kinds_are_four_groups():
    groups = Groups()
    for task in range(24):
        groups.add(task, EXIT_1, f"trace\nValueError: bad seed {task}".encode(), "", final=True, parameters=str(task))
    groups.add(24, ("oom", None), b"", "out of memory at 2.0 GB", final=True)
    groups.add(25, ("signal", -9), b"", "", final=True)
    groups.add(26, ("no-command", None), b"", "./missing: not found", final=True)
    found = groups.ordered()
    assert [(group["cause"], group["count"]) for group in found] == [
        ("exit", 24), ("no-command", 1), ("oom", 1), ("signal", 1),
    ]  # fmt: skip
    assert found[0]["tasks"] == list(range(10))
    assert found[0]["last_line"] == "ValueError: bad seed 0"


@given(st.lists(st.sampled_from([("exit", 1), ("exit", 2), ("oom", None), ("signal", -9)]), max_size=3000))
def test_no_kind_is_left_unread_and_none_is_counted_twice(kinds):
    read, unread = sample(list(enumerate(kinds)))
    assert {kind for _, kind in read} == set(kinds)
    assert sorted([task for task, _ in read] + [task for tasks in unread.values() for task in tasks]) == list(
        range(len(kinds))
    )
    assert len(read) <= MOST_READ


def test_failures_that_were_not_read_are_counted_behind_their_kind():
    groups = Groups()
    groups.add(0, EXIT_1, b"boom", "", final=True)
    groups.add_unread(list(range(1, 1501)), EXIT_1)
    compared, rest = groups.ordered()
    assert (compared["count"], compared["compared"], rest["count"], rest["compared"]) == (1, True, 1500, False)


def test_the_same_words_are_one_group_though_one_of_them_is_a_parameter_of_a_task():
    groups = Groups()
    for task, value in enumerate("abc"):
        groups.add(task, ("no-command", None), b"", "'wc -c' is not on the PATH", final=True, parameters=value)
    assert [group["count"] for group in groups.ordered()] == [3]
