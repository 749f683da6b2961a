"""`windfall bench growth`: sizes in tens, each measured, and a picture."""

from __future__ import annotations

import json

from click.testing import CliRunner

from windfall.bench.in_process.growth import command, tens


def test_each_size_is_ten_times_the_one_before():
    assert tens(1000, 100_000) == [1000, 10_000, 100_000]
    assert tens(1, 9) == [1]


def test_each_size_is_measured_and_drawn(tmp_path):
    picture = tmp_path / "growth.svg"
    ran = CliRunner().invoke(
        command, ["--tasks", "100000", "--hosts", "1000", "--jobs", "10", "--out", str(picture), "--json"]
    )
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.output.strip().splitlines()[-1])
    assert {"us_with_100000_tasks", "us_with_1000_hosts", "us_with_1_jobs", "us_with_10_jobs"} <= set(document)
    assert picture.read_text().startswith("<svg")


def test_a_picture_of_an_unknown_kind_is_refused_before_anything_is_measured():
    ran = CliRunner().invoke(command, ["--out", "growth.gif"])
    assert ran.exit_code and "no figure is drawn as .gif" in str(ran.exception)
