"""`windfall bench growth`: sizes in tens, each measured, and a picture."""

from __future__ import annotations

import json

from click.testing import CliRunner

from windfall.bench.in_process.growth import command, tens, with_machines


def test_each_size_is_ten_times_the_one_before():
    assert tens(1000, 100_000) == [1000, 10_000, 100_000]
    assert tens(1, 9) == [1]


def test_every_rented_machine_of_the_measured_state_holds_a_task():
    _, state = with_machines(20)
    hosts = [state.hosts.by_name[machine.host_name] for machine in state.fleet.machines.values()]
    assert [len(host.held) for host in hosts] == [1] * 20


def test_each_size_is_measured_and_drawn(tmp_path):
    picture = tmp_path / "growth.svg"
    sizes = ["--tasks", "100000", "--hosts", "1000", "--machines", "100", "--jobs", "10"]
    ran = CliRunner().invoke(command, [*sizes, "--out", str(picture), "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.output.strip().splitlines()[-1])
    measured = {name.removeprefix("us_with_") for name in document if name.startswith("us_with_")}
    assert measured == {"100000_tasks", "1000_hosts", "10_machines", "100_machines", "1_jobs", "10_jobs"}
    assert picture.read_text().startswith("<svg")


def test_a_picture_of_an_unknown_kind_is_refused_before_anything_is_measured():
    ran = CliRunner().invoke(command, ["--out", "growth.gif"])
    assert ran.exit_code and "no figure is drawn as .gif" in str(ran.exception)
