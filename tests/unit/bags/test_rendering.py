"""From an index to what a worker runs, for every kind of source, and the chunks that a job refuses."""

import zlib

import msgspec
import pytest

from windfall.bags.chunks import Chunk, Chunker, check_chunk, encode_lines, encode_rows, encode_tasks
from windfall.bags.rendering import Renderer, Rows, job_spec_for_worker
from windfall.bags.spec import InputFile, JobSpec, Memory, Source, TaskClass, TaskRow
from windfall.errors import BadInput

SHA = "a" * 64


def renderer(spec, items, klass=0):
    chunker = Chunker(spec.source.kind)
    chunker.add(items, 100, klass)
    chunks = {chunk.first: chunk for chunk in chunker.finish()}
    return Renderer(spec, Rows(chunks.values(), lambda first: chunks[first].data))


def test_a_plain_line_is_executed_directly_and_a_shell_line_by_the_shell():
    tasks = renderer(JobSpec(name="t"), ["./sim --seed 'a b'", "./sim | tee out", "X=1 ./sim", "cd d"])
    assert tasks.task(0) == (["./sim", "--seed", "a b"], b"", None)
    assert [tasks.task(i).argv for i in (1, 2, 3)] == [
        ["/bin/sh", "-c", line] for line in ("./sim | tee out", "X=1 ./sim", "cd d")
    ]


def test_a_parameter_is_put_into_the_command_and_never_seen_by_a_shell():
    tasks = renderer(JobSpec(name="t", command=["gzip", "{}"]), ["a b; rm -rf $HOME"])
    assert tasks.task(0).argv == ["gzip", "a b; rm -rf $HOME"]
    assert tasks.parameters(0) == "a b; rm -rf $HOME"


def test_rows_fill_columns_standard_input_and_outputs():
    spec = JobSpec(
        name="t",
        command=["./fit", "{x}"],
        source=Source("rows", columns=["x", "y"]),
        stdin="y={y}\n",
        outputs=["{x}-{#}"],
    )
    tasks = renderer(spec, [["1", "2"], ["3", "4"]])
    assert tasks.task(1) == (["./fit", "3"], b"y=4\n", {"outputs": ["3-1"]})
    assert tasks.parameters(1) == {"x": "3", "y": "4"}


def test_a_call_is_sent_as_it_is():
    spec = JobSpec(name="t", kind="call", source=Source("calls"))
    assert renderer(spec, [b"one", b"", b"three"]).task(2) == (None, b"three", None)
    assert renderer(spec, [b"one", b"", b"three"]).task(1) == (None, b"", None)


def test_memory_per_attempt_grows_from_the_second_attempt_on():
    tasks = renderer(JobSpec(name="t", memory=Memory(100, per_attempt=True)), ["true"])
    assert tasks.task(0, attempt=1).overrides is None
    assert tasks.task(0, attempt=3).overrides == {"memory_bytes": 300}


def test_a_task_of_another_class_says_what_it_needs_beside_the_job():
    spec = JobSpec(name="t", source=Source("tasks"), wall_s=60, classes=[TaskClass(cpus=2, wall_s=60)])
    assert renderer(spec, [TaskRow(["a"])], klass=1).task(0) == (["a"], b"", {"cpus": 2})


def test_a_whole_task_adds_to_what_the_job_says():
    spec = JobSpec(
        name="t",
        source=Source("tasks"),
        env={"A": "1"},
        inputs=[InputFile("i", SHA, 1)],
        outputs=["o-{#}"],
        stdin="job",
    )
    own = TaskRow(["a"], env={"B": "2"}, cwd="/d", stdin="own", inputs=[InputFile("j", SHA, 2)], outputs=["p"])
    tasks = renderer(spec, [TaskRow(["a"]), own])
    assert tasks.task(0) == (["a"], b"job", {"outputs": ["o-0"]})
    argv, payload, overrides = tasks.task(1)
    assert (argv, payload) == (["a"], b"own")
    assert overrides == {
        "env": {"A": "1", "B": "2"},
        "cwd": "/d",
        "inputs": [["i", SHA, 1, 0o644], ["j", SHA, 2, 0o644]],
        "outputs": ["o-1", "p"],
    }


