"""Array scripts of Slurm as job files: what is carried over, and what is refused with its line and a next step."""

from __future__ import annotations

import tomllib

import pytest

from windfall.bags.sbatch import as_toml, read_sbatch
from windfall.errors import BadInput


def imported(*directives: str, body: str = "./sim\n", ignore: frozenset[str] = frozenset()):
    text = "#!/bin/bash -l\n" + "".join(f"#SBATCH {line}\n" for line in directives) + "\n" + body
    return read_sbatch(text, "array.sh", "/home/me/array.sh", "/home/me", ignore)


def test_a_job_file_says_what_the_script_said():
    found = imported("--array=1-100%4", "--time=1-02:30:00", "--mem=4G", "-c 2", "-J sweep", "-D /data", "--no-requeue")
    told = tomllib.loads(as_toml(found))["job"]
    assert (told["range"], told["wall"], told["memory"], told["cpus"]) == ("1-100", "95400s", "4096M", 2)
    assert (told["name"], told["cwd"], told["max_losses"], found.slots) == ("sweep", "/data", 1, 4)
    assert told["command"][-3:] == ["/bin/bash", "-l", "/home/me/array.sh"]
    assert told["env"]["SLURM_ARRAY_TASK_ID"] == "{}"
    assert told["env"]["SLURM_CPUS_PER_TASK"] == "2"
    assert as_toml(found).startswith("# At most 4 at once: windfall run --slots 4")


@pytest.mark.parametrize(
    ("array", "range_", "params", "ends"),
    [
        ("0-15", "0-15", None, ("16", "0", "15", "1")),
        ("1-7:2", "1-7:2", None, ("4", "1", "7", "2")),
        ("1-8:2", "1-8:2", None, ("4", "1", "7", "2")),
        ("5", "5-5", None, ("1", "5", "5", "1")),
        ("1,3,5-7,3", None, [1, 3, 5, 6, 7], ("5", "1", "7", "1")),
    ],
)
def test_arrays(array, range_, params, ends):
    found = imported(f"--array={array}")
    assert (found.job.get("range"), found.job.get("params")) == (range_, params)
    told = tuple(found.env[f"SLURM_ARRAY_TASK_{name}"] for name in ("COUNT", "MIN", "MAX", "STEP"))
    assert told == ends


@pytest.mark.parametrize(
    ("time", "wall"),
    [("90", "5400s"), ("90:30", "5430s"), ("1:30:00", "5400s"), ("2-0", "172800s"), ("1-1:1", "90060s"), ("0", None),
     ("UNLIMITED", None)],
)  # fmt: skip
def test_time_limits_are_read_as_slurm_reads_them(time, wall):
    assert imported(f"--time={time}").job.get("wall") == wall


@pytest.mark.parametrize(
    ("directives", "memory"),
    [(("--mem=500",), "500M"), (("--mem=2000K",), "2M"), (("--mem=0",), None),
     (("--mem-per-cpu=1G", "--cpus-per-task=4"), "4096M"), (("--mem-per-cpu=1G",), "1024M")],
)  # fmt: skip
def test_memory(directives, memory):
    assert imported(*directives).job.get("memory") == memory


def test_files_of_output_are_opened_by_the_tasks():
    script = imported("--array=1-3", "-o 'my logs/%x-%A_%4a.out'", "-e err/%j.%N", "-J s").job["command"][2]
    assert 'out=\'my logs/\'s-"$WINDFALL_JOB"_"$(printf %04d "$SLURM_ARRAY_TASK_ID")".out' in script
    assert 'exec "$@" >"$out" 2>"$err"' in script
    assert "2>&1" in imported("-o one").job["command"][2]


@pytest.mark.parametrize(
    ("directive", "gpus"),
    [("--gres=gpu", 1), ("--gres=gpu:2", 2), ("--gpus=3", 3), ("-G 1", 1)],
)
def test_gpus(directive, gpus):
    assert imported(directive).job["gpus"] == gpus


def test_a_later_directive_goes_before_an_earlier_one_and_the_body_has_none():
    found = imported("--mem=1G", "--mem=2G", body="./sim\n#SBATCH --mem=9G\n")
    assert found.job["memory"] == "2048M"


def test_braces_are_no_placeholders():
    found = imported("--export=ALL,A=x{y}z,B=", "--output={}.txt")
    assert found.env["A"] == "x{{y}}z"
    assert found.env["B"] == ""
    assert "out='{{}}.txt'" in found.job["command"][2]


@pytest.mark.parametrize("name", ["last", "17", ""])
def test_names_that_jobs_may_not_have_are_changed(name):
    assert imported(f"--job-name='{name}'" if name else "--job-name=''").job["name"] == f"job-{name}"


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ("--partition=short", r"array.sh line 2: --partition=short is not carried over[\s\S]*--ignore partition"),
        ("-p short", r"array.sh line 2: -p short is not carried over[\s\S]*--ignore partition"),
        ("--nodes=2", r"line 2: --nodes=2 asks for more than one process a task"),
        ("--ntasks=8", r"more than one process"),
        ("--array=5-1", r"is no list of numbers"),
        ("--array=1-x", r"is no list of numbers"),
        ("--array=1-9%0", r"no number of tasks behind '%'"),
        ("--array=0-1999999,7", r"lists 2,000,001 tasks"),
        ("--time=soon", r"is no time limit"),
        ("--mem=lots", r"line 2: --mem=lots.*is no size"),
        ("--cpus-per-task=0", r"whole number from 1 up"),
        ("--output=%q.out", r"'%q', which is not known"),
        ("--export=ALL,HOME2", r"passes HOME2 on"),
        ("--dependency=afterok:1", r"workflow"),
        ("--gres=fpga:1", r"--gres=fpga:1 is not carried over"),
        ("--gres=gpu:a100:2", r"asks for a type of card"),
        ("--gpus=a100:2", r"asks for a type of card"),
        ("--odd-thing=1", r"--odd-thing=1 is not carried over"),
        ("--array", r"needs a value"),
        ("--job-name='x", r"a quote is not closed"),
        ("word", r"'word' is no option"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_with_its_line(directive, words):
    with pytest.raises(BadInput) as refused:
        imported(directive)
    import re

    assert re.search(words, str(refused.value)), str(refused.value)


def test_what_is_ignored_is_left_out():
    found = imported("--partition=short", "--mem=1G", ignore=frozenset({"partition"}))
    assert found.job["memory"] == "1024M"
    assert "partition" not in found.job


def test_steps_of_slurm_are_refused_with_their_line():
    with pytest.raises(BadInput, match=r"array\.sh line 4: srun \./sim"):
        imported("--array=1-2", body="srun ./sim\n")
    assert imported("--array=1-2", body="srun ./sim\n", ignore=frozenset({"srun"}))


def test_a_script_without_interpreter_or_array():
    with pytest.raises(BadInput, match="line 1: no '#!'"):
        read_sbatch("#SBATCH --array=1-2\n", "x.sh", "/x.sh", "/")
    assert imported("--mem=1G").job["range"] == "0-0"
