"""Every kept input, and mutations of it by hypothesis: read, or refused by an error of ours. `make fuzz` finds more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, read

CORPUS = Path(__file__).parent / "corpus"
KEPT = {name: [path.read_bytes() for path in sorted((CORPUS / name).iterdir())] for name in sorted(TARGETS)}
ODD = [
    b"", b"\0", b"\xff\xfe", b"1e999", b"-1", b"9" * 30, b"nan", b"inf", b"[" * 60, b"{" * 60, b"\x1b[31m", b"true",
    b"null", b'""', b"..", b"/", b"\r\n", "\u202e".encode(), "\ud800".encode("utf-8", "surrogatepass"),
    b"0001-01-01T00:00:00", b'"""', b"=", b",", b"{}", b"[]", b"x" * 300,
]  # fmt: skip
EDITS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), st.sampled_from(ODD)), max_size=4)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_kept_input_is_read_or_refused_by_an_error_of_ours(name):
    assert KEPT[name], "a target without an input to begin with is hardly fuzzed"
    for data in KEPT[name]:
        read(name, data)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_at_least_one_kept_input_is_read_without_an_error(name):
    """Else mutations would only find the first check."""
    for data in KEPT[name]:
        try:
            TARGETS[name](data)
            return
        except Exception:
            continue
    raise AssertionError("every kept input is refused")


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_mutated_inputs_are_read_or_refused_by_an_error_of_ours(name):
    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(st.sampled_from(KEPT[name]), EDITS)
    def mutated(data, edits):
        for at, length, put in edits:
            at = at % (len(data) + 1)
            data = data[:at] + put + data[at + length :]
        read(name, data)

    mutated()
