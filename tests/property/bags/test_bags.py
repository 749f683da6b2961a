"""Whatever the parameters are: chunks give them back, and templates and lines render them as the shell's rules say."""

import contextlib
import io
import shlex
from unittest import mock

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis.strategies import binary, booleans, characters, integers, lists, sampled_from, text

from windfall.bags import reading
from windfall.bags.chunks import (
    CHUNK_TASKS,
    Chunker,
    decode,
    encode_calls,
    encode_lines,
    encode_rows,
)
from windfall.bags.rendering import Renderer
from windfall.bags.shell import argv_of, is_balanced, needs_shell, split
from windfall.bags.spec import JobSpec, Source
from windfall.bags.template import Scope, compile_texts
from windfall.errors import BadInput

parameters = text(characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=40)
shell_like = text("ab '\"\\\t-é", max_size=30)


@given(lists(parameters, min_size=1))
def test_lines_come_back_from_their_chunk(lines):
    assert list(decode("lines", encode_lines(lines), len(lines))) == lines


@given(lists(lists(parameters, min_size=2, max_size=2), min_size=1))
def test_rows_come_back_from_their_chunk(rows):
    assert decode("rows", encode_rows(rows), len(rows)) == rows


@given(lists(binary(max_size=100), min_size=1))
def test_calls_come_back_from_their_chunk(payloads):
    assert list(decode("calls", encode_calls(payloads), len(payloads))) == payloads


@given(parameters, integers(0, 10**9))
def test_one_argument_stays_one_argument_whatever_it_holds(parameter, index):
    filled = compile_texts(["a", "x={}", "b%", "{}"], Scope(single=True)).fill(index, parameter)
    assert filled == ["a", f"x={parameter}", "b%", parameter]


@given(shell_like)
def test_a_line_without_shell_characters_is_split_as_shlex_splits_it(line):
    try:
        expected = shlex.split(line)
    except ValueError:
        expected = None
    assert is_balanced(line) == (expected is not None)
    if expected is not None:
        assert split(line) == expected


@given(text("ab '\"\\$|;", max_size=20))
def test_a_line_with_shell_characters_is_given_to_the_shell_whole(line):
    assume(any(c in line for c in "$|;"))
    assert needs_shell(line)
    assert argv_of(line) == ["/bin/sh", "-c", line]


@given(lists(integers(1, 3 * CHUNK_TASKS), min_size=1, max_size=5), lists(integers(0, 2), min_size=5, max_size=5))
def test_chunks_hold_every_task_once_in_order_and_are_of_one_class(sizes, classes):
    chunker, expected = Chunker("lines"), []
    for size, klass in zip(sizes, classes, strict=False):
        run = [f"{len(expected) + i}" for i in range(size)]
        chunker.add(run, sum(map(len, run)), klass)
        expected += [(line, klass) for line in run]
    chunks = chunker.finish()
    assert [(line, c.klass) for c in chunks for line in decode("lines", c.data, c.count)] == expected
    assert [c.first for c in chunks] == [sum(d.count for d in chunks[:i]) for i in range(len(chunks))]
    assert all(1 <= c.count <= CHUNK_TASKS for c in chunks)


@given(integers(0, 10**6), integers(0, 10**6), integers(1, 999))
def test_a_range_renders_as_pythons_range_does(first, length, step):
    spec = JobSpec(name="r", command=["{}"], source=Source("range", first=first, last=first + length, step=step))
    numbers = range(first, first + length + 1, step)
    assert spec.source.range_count == len(numbers)
    renderer = Renderer(spec)
    for index in {0, len(numbers) // 2, len(numbers) - 1}:
        assert renderer.task(index).argv == [str(numbers[index])]


@given(
    lists(parameters, min_size=1, max_size=20), binary(max_size=60), sampled_from(["lines", "rows", "tasks", "calls"])
)
def test_a_damaged_chunk_is_refused_and_never_crashes(lines, noise, codec):
    for data in (noise, encode_lines(lines)[:-1] + noise, encode_lines([noise.hex()])):
        with contextlib.suppress(BadInput):
            assert len(decode(codec, data, len(lines) + 1)) == len(lines) + 1


def test_a_specification_is_the_same_after_a_journey_as_json_and_as_msgpack():
    spec = JobSpec(name="s", command=["a", "{}"], source=Source("range", first=1, last=9), tags={"k": "v"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=JobSpec) == spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


@given(lists(integers(0, 12), max_size=12), booleans())
def test_the_first_line_above_the_limit_is_refused_with_its_number(lengths, ends):
    block = b"\n".join(b"x" * length for length in lengths) + b"\n" * ends
    with mock.patch.object(reading, "MAX_TEXT_BYTES", 5):
        long = next(((place, length) for place, length in enumerate(lengths, 1) if length > 5), None)
        if long is None:
            assert "".join(read.text for read in reading.Blocks(io.BytesIO(block), "tasks.txt")).encode() == block
        else:
            with pytest.raises(BadInput, match=rf"^tasks.txt line {long[0]} has {long[1]} bytes"):
                list(reading.Blocks(io.BytesIO(block), "tasks.txt"))
