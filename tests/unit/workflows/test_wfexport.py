"""Workflows written in WfFormat 1.5: names that the format allows, everything that it asks for, read back as it was."""

from __future__ import annotations

import json
import re

from windfall.workflows import wfformat
from windfall.workflows.wfexport import Ran, document

ID = re.compile(r"[0-9a-zA-Z_.-]+")
TASKS = [
    Ran(name="split raw/1", parents=[], argv=["./split", "", "raw file"], inputs={"raw file": 100},
        outputs={"out/a": 40, "out_a": 60}, start_s=1000.0, end_s=1010.0, cpu_s=5.0, memory_bytes=7 << 20,
        host="node one"),
    Ran(name="split_raw_1", parents=[0], argv=["sh", "-c", "true"], cores=2.0, inputs={"out/a": 40},
        outputs={"r1": 1}, start_s=1011.0, end_s=1021.5, host="b"),
    Ran(name="merge", parents=[0, 1], argv=["cat"], inputs={"out_a": 60, "r1": 1}, outputs={}),
]  # fmt: skip
HOSTS = {"node one": {"cpus": 4, "memory_mb": 8 << 10, "arch": "x86_64"}, "b": {"cpus": "many"}}


def test_it_is_read_back_as_it_was():
    found = wfformat.parse(json.dumps(document("wf", TASKS, HOSTS)).encode(), "wf.json")
    assert found.name == "wf"
    assert [task.runtime_s for task in found.tasks] == [10.0, 10.5, None]
    assert [task.memory_bytes for task in found.tasks] == [7 << 20, 0, 0]
    assert [task.cores for task in found.tasks] == [1, 2, 1]
    assert [found.graph.parents_of(task).tolist() for task in range(3)] == [[], [0], [0, 1]]
    assert found.tasks[0].command == ("./split", "raw file")
    assert found.file_bytes == {"raw_file": 100, "out_a": 40, "out_a_2": 60, "r1": 1}
    assert found.tasks[2].inputs == ("out_a_2", "r1")


def test_names_are_those_that_the_format_allows_and_stay_apart():
    specification = document("wf", TASKS, HOSTS)["workflow"]["specification"]
    ids = [task["id"] for task in specification["tasks"]]
    assert len(set(ids)) == 3
    for task in specification["tasks"]:
        for name in (task["id"], *task["parents"], *task["children"], *task["inputFiles"], *task["outputFiles"]):
            assert ID.fullmatch(name)
    assert specification["tasks"][0]["children"] == [ids[1], ids[2]]
    assert {file["id"] for file in specification["files"]} == {
        name for task in specification["tasks"] for name in (*task["inputFiles"], *task["outputFiles"])
    }


def test_what_was_measured_is_there_and_nothing_else():
    execution = document("wf", TASKS, HOSTS)["workflow"]["execution"]
    assert execution["makespanInSeconds"] == 21.5
    assert execution["executedAt"] == "1970-01-01T00:16:40+00:00"
    first, second = execution["tasks"]
    assert (first["avgCPU"], first["memoryInBytes"], first["machine"]) == (50.0, 7 << 20, "node-one")
    assert (first["readBytes"], first["writtenBytes"]) == (100, 100)
    assert not {"avgCPU", "memoryInBytes"} & set(second)
    assert execution["machines"] == [
        {"nodeName": "b"},
        {"nodeName": "node-one", "cpu": {"coreCount": 4}, "memoryInBytes": 8 << 30, "architecture": "x86_64"},
    ]
    alone = Ran(name="a", parents=[], argv=["true"])
    assert "execution" not in document("wf", [alone], {})["workflow"]
