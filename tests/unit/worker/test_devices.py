"""The resources of a host: what is found by the tools' contracts, and what a task is told."""

from __future__ import annotations

import json
from typing import IO

import pytest

from windfall.worker import identity
from windfall.worker.__main__ import parser
from windfall.worker.running import devices
from windfall.worker.running.devices import AMD, NVIDIA, Devices, Gpu, conflict, found_gpus, run_tool

TWO_NVIDIA = [Gpu(NVIDIA, "0"), Gpu(NVIDIA, "1")]


def tools(nvidia: str | None = None, amd: str | None = None):
    def run(argv: list[str]) -> str | None:
        return {"nvidia-smi": nvidia, "rocm-smi": amd}[argv[0]]

    return run


def test_cards_are_found_by_the_tools_of_their_makers():
    rocm = json.dumps({"card0": {"Device ID": "0x740c"}, "card1": {}, "system": {"Driver version": "6.2"}})
    assert found_gpus({}, tools("0\n1\n")) == TWO_NVIDIA
    assert found_gpus({}, tools(None, rocm)) == [Gpu(AMD, "0"), Gpu(AMD, "1")]
    assert found_gpus({}, tools("0\n", rocm)) == [Gpu(NVIDIA, "0"), Gpu(AMD, "0"), Gpu(AMD, "1")]


def test_warnings_of_rocm_smi_hide_no_card():
    warned = "WARNING: a device is in a low-power state\n\nException caught: map::at\n" + json.dumps({"card0": {}})
    assert found_gpus({}, tools(None, warned + "\nWARNING: again\n")) == [Gpu(AMD, "0")]


def test_rocm_smi_is_found_outside_of_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(devices, "_ROCM", str(tmp_path))
    assert found_gpus({}, run_tool) == []
    tool = tmp_path / "rocm-smi"
    tool.write_text("""#!/bin/sh\n[ "$*" = "--showid --json" ] && echo '{"card0": {}, "card1": {}}'\n""")
    tool.chmod(0o755)
    assert found_gpus({}, run_tool) == [Gpu(AMD, "0"), Gpu(AMD, "1")]
    tool.write_text("#!/bin/sh\necho '{\"card0\": {}}'; exit 2\n")
    assert found_gpus({}, run_tool) == [], "a tool that fails finds nothing"


@pytest.mark.parametrize("said", [None, "", "No devices were found\n", "not json", "[1]", "{", '{"card0"'])
def test_a_tool_that_is_absent_or_says_something_else_finds_nothing(said):
    assert found_gpus({}, tools(said, said)) == []


@pytest.mark.parametrize(
    ("variable", "found"),
    [("2,3", ["2", "3"]), ("GPU-8a,GPU-8b", ["GPU-8a", "GPU-8b"]), ("", []), ("-1", []), ("0,-1,1", ["0"])],
)
def test_a_worker_that_was_given_cards_takes_no_others(variable, found):
    assert found_gpus({"CUDA_VISIBLE_DEVICES": variable}, tools("0\n1\n2\n3\n")) == [Gpu(NVIDIA, id_) for id_ in found]


def test_a_task_sees_its_own_cards_and_shares():
    mine = Devices({"fpga": 2}, [Gpu(NVIDIA, "GPU-a"), Gpu(NVIDIA, "GPU-b"), Gpu(AMD, "0")])
    assert mine.counts == {"gpus": 3, "fpga": 2}
    told = mine.environment([("gpus", 1, 1000), ("gpus", 2, 500), ("licence", -1, 1000)])
    assert told["CUDA_VISIBLE_DEVICES"] == "GPU-b" and told["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert told["ROCR_VISIBLE_DEVICES"] == "0" and told["HIP_VISIBLE_DEVICES"] == "0"
    assert json.loads(told["WINDFALL_RESOURCES"]) == {
        "gpus": {"amount": 1.5, "units": [1, 2]}, "licence": {"amount": 1.0},
    }  # fmt: skip


def test_a_task_without_gpus_is_told_of_none():
    assert set(Devices({"fpga": 1}, TWO_NVIDIA).environment([("fpga", 0, 1000)])) == {"WINDFALL_RESOURCES"}


def test_what_is_said_by_hand_is_believed():
    assert Devices({"gpus": 1}, TWO_NVIDIA).counts == {"gpus": 1}
    assert Devices({"gpus": 0}, []).counts == {}
    told = Devices({"gpus": 2}, []).environment([("gpus", 1, 1000)])
    assert told["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_card_belongs_to_the_first_worker_that_finds_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    claimed: list[IO[str]] = []
    monkeypatch.setattr(identity, "_claimed", claimed)
    assert identity.claim_device("nvidia-0") and not identity.claim_device("nvidia-0")
    assert identity.claim_device("nvidia-GPU/../1")
    for lock in claimed:
        lock.close()
    assert identity.claim_device("nvidia-0"), "a worker that has ended has nothing"
    claimed[-1].close()


def test_a_unit_that_another_process_has_is_a_conflict():
    assert conflict([("gpus", 0, 1000)], [[("gpus", 0, 500)]])
    assert not conflict([("gpus", 0, 500)], [[("gpus", 0, 500)], [("gpus", 1, 1000)]])
    assert not conflict([("licence", -1, 1000)], [[("licence", -1, 1000)]])


@pytest.mark.parametrize("text", ["fpga", "fpga=", "fpga=0.5", "fpga=-1", "=2", "fpga=1001", "a b=1"])
def test_a_wrong_resource_is_refused_with_an_example(text, capsys):
    with pytest.raises(SystemExit):
        parser("worker").parse_args(["--resource", text])
    assert "fpga=2" in capsys.readouterr().err
