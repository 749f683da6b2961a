"""Placeholders: what they stand for, what stays literal, and what is refused."""

import pytest

from windfall.bags.template import Scope, compile_texts, with_parameter
from windfall.errors import BadInput

LINE = Scope(single=True)
ROW = Scope(["x", "seed", "wall time"], where="runs.csv")


def fill(text, parameter, scope=LINE, index=0):
    return compile_texts([text], scope).fill(index, parameter)[0]


@pytest.mark.parametrize(
    ("template", "parameter", "text"),
    [
        ("{}", "a/b.tar.gz", "a/b.tar.gz"),
        ("{.}", "a/b.tar.gz", "a/b.tar"),
        ("{/}", "a/b.tar.gz", "b.tar.gz"),
        ("{//}", "a/b.tar.gz", "a"),
        ("{//}", "b", "."),
        ("{/.}", "a/b.tar.gz", "b.tar"),
        ("{.}", "a.d/b", "a.d/b"),
        ("--in={} --out={.}.o", "x.c", "--in=x.c --out=x.o"),
        ('{"seed": {}}', "7", '{"seed": 7}'),
        ("100% of {}", "it", "100% of it"),
    ],
)
def test_a_placeholder_stands_for_a_part_of_the_parameter(template, parameter, text):
    assert fill(template, parameter) == text


def test_tasks_are_numbered_from_one():
    assert fill("out-{#}", "x", index=0) == "out-0"


@pytest.mark.parametrize("text", ["{print $1}", "{a,b}", '{"a": 1}', "a{3}", "{ }", "}{", "{{.Names}}", "%s %d %(x)s"])
def test_braces_that_are_no_placeholder_stay_as_they_are(text):
    assert fill(text, "parameter") == text


@pytest.mark.parametrize(("text", "literal"), [("{{}}", "{}"), ("{{x}}", "{x}"), ("{{#}}", "{#}"), ("{{.}}", "{.}")])
def test_doubled_braces_are_a_literal_placeholder(text, literal):
    assert fill(text, "parameter") == literal


def test_columns_are_filled_in_by_name_and_may_be_taken_apart():
    row = ["d/x.txt", "7", "2h"]
    assert fill("{seed} {x} {x/.} {wall time}", row, ROW) == "7 d/x.txt x 2h"


def test_a_parameter_is_never_expanded_again():
    assert fill("{}", "{#} {} %s $(rm) {{x}}") == "{#} {} %s $(rm) {{x}}"


def test_an_unknown_column_is_refused_with_the_columns_and_the_nearest_one():
    with pytest.raises(BadInput) as error:
        compile_texts(["./fit", "--seed", "{sed}"], ROW)
    assert error.value.message == (
        "runs.csv has no column 'sed' (used in the command); its columns are: x, seed, wall time"
    )
    assert error.value.hint == "did you mean {seed}?  Nothing was started."


def test_a_near_miss_of_a_column_of_two_words_is_no_literal():
    with pytest.raises(BadInput, match="no column 'wall tim'") as error:
        compile_texts(["{wall tim}"], ROW)
    assert "did you mean {wall time}?" in error.value.hint


def test_an_unknown_placeholder_of_a_list_is_refused_with_those_that_exist():
    with pytest.raises(BadInput, match=r"unknown placeholder \{seed\}") as error:
        compile_texts(["{seed}"], LINE)
    assert "{{seed}} is a literal {seed}" in error.value.hint


def test_the_whole_line_has_no_meaning_where_there_are_columns():
    with pytest.raises(BadInput, match="which column"):
        compile_texts(["{}"], ROW)


def test_a_command_without_placeholder_gets_the_parameter_behind_it():
    assert with_parameter(["gzip"], LINE) == ["gzip", "{}"]
    assert with_parameter(["gzip", "{}", "-v"], LINE) == ["gzip", "{}", "-v"]
    assert with_parameter(["echo", "{#}"], LINE) == ["echo", "{#}"]


def test_a_parameter_that_is_used_as_standard_input_is_not_appended_as_well():
    assert with_parameter(["wc"], LINE, elsewhere=["{}\n"]) == ["wc"]


def test_a_command_that_uses_no_column_is_refused_with_their_names():
    with pytest.raises(BadInput, match=r"uses no column of runs\.csv") as error:
        with_parameter(["./fit"], ROW)
    assert "{x}, {seed}" in error.value.hint


@pytest.mark.parametrize(("scope", "hint"), [(LINE, "write {}."), (ROW, "write {x} {seed} {wall time}.")])
def test_a_numbered_column_as_in_gnu_parallel_is_refused_and_a_pattern_is_not(scope, hint):
    with pytest.raises(BadInput, match="columns have no numbers here") as error:
        with_parameter(["echo", "{2}"], scope)
    assert hint in str(error.value)
    assert with_parameter(["grep", "x{2}", "{#}"], scope) == ["grep", "x{2}", "{#}"]
    assert with_parameter(["echo", "{2}"], Scope(["1", "2"])) == ["echo", "{2}"], "a column may be called 2"
