"""Traces of Pegasus and Nextflow, read by WfCommons: what comes over, and what is said of a folder that is none."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from tests.support.commands.traces import nextflow_run, pegasus_run
from windfall.cli.run.importing import import_group
from windfall.errors import BadInput
from windfall.workflows import read
from windfall.workflows.traces import read_trace

needs_wfcommons = pytest.mark.skipif(find_spec("wfcommons") is None, reason="wfcommons is not installed")


@needs_wfcommons
def test_a_run_of_pegasus_comes_over_with_run_times_memory_cores_and_files(tmp_path):
    document, spec = read_trace("Pegasus", pegasus_run(tmp_path / "run0001"))
    assert document["name"] == "diamond-0"
    assert "author" not in document
    assert [(task.id, task.runtime_s, task.memory_bytes, task.cores) for task in spec.tasks] == [
        ("split_ID0000001", 12.5, 2048 << 10, 1),
        ("count_ID0000002", 30.0, 2048 << 10, 4),
    ]
    assert [task.task_class for task in spec.tasks] == ["split", "count"]
    assert spec.tasks[0].command == ("split", "-n", "2", "raw.txt")
    assert spec.graph.parent_rows() == [[], [0]]
    assert spec.file_bytes == {"raw.txt": 0, "part.1": 700, "counts.txt": 9}


@needs_wfcommons
def test_the_order_of_tasks_with_jobs_of_pegasus_between_them_comes_over(tmp_path):
    """As in a real run: a task, its stage-out, the planning of a sub-workflow, and the task behind that."""
    folder = pegasus_run(tmp_path / "run0001")
    (folder / "diamond-0.dag").write_text(
        "JOB split_ID0000001 00/00/split_ID0000001.sub\n"
        "JOB stage_out_local_0_0 00/00/stage_out_local_0_0.sub\n"
        "SUBDAG EXTERNAL pegasus-plan_inner 00/00/inner.dag\n"
        "JOB count_ID0000002 00/00/count_ID0000002.sub\n"
        "PARENT split_ID0000001 CHILD stage_out_local_0_0 cleanup_local_0\n"
        "PARENT stage_out_local_0_0 register_local_0 CHILD pegasus-plan_inner\n"
        "PARENT pegasus-plan_inner CHILD count_ID0000002\n"
    )
    document, spec = read_trace("Pegasus", folder)
    assert spec.graph.parent_rows() == [[], [0]]
    first, second = document["workflow"]["specification"]["tasks"]
    assert (first["children"], second["parents"]) == ([second["id"]], [first["id"]])


@needs_wfcommons
def test_a_job_that_was_held_has_an_empty_record_and_no_run_time(tmp_path):
    folder = pegasus_run(tmp_path / "run0001")
    (folder / "00" / "00" / "count_ID0000002.out.000").write_text("")
    _, spec = read_trace("Pegasus", folder)
    assert [task.runtime_s or 0.0 for task in spec.tasks] == [12.5, 0.0]


@needs_wfcommons
def test_a_sub_workflow_is_not_taken_for_the_run_and_is_named(tmp_path):
    folder = pegasus_run(tmp_path / "run0001")
    inner = pegasus_run(folder / "00" / "00" / "a_inner.000")
    (inner / "workflow.yml").rename(inner / "a_workflow.yml")
    (inner / "diamond-0.dag").rename(inner / "a.dag")
    (inner / "a_workflow.yml").write_text("name: inner\njobs:\n- {type: job, name: only, id: ID0000009}\n")
    done = CliRunner().invoke(import_group, ["pegasus", str(folder), "-o", str(tmp_path / "wf.json")])
    assert done.exit_code == 0 and "2 tasks, 1 edge" in done.output, done.output
    assert "1 sub-workflow left out; import each by itself, as " in done.stderr and "a_inner.000" in done.stderr


@needs_wfcommons
def test_a_run_of_nextflow_comes_over_with_durations_and_files(tmp_path):
    document, spec = read_trace("Nextflow", nextflow_run(tmp_path / "results"))
    assert document["name"] == "results"
    assert document["runtimeSystem"]["version"] == "25.04.6"
    assert [task.runtime_s for task in spec.tasks] == [90.0, 0.5]
    assert spec.graph.parent_rows() == [[], [0]]
    assert sorted(spec.file_bytes.values()) == [0, 300]


@needs_wfcommons
def test_what_is_written_is_read_as_a_workflow_and_nothing_else_is_left_behind(tmp_path, monkeypatch):
    pegasus_run(tmp_path / "run0001")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(import_group, ["pegasus", "run0001", "-o", "wf.json"])
    assert done.exit_code == 0, done.output
    assert "wrote wf.json: 2 tasks, 1 edge" in done.output
    assert [task.runtime_s for task in read("wf.json").tasks] == [12.5, 30.0]
    assert {path.name for path in tmp_path.iterdir()} == {"run0001", "wf.json"}


@needs_wfcommons
def test_tasks_without_a_run_time_are_named(tmp_path):
    folder = pegasus_run(tmp_path / "run0001")
    (folder / "00" / "00" / "count_ID0000002.out.000").unlink()
    done = CliRunner().invoke(import_group, ["pegasus", str(folder)])
    assert json.loads(done.stdout)["name"] == "diamond-0"
    assert "no run time was recorded of 1 task, as count_ID0000002" in done.stderr


@needs_wfcommons
@pytest.mark.parametrize("system", ["Pegasus", "Nextflow"])
def test_a_folder_without_a_trace_is_refused_with_what_to_give(tmp_path, system):
    with pytest.raises(BadInput, match=f"WfCommons reads no trace of {system}") as caught:
        read_trace(system, tmp_path)
    assert "give the" in str(caught.value)


@needs_wfcommons
@pytest.mark.parametrize("broken", ["jobs: 7", "- [", "name: diamond"])
def test_a_broken_trace_is_refused_in_one_sentence(tmp_path, broken):
    folder = pegasus_run(tmp_path / "run0001")
    (folder / "workflow.yml").write_text(broken)
    with pytest.raises(BadInput, match="WfCommons reads no trace of Pegasus"):
        read_trace("Pegasus", folder)


def test_no_such_folder(tmp_path):
    with pytest.raises(BadInput, match="no such folder"):
        read_trace("Nextflow", tmp_path / "results")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="no folder"):
        read_trace("Nextflow", tmp_path / "file")


def test_without_wfcommons_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wfcommons", None)
    monkeypatch.delitem(sys.modules, "wfcommons.wfinstances", raising=False)
    with pytest.raises(BadInput, match=r"pip install 'windfall\[wfcommons\]'"):
        read_trace("Pegasus", tmp_path)
