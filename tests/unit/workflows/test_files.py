"""Workflow and offer files: what is understood, and what is refused with its place."""

from __future__ import annotations

import json

import pytest

from windfall.bags.spec import parse_memory
from windfall.errors import BadInput
from windfall.lab import data
from windfall.workflows import read
from windfall.workflows.offers import read_offers
from windfall.workflows.read import is_workflow_file
from windfall.workflows.wfformat import class_of


def wfformat(tmp_path, tasks, runs=None, files=None):
    specification = {"tasks": tasks} | ({} if files is None else {"files": [{"id": f} for f in files]})
    document = {"name": "w", "workflow": {"specification": specification, "execution": {"tasks": runs or []}}}
    path = tmp_path / "wf.json"
    path.write_text(json.dumps(document))
    return path


def toml(tmp_path, text):
    path = tmp_path / "workflow.toml"
    path.write_text(text)
    return path


def test_parents_children_and_files_all_make_a_task_wait(tmp_path):
    tasks = [
        {"id": "a", "children": ["b"], "outputFiles": ["x"]},
        {"id": "b"},
        {"id": "c", "parents": ["b"]},
        {"id": "d", "inputFiles": ["x"]},
    ]
    assert read(wfformat(tmp_path, tasks)).graph.parent_rows() == [[], [0], [1], [0]]


def test_run_times_cores_and_memory_come_from_the_execution(tmp_path):
    run = {"id": "a_ID01", "runtimeInSeconds": 2.5, "coreCount": 4, "memoryInBytes": 7}
    spec = read(wfformat(tmp_path, [{"id": "a_ID01"}], [run]))
    workflow = spec.for_planning()
    assert (workflow.runtime_s, workflow.cores, workflow.memory_bytes, workflow.classes) == ([2.5], [4], [7], ["a"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mProject_ID0000012", "mProject"), ("blastall_000007", "blastall"), ("bowtie2-build", "bowtie2-build")],
)
def test_the_class_of_a_task_is_its_name_without_its_number(name, expected):
    assert class_of(name) == expected


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([{"id": "a", "parents": ["b"]}, {"id": "b", "parents": ["a"]}], ["waits for itself", "tasks["]),
        ([{"id": "a", "parents": ["nobody"]}], ["tasks[0] 'a'", "'nobody'"]),
        ([{"id": "a", "children": ["nobody"]}], ["tasks[0] 'a'", "'nobody'"]),
        ([{"id": "a"}, {"id": "a"}], ["tasks[1] 'a'", "same name"]),
        ([{"id": "a", "inputFiles": ["ghost"]}], ["tasks[0] 'a'", "'ghost'"]),
        ([{"id": 3}], ["tasks[0].id"]),
        ([], ["no tasks"]),
    ],
)
def test_a_wrong_workflow_is_refused_with_the_file_and_the_place(tmp_path, tasks, words):
    path = wfformat(tmp_path, tasks, files=[])
    with pytest.raises(BadInput) as refused:
        read(path)
    assert all(word in str(refused.value) for word in [str(path), *words])


