"""A workflow on its way to the server: rows, files, classes; what is refused before anything is sent."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pytest

from windfall.bags.chunks import decode
from windfall.bags.rendering import NOT_THERE, Renderer, Rows
from windfall.bags.settings import Settings
from windfall.bags.submission import Request
from windfall.errors import BadInput
from windfall.workflows.emulation import inside
from windfall.workflows.submission import instance_of, read_workflow

FIT = """
name = "fit"
[[task]]
name = "prepare"
command = "./prepare raw.csv"
inputs = ["raw.csv"]
outputs = ["clean.csv"]
[[task]]
name = "fit-{seed}"
map = { seed = "1-2" }
command = "fit --seed {seed} clean.csv"
inputs = ["clean.csv"]
outputs = ["fit-{seed}.json"]
cores = 2
env = { SEED = "{seed}" }
[[task]]
name = "merge"
command = "cat fit-1.json fit-2.json > all.json"
inputs = ["fit-1.json", "fit-2.json"]
outputs = ["all.json"]
wall = "5m"
max_failures = 1
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wf.toml").write_text(FIT)
    (tmp_path / "raw.csv").write_text("1,2\n")
    (tmp_path / "prepare").write_text("#!/bin/sh\n")
    (tmp_path / "prepare").chmod(0o755)
    return tmp_path


def submitted(folder, name="wf.toml", **said):
    settings = Settings(**said.pop("settings", {}))
    return read_workflow(Request(workflow=str(folder / name), settings=settings, **said))


def rows(bag):
    return [row for chunk in bag.chunks for row in decode(chunk.codec, chunk.data, chunk.count)]


def test_files_name_their_makers_and_those_from_outside_go_along(folder):
    bag = submitted(folder)
    by_name = {row.name: row for row in rows(bag)}
    numbers = [row.name for row in rows(bag)]
    assert by_name["prepare"].takes == [("raw.csv", -1), ("prepare", -1)], "its program lies beside the file"
    assert by_name["fit-2"].takes == [("clean.csv", numbers.index("prepare"))]
    assert by_name["merge"].takes == [(f"fit-{i}.json", numbers.index(f"fit-{i}")) for i in (1, 2)]
    assert [(file.name, file.mode) for file in bag.spec.files] == [("raw.csv", 0o644), ("prepare", 0o755)]
    assert set(bag.uploads) == {file.sha256 for file in bag.spec.files}
    assert hashlib.sha256(b"1,2\n").hexdigest() in bag.uploads


def test_tasks_of_equal_needs_stand_side_by_side_and_the_shape_follows(folder):
    bag = submitted(folder)
    names = [row.name for row in rows(bag)]
    assert [chunk.klass for chunk in bag.chunks] == [0, 1, 2]
    assert bag.spec.classes[0].cpus == 2.0
    assert (bag.spec.classes[1].wall_s, bag.spec.classes[1].max_failures) == (300.0, 1)
    parents = {names[i]: {names[p] for p in bag.shape.parents_of(i)} for i in range(4)}
    fits = {"fit-1", "fit-2"}
    assert parents == {"prepare": set(), "fit-1": {"prepare"}, "fit-2": {"prepare"}, "merge": fits}


def test_a_command_may_use_a_shell_if_it_has_no_parameters(folder):
    by_name = {row.name: row for row in rows(submitted(folder))}
    assert by_name["merge"].argv == ["/bin/sh", "-c", "cat fit-1.json fit-2.json > all.json"]
    assert by_name["fit-1"].argv == ["fit", "--seed", "1", "clean.csv"]
    assert by_name["fit-1"].env == {"SEED": "1"}


def test_with_a_working_directory_files_stay_where_they_are(folder):
    bag = submitted(folder, settings={"cwd": "/data"})
    assert not bag.spec.files and not any(row.takes for row in rows(bag))
    assert bag.shape.edges == 4, "files still say what waits for what"


