"""Results as tables: CSV, Parquet, pandas, and GNU parallel's joblog."""

from __future__ import annotations

import builtins
import csv
import io
import json

import pytest

from windfall.cli.jobs.joblog import exit_and_signal, lines
from windfall.client.results import Task
from windfall.client.showing import table
from windfall.errors import BadInput


def task(number=0, state="done", exit_code=0, cause="done", stdout=b"out\n", outputs=(), name=None):
    more = {"outputs": [list(each) for each in outputs]}
    row = [number, state, 1, exit_code, cause, "h1", 100.0, 102.5, len(stdout), 0, 0, more, name]
    return Task(row, stdout, b"", b"")


def made(**params):
    return [
        table.row(task(0, outputs=[("a.txt", "f" * 64, 7, 0o644), ("b.txt", "e" * 64, 1, 0o644)]), "./fit 1", params,
                  (2.4, 1 << 20)),
        table.row(task(1, "failed", 3, "exit"), "./fit 2", params, None),
    ]  # fmt: skip


def test_a_json_file_is_an_array_of_rows_that_pandas_reads():
    file = io.StringIO()
    assert table.write_json([{"task": 0, "x": "1"}, {"task": 1, "x": "2"}], file) == 2
    assert json.loads(file.getvalue()) == [{"task": 0, "x": "1"}, {"task": 1, "x": "2"}]
    empty = io.StringIO()
    assert table.write_json([], empty) == 0 and json.loads(empty.getvalue()) == []


def test_a_row_has_parameters_command_host_times_exit_memory_and_outputs():
    row = made(x="1", seed="7")[0]
    assert list(row)[:4] == ["task", "x", "seed", "command"]
    assert (row["run_s"], row["cpu_s"], row["peak_memory_bytes"], row["outputs"]) == (
        2.5, 2.4, 1 << 20, ["a.txt", "b.txt"],
    )  # fmt: skip


def test_a_parameter_whose_name_is_taken_gets_another():
    assert table.columns_of({"host": "a", "x": "1"}) == {"parameter_host": "a", "x": "1"}
    assert table.columns_of("17") == {"parameter": "17"}
    assert table.columns_of(None) == {}


def test_a_csv_table_is_read_back_as_it_was_written():
    file = io.StringIO()
    assert table.write_csv(made(x='a "quoted", value\nin two lines'), file) == 2
    first, second = csv.DictReader(io.StringIO(file.getvalue()))
    assert first["x"] == 'a "quoted", value\nin two lines'
    assert (first["outputs"], second["exit_code"], second["peak_memory_bytes"]) == ("a.txt;b.txt", "3", "")


def test_a_table_of_nothing_has_a_header():
    file = io.StringIO()
    assert table.write_csv([], file) == 0
    assert file.getvalue().startswith("task,command,state,exit_code")


def test_a_parquet_table_is_read_back_as_it_was_written(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert table.write_parquet(made(x="1"), tmp_path / "t.parquet") == 2
    read = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert read == made(x="1")


def test_a_frame_has_a_row_a_task():
    pytest.importorskip("pandas")
    frame = table.to_frame(made(x="1"))
    assert list(frame["exit_code"]) == [0, 3]
    assert "command" in table.to_frame([]).columns


@pytest.mark.parametrize(
    ("write", "missing", "hint"),
    [
        (lambda: table.write_parquet([], "t.parquet"), "pyarrow", "pip install 'windfall[parquet]'"),
        (lambda: table.to_frame([]), "pandas", "pip install pandas"),
    ],
    ids=["parquet", "pandas"],
)
def test_an_absent_library_is_named_with_what_to_install(monkeypatch, write, missing, hint):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match="is not installed") as refused:
        write()
    assert hint in refused.value.hint


def test_a_line_of_the_joblog_has_the_nine_columns_of_gnu_parallel():
    (line,) = lines([task(4, outputs=[("a", "f" * 64, 7, 0o644)])], {4: "echo a\tb"})
    assert line.split("\t")[:8] == ["5", "h1", "100.000", "     2.500", "0", "7", "0", "0"]


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (task(), (0, 0)),
        (task(0, "failed", 3, "exit"), (3, 0)),
        (task(0, "failed", -9, "signal"), (0, 9)),
        (task(0, "failed", None, "no-command"), (127, 0)),
        (task(0, "failed", None, "lost"), (-1, 0)),
    ],
)
def test_exit_value_or_signal_of_a_failed_task_is_not_zero(ended, expected):
    assert exit_and_signal(ended) == expected