def test_a_map_makes_one_task_per_combination_and_a_pattern_waits_for_them_all(tmp_path):
    spec = read(
        toml(
            tmp_path,
            """
            [[task]]
            name = "fit-{a}-{b}"
            map = { a = ["x", "y"], b = "1-3" }
            command = "run {a} --seed {b}"
            outputs = ["{a}{b}"]
            [[task]]
            name = "merge"
            after = "fit-*"
            inputs = ["x1"]
            """,
        )
    )
    assert [task.id for task in spec.tasks][:3] == ["fit-x-1", "fit-x-2", "fit-x-3"]
    assert spec.tasks[4].command == ("run", "y", "--seed", "2")
    assert spec.graph.parent_rows()[6] == [0, 1, 2, 3, 4, 5]
    assert {task.task_class for task in spec.tasks} == {"fit", "merge"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[task]]\nname="a"\nafter="b"', ["task[0] 'a'", "'b'"]),
        ('[[task]]\nname="a"\nafter="b-*"', ["task[0] 'a'", "b-*"]),
        ('[[task]]\nname="a"\ncomand="x"', ["task[0] 'a'", "comand"]),
        ('[[task]]\nname="a"\neach={y=[1]}', ["task[0] 'a': unknown field 'each'", "did you mean 'map'?"]),
        ('[[task]]\nname="a"\nneeds=["b"]', ["unknown field 'needs'", "did you mean 'after'?"]),
        ('[[task]]\nname="a"\ncpus="two"', ["task[0] 'a': cpus must be a whole number, not a text"]),
        ('[[task]]\nname="a-{x}"\nmap={y=[1]}', ["task[0]", "{x}"]),
        ('[[task]]\nname="a-{x}"\nmap={x=[1]}\ncommand="cat {x} > y"', ["is not given to a shell"]),
        ('[[task]]\nname="a-{x}"\nmap={x=[1]}\ncommand=["awk", "{next}"]', ["{next}", "{{next}} is a literal {next}"]),
        ('[[task]]\nname="a"\nmap={y=[1,2]}', ["same name"]),
        ('[[task]]\nname="a"\nmap={y="3-1"}', ["map.y"]),
        ('[[task]]\nname="a"\ninputs=["ghost"]', ["'ghost'"]),
        ('[[task]]\nname="a"\noutputs=["f"]\n[[task]]\nname="b"\noutputs=["f"]', ["task[1] 'b'", "'f'"]),
        ('[[task]]\nname="a"\nmemory="lots"', ["memory", "lots"]),
        ("task = 3", ["'task'"]),
        ("tasks = []", ["'tasks'"]),
        ("[[", ["not TOML"]),
        ("", ["empty"]),
    ],
)
def test_a_wrong_workflow_toml_is_refused_with_the_file_and_the_place(tmp_path, text, words):
    path = toml(tmp_path, text)
    with pytest.raises(BadInput) as refused:
        read(path)
    assert all(word in str(refused.value) for word in [str(path), *words])


def test_tasks_say_cpus_and_estimate_as_job_files_do(tmp_path):
    new = toml(tmp_path, '[[task]]\nname = "a"\ncommand = "true"\ncpus = 2\nestimate = "5m"\n')
    (task,) = read(new).tasks
    older = toml(tmp_path, '[[task]]\nname = "a"\ncommand = "true"\ncores = 2\nruntime_s = 300\n')
    assert (task.cores, task.runtime_s) == (2, 300.0)
    (same,) = read(older).tasks
    assert (same.cores, same.runtime_s) == (2, 300.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("cpus = 2\ncores = 2", "cpus and cores say the same"),
        ('estimate = "5m"\nruntime_s = 300', "estimate and runtime_s say the same"),
        ("cpus = 0", "cpus is 0"),
        ('estimate = "5:00"', "is a clock time, and a duration is needed"),
    ],
)
def test_wrong_needs_of_a_task_are_refused(tmp_path, fields, words):
    with pytest.raises(BadInput, match=words):
        read(toml(tmp_path, f'[[task]]\nname = "a"\ncommand = "true"\n{fields}\n'))


def test_an_input_that_lies_beside_the_workflow_needs_no_maker(tmp_path):
    (tmp_path / "raw.csv").write_text("1")
    read(toml(tmp_path, '[[task]]\nname="a"\ninputs=["raw.csv"]'))


def test_offers_have_the_fields_of_the_documentation(tmp_path):
    path = tmp_path / "offers.toml"
    path.write_text(
        '[[offer]]\nname="a"\ncores=2\nmemory_gb=4\nspeed={default=1.0,fit=2}\nprice_usd=1\ncycle_s=60\nlag_s=5\n'
        'market="spot"\nlimit=3\n[[offer]]\nname="b"\nprice_usd=0.5'
    )
    first, second = read_offers(path)
    assert (first.speed_for("fit"), first.speed_for("other"), first.limit) == (2.0, 1.0, 3)
    assert (second.cores, second.cycle_s, second.market, second.limit) == (1, 3600.0, "on-demand", None)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        '[[offer]]\nname="a"',
        '[[offer]]\nname="a"\nprice_usd=-1',
        '[[offer]]\nname="a"\nprice_usd=1\nspeed=0',
        '[[offer]]\nname="a"\nprice_usd=1\nmarket="barter"',
        '[[offer]]\nname="a"\nprice_usd=1\nlmit=3',
        '[[offer]]\nname="a"\nprice_usd=1\n[[offer]]\nname="a"\nprice_usd=2',
    ],
)
def test_wrong_offers_are_refused_with_the_file(tmp_path, text):
    path = tmp_path / "offers.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"offers\.toml"):
        read_offers(path)