def test_the_same_workflow_has_the_same_fingerprint_and_another_file_another(folder):
    before = submitted(folder).fingerprint
    assert submitted(folder).fingerprint == before
    (folder / "raw.csv").write_text("3,4\n")
    assert submitted(folder).fingerprint != before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'inputs = ["raw.csv"]',
            'inputs = ["raw.csv"]\nafter = "merge"',
            ["line 8, task[1]", "waits for itself: fit-1 -> merge -> prepare"],
        ),
        ('name = "merge"', 'name = "prepare"', ["line 15, task[2] 'prepare'", "same name", "line 2, task[0]"]),
        ('name = "merge"', 'name = "merge"\nafter = "prepair"', ["line 15, task[2] 'merge'", "'prepair'"]),
        ('inputs = ["clean.csv"]', 'inputs = ["claen.csv"]', ["line 7, task[1]", "'claen.csv'", "no task makes"]),
        ('outputs = ["all.json"]', 'outputs = ["fit-1.json"]', ["line 15, task[2]", "'fit-1.json'"]),
        ('outputs = ["all.json"]', 'outputs = ["../all.json"]', ["task[2] 'merge'", "../all.json"]),
        ('command = "./prepare raw.csv"', 'command = ""', ["task[0] 'prepare'", "no command"]),
        ('command = "fit --seed {seed} clean.csv"', 'command = "fit {seed} > x"', ["task[1]", "shell"]),
        ('wall = "5m"', 'wall = "soon"', ["task[2] 'merge'", "wall", "soon"]),
        ("max_failures = 1", "max_failures = 0", ["task[2] 'merge'", "max_failures"]),
        ("cores = 2", "cores = 0", ["task[1]", "cores"]),
    ],
)
def test_a_wrong_workflow_is_refused_with_its_line_and_field(folder, old, new, words):
    assert old in FIT
    (folder / "wf.toml").write_text(FIT.replace(old, new).lstrip("\n"))
    with pytest.raises(BadInput) as refused:
        submitted(folder)
    text = f"{refused.value.message} {refused.value.hint}"
    assert all(word in text for word in ["wf.toml", *words]), text


def test_a_file_from_outside_that_is_gone_is_refused(folder):
    (folder / "wf.toml").write_text('files = ["raw.csv"]\n' + FIT.replace('name = "fit"\n', "", 1))
    (folder / "raw.csv").unlink()
    with pytest.raises(BadInput, match=r"reads 'raw.csv', and there is no file"):
        submitted(folder)


def test_a_workflow_goes_with_no_other_source_of_tasks(folder):
    with pytest.raises(BadInput, match="--csv"):
        submitted(folder, csv="x.csv")
    with pytest.raises(BadInput, match="--time-scale goes with --emulate"):
        submitted(folder, time_scale=2.0)


# --- rendering ------------------------------------------------------------------------------------------------------


def test_a_task_gets_the_files_that_its_parents_made(folder):
    bag = submitted(folder)
    data = {chunk.first: chunk.data for chunk in bag.chunks}
    asked = []

    def made(tasks):
        asked.append(tasks)
        return {task: {f"fit-{i}.json": [f"fit-{i}.json", str(i) * 64, 5, 0o644]} for i, task in enumerate(tasks, 1)}

    renderer = Renderer(bag.spec, Rows(bag.chunks, data.__getitem__), made)
    merge = next(i for i in range(4) if renderer.name(i) == "merge")
    rendered = renderer.task(merge)
    assert rendered.overrides["inputs"] == [["fit-1.json", "1" * 64, 5, 0o644], ["fit-2.json", "2" * 64, 5, 0o644]]
    assert len(asked) == 1 and len(asked[0]) == 2, "all makers are asked for at once"
    assert rendered.overrides["outputs"] == ["all.json"]
    prepare = next(i for i in range(4) if renderer.name(i) == "prepare")
    assert [row[0] for row in renderer.task(prepare).overrides["inputs"]] == ["raw.csv", "prepare"]


def test_a_file_that_is_not_kept_any_more_fails_the_task_rather_than_the_server(folder):
    bag = submitted(folder)
    data = {chunk.first: chunk.data for chunk in bag.chunks}
    renderer = Renderer(bag.spec, Rows(bag.chunks, data.__getitem__))
    merge = next(i for i in range(4) if renderer.name(i) == "merge")
    assert [row[1] for row in renderer.task(merge).overrides["inputs"]] == [NOT_THERE] * 2


# --- recorded workflows ---------------------------------------------------------------------------------------------