def test_tasks_may_be_asked_for_in_any_order_and_chunks_may_arrive_later():
    chunker = Chunker("lines")
    chunker.add([f"t {i}" for i in range(30_000)], 100)
    chunks = {chunk.first: chunk for chunk in chunker.finish()}
    first, *rest = chunks.values()
    tasks = Renderer(JobSpec(name="t", streaming=True), Rows([first], lambda start: chunks[start].data))
    with pytest.raises(IndexError):
        tasks.task(first.count)
    tasks.rows.extend(rest)
    for index in (29_999, 0, 8_191, 8_192, 20_000, 1):
        assert tasks.task(index).argv == ["t", str(index)]
    with pytest.raises(IndexError):
        tasks.task(30_000)


def test_few_chunks_are_kept_and_each_is_fetched_once_while_it_is_in_use():
    chunker = Chunker("lines")
    chunker.add([str(i) for i in range(8192 * 10)], 100)
    chunks = {chunk.first: chunk for chunk in chunker.finish()}
    fetched = []

    def fetch(first):
        fetched.append(first)
        return chunks[first].data

    tasks = Renderer(JobSpec(name="t"), Rows(chunks.values(), fetch))
    for index in range(0, 8192 * 4, 100):
        tasks.task(index)
        tasks.task(0)
    assert fetched == [0, 8192, 16384, 24576]


def test_the_job_is_described_to_the_worker_as_the_protocol_says():
    spec = JobSpec(name="t", memory=Memory(100, True), inputs=[InputFile("i", SHA, 1)], wall_s=9, cwd="/d")
    described = job_spec_for_worker(spec)
    assert described == {
        "kind": "command", "name": "t", "env": {}, "cwd": "/d", "inputs": [["i", SHA, 1, 0o644]], "outputs": [],
        "wall_s": 9, "memory_bytes": 100, "cpus": 1.0, "grace_s": 10.0, "output_cap_bytes": 1 << 20, "python": None,
    }  # fmt: skip
    msgspec.json.encode(described)


LINES = JobSpec(name="t", command=["echo", "{}"])
CALLS = JobSpec(name="t", kind="call", source=Source("calls"))
ROWS = JobSpec(name="t", command=["echo", "{x}"], source=Source("rows", columns=["x"]))


@pytest.mark.parametrize(
    ("spec", "chunk", "why"),
    [
        (LINES, Chunk(0, 1, 0, "rows", encode_rows([["a"]])), "in a bag of 'lines'"),
        (LINES, Chunk(0, 2, 0, "lines", encode_lines(["a"])), "says it has 2 tasks, and has 1"),
        (LINES, Chunk(0, 0, 0, "lines", encode_lines([])), "has 1 to 8192 tasks"),
        (LINES, Chunk(0, 1, 1, "lines", encode_lines(["a"])), "no task class 1"),
        (LINES, Chunk(0, 1, 0, "lines", encode_lines(["a\0"])), "NUL"),
        (LINES, Chunk(0, 1, 0, "lines", zlib.compress(b"\xff")), "cannot be decoded"),
        (LINES, Chunk(0, 1, 0, "lines", b"not zlib"), "cannot be decompressed"),
        (LINES, Chunk(0, 1, 0, "lines", zlib.compress(b"a" * (200 << 20), 1)), "longer than"),
        (JobSpec(name="t"), Chunk(0, 1, 0, "lines", encode_lines(["echo 'a"])), "quote is not closed"),
        (JobSpec(name="t"), Chunk(0, 1, 0, "lines", encode_lines([" "])), "empty command"),
        (ROWS, Chunk(0, 1, 0, "rows", encode_rows([["a", "b"]])), "must have 1 texts"),
        (ROWS, Chunk(0, 1, 0, "rows", encode_rows([["a\0"]])), "NUL"),
        (ROWS, Chunk(0, 1, 0, "rows", encode_rows([[1]])), "must be a text"),
        (JobSpec(name="t", source=Source("tasks")), Chunk(0, 1, 0, "tasks", encode_tasks([TaskRow(["\0"])])), "NUL"),
        (CALLS, Chunk(0, 2, 0, "calls", b"abc"), "cut short"),
        (CALLS, Chunk(0, 1, 0, "calls", b"\x09\0\0\0abc"), "does not fit"),
    ],
)  # fmt: skip
def test_a_chunk_that_does_not_fit_its_job_is_refused(spec, chunk, why):
    with pytest.raises(BadInput, match=why):
        check_chunk(spec, chunk)