@pytest.mark.skipif(data.root() is None, reason="the trace data is not here (WINDFALL_DATA)")
def test_every_recorded_workflow_is_understood():
    files = sorted(data.find("workflows").rglob("*.json"))
    sizes = [read(path).for_planning().graph.tasks for path in files]
    assert files
    assert min(sizes) >= 5


# -- gathering, sizes, scripts ---------------------------------------------------------------------------------------


def test_a_pattern_gathers_the_outputs_of_mapped_tasks(tmp_path):
    path = toml(
        tmp_path,
        '[[task]]\nname="merge"\ncommand="true"\ninputs=["fit-*.json"]\noutputs=["fit-all.json"]\n'
        '[[task]]\nname="fit-{x}"\nmap={x="1-2"}\ncommand="true"\noutputs=["fit-{x}.json"]\n',
    )
    merge = read(path).tasks[0]
    assert merge.inputs == ("fit-1.json", "fit-2.json"), "and not its own output"
    assert sorted(read(path).graph.parent_rows()[0]) == [1, 2]


def test_a_pattern_that_a_task_declares_is_passed_on_as_it_is(tmp_path):
    path = toml(
        tmp_path,
        '[[task]]\nname="split"\ncommand="true"\noutputs=["part-*"]\n'
        '[[task]]\nname="join"\ncommand="true"\ninputs=["part-*"]\n',
    )
    assert read(path).tasks[1].inputs == ("part-*",)


def test_memory_has_the_same_units_as_in_a_job_file(tmp_path):
    (task,) = read(toml(tmp_path, '[[task]]\nname = "a"\ncommand = "true"\nmemory = "4G"\n')).tasks
    assert task.memory_bytes == parse_memory("4G").bytes_ == 4 << 30


def test_a_parameter_of_a_map_is_data_in_a_script(tmp_path):
    path = toml(tmp_path, '[[task]]\nname="a"\nmap={x=["$(id)"]}\ncommand=["sh", "-c", "echo {x}"]\n')
    (task,) = read(path).tasks
    assert task.command == ("sh", "-c", 'echo "${WINDFALL_ARG_1}"')
    assert task.env == {"WINDFALL_ARG_1": "$(id)"}


def test_doubled_braces_are_a_literal_in_a_mapped_task(tmp_path):
    lines = ["[[task]]", 'name="a"', "map={x=[7]}", """command=["sh", "-c", "awk '{{print}}' {x} ${{HOME}}"]"""]
    (task,) = read(toml(tmp_path, "\n".join(lines))).tasks
    assert task.command[2] == """awk '{print}' "${WINDFALL_ARG_1}" ${HOME}"""
    assert task.env == {"WINDFALL_ARG_1": "7"}


def test_a_shell_that_a_mapped_command_calls_itself_may_have_any_script(tmp_path):
    path = toml(tmp_path, """[[task]]\nname="a-{x}"\nmap={x=[1]}\ncommand="sh -c 'test {x} && cat {x} > y'"\n""")
    (task,) = read(path).tasks
    assert task.command[:2] == ("sh", "-c") and "&& cat" in task.command[2]


def test_job_files_and_workflows_are_told_apart(tmp_path):
    assert is_workflow_file(toml(tmp_path, '[[task]]\nname = "a"\ncommand = "true"\n'))
    assert not is_workflow_file(toml(tmp_path, '[job]\ncommand = "echo {}"\nrange = "1-2"\n'))
    assert not is_workflow_file(toml(tmp_path, '[[task]]\ncommand = "true"\n'))
    assert not is_workflow_file(toml(tmp_path, "[[ not toml"))
    assert not is_workflow_file(tmp_path / "nowhere.toml")


def test_a_workflow_says_how_much_its_run_times_vary(tmp_path):
    task = '[[task]]\nname = "a"\ncommand = "true"\n'
    assert read(toml(tmp_path, task)).spread is None
    assert [read(toml(tmp_path, f"spread = {said}\n{task}")).spread for said in ("0", "0.4", "3")] == [0.0, 0.4, 3.0]


@pytest.mark.parametrize("said", ["-0.1", "3.1", '"0.3"', "true", "nan", "[0.3]"])
def test_a_spread_that_cannot_be_is_refused_with_the_file(tmp_path, said):
    path = toml(tmp_path, f'spread = {said}\n[[task]]\nname = "a"\ncommand = "true"\n')
    with pytest.raises(BadInput, match="spread is") as refused:
        read(path)
    assert str(refused.value).startswith(str(path)) and "0 (estimates are exact)" in refused.value.hint