def recorded(folder, **changes):
    tasks = [
        {"id": "a_ID01", "children": ["b_ID02"], "inputFiles": ["/data/in"], "outputFiles": ["/work/x.dat"]},
        {"id": "b_ID02", "parents": ["a_ID01"], "inputFiles": ["/work/x.dat"], "outputFiles": []},
    ]
    runs = [{"id": "a_ID01", "runtimeInSeconds": 3, "coreCount": 8, "memoryInBytes": 5e9}]
    runs += [{"id": "b_ID02", "runtimeInSeconds": 4.0, **changes}]
    files = [{"id": "/data/in", "sizeInBytes": 1}, {"id": "/work/x.dat", "sizeInBytes": 10**12}]
    document = {
        "name": "rec",
        "workflow": {"specification": {"tasks": tasks, "files": files}, "execution": {"tasks": runs}},
    }
    (folder / "wf.json").write_text(json.dumps(document))


def test_an_emulated_task_sleeps_as_long_as_it_ran_and_writes_what_it_wrote(folder):
    recorded(folder)
    bag = submitted(folder, "wf.json", emulate=True, time_scale=2.0)
    first, second = rows(bag)
    assert first.argv[:2] == ["sh", "-c"] and first.argv[4:] == ["1.500", "work/x.dat", "65536"]
    assert first.outputs == ["work/x.dat"] and not first.takes, "what came from outside is not there"
    assert second.takes == [("work/x.dat", 0)]
    assert not bag.spec.classes, "a sleep needs one core and no memory"


def test_a_recorded_workflow_without_commands_says_how_to_try_it(folder):
    recorded(folder)
    with pytest.raises(BadInput) as refused:
        submitted(folder, "wf.json")
    assert "has no command" in refused.value.message and "--emulate" in refused.value.hint


def test_no_recorded_path_leads_out_of_the_directory():
    assert [inside(name) for name in ("/a/b", "../../c", "a/./b//c", "/")] == ["a/b", "c", "a/b/c", "file"]


def test_a_time_scale_that_is_none_is_refused(folder):
    recorded(folder)
    with pytest.raises(BadInput, match="--time-scale"):
        submitted(folder, "wf.json", emulate=True, time_scale=-1.0)


# --- classes --------------------------------------------------------------------------------------------------------


def described(bag):
    return {"class": "nightly", "job": 7, "tasks": bag.count, "spec": msgspec.to_builtins(bag.spec)}


def test_a_job_of_a_class_has_its_own_deadline_and_files_and_nothing_is_sent_again(folder):
    first = submitted(folder, workflow_class="nightly", settings={"deadline": "1h", "env": {"A": "1"}})
    (folder / "other.csv").write_text("9\n")
    settings = Settings(deadline="2h", inputs=[f"raw.csv={folder / 'other.csv'}"], env={"B": "2"}, name="tuesday")
    bag = instance_of(described(first), Request(workflow_class="nightly", settings=settings))
    assert (bag.spec.like, bag.spec.deadline_s, bag.spec.name) == (7, 7200.0, "tuesday")
    assert bag.spec.env == {"A": "1", "B": "2"}
    assert bag.chunks == [] and bag.shape is None and bag.count == 4
    assert {file.name: file.size for file in bag.spec.files} == {"raw.csv": 2, "prepare": 10}


def test_a_deadline_is_each_jobs_own(folder):
    first = submitted(folder, workflow_class="nightly", settings={"deadline": "1h", "budget": "3"})
    bag = instance_of(described(first), Request(workflow_class="nightly"))
    assert bag.spec.deadline_s is None and bag.spec.budget_microusd is None


@pytest.mark.parametrize(
    ("settings", "word"), [({"memory": "3G"}, "'memory'"), ({"cwd": "/x"}, "'cwd'"), ({"outputs": ["x"]}, "'outputs'")]
)
def test_what_a_class_fixes_cannot_be_said_for_one_job(folder, settings, word):
    first = submitted(folder, workflow_class="nightly")
    with pytest.raises(BadInput, match=word):
        instance_of(described(first), Request(workflow_class="nightly", settings=Settings(**settings)))


def test_a_file_that_the_class_does_not_take_is_refused(folder):
    first = submitted(folder, workflow_class="nightly")
    (folder / "x").write_text("")
    with pytest.raises(BadInput, match="takes no file 'x'"):
        instance_of(described(first), Request(settings=Settings(inputs=[str(folder / "x")])))


def test_a_class_has_a_name_that_an_address_can_hold(folder):
    with pytest.raises(BadInput, match="class must be"):
        submitted(folder, workflow_class="a/b")
