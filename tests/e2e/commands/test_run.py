"""`windfall run` and what goes with it, typed as a person would: real server, real worker, real processes."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.typed import WINDFALL, Shell

PYTHON = sys.executable


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    yield made
    made.close()


def outputs(shell, job="last"):
    """What the tasks of a job wrote, by number."""
    return {row["task"]: row["stdout"] for row in shell.windfall("results", job, "--json").lines}


# -- the five forms of input -----------------------------------------------------------------------------------------


def test_a_list_of_commands_runs_line_by_line(shell):
    shell.write("tasks.txt", "echo one\n# a remark\n\necho two | tr a-z A-Z\n")
    ended = shell.windfall("run", "tasks.txt")
    assert ended.code == 0, ended
    assert "2 tasks: 2 done" in ended.out
    assert outputs(shell) == {0: "one\n", 1: "TWO\n"}


def test_a_range_fills_the_placeholder(shell):
    assert shell.windfall("run", "--range", "5-9:2", "--", "echo", "n={}", "{#}").code == 0
    assert outputs(shell) == {0: "n=5 0\n", 1: "n=7 1\n", 2: "n=9 2\n"}


def test_the_columns_of_a_csv_fill_their_names_and_no_shell_sees_them(shell):
    shell.write("p.csv", "x,y\n1,$HOME\n2,; rm -rf /\n")
    assert shell.windfall("run", "--csv", "p.csv", "--", "echo", "{x}", "{y}").code == 0
    assert outputs(shell) == {0: "1 $HOME\n", 1: "2 ; rm -rf /\n"}


def test_the_lines_of_standard_input_are_parameters(shell):
    ended = shell.windfall("run", "--stdin", "--", "basename", "{}", stdin="/a/b.txt\n/c/d.txt\n")
    assert ended.code == 0, ended
    assert outputs(shell) == {0: "b.txt\n", 1: "d.txt\n"}


def test_a_job_file_says_it_all(shell):
    shell.write("job.toml", '[job]\nname = "greet"\ncommand = "echo hello {}"\nrange = "1-2"\nenv = {A = 1}\n')
    ended = shell.windfall("run", "-f", "job.toml", "--json")
    assert ended.code == 0, ended
    assert ended.document["name"] == "greet"
    assert outputs(shell, "greet") == {0: "hello 1\n", 1: "hello 2\n"}


# -- what a task sees ------------------------------------------------------------------------------------------------


def test_tasks_run_where_the_command_was_typed_with_the_environment_that_was_said(shell):
    (shell.directory / "sub").mkdir()
    shell.env["MINE"] = "passed on"
    shell.write("tasks.txt", 'echo "$(pwd) $MINE $OTHER"\n')
    assert shell.windfall("run", "tasks.txt", "--env", "MINE", "--env", "OTHER=set").code == 0
    assert outputs(shell) == {0: f"{shell.directory} passed on set\n"}


def test_a_command_alone_is_one_task_unless_lines_were_meant(shell):
    ended = subprocess.run(
        [*WINDFALL, "run", "--", "sh", "-c", "echo $((1 + 2)) 'a  b'"],
        cwd=shell.directory, env=shell.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0 and "job 1 'sh'  1 task: 1 done" in ended.stdout, ended
    assert shell.windfall("logs", "last").out == "0 | 3 a  b\n"
    piped = shell.windfall("run", "--", "echo", stdin="1\n2\n")
    assert piped.code == 2 and "| windfall run --stdin -- " in piped.err
    process = shell.start("run", "--", "echo", "{}")
    assert shell.finish(process).code == 2, "a placeholder has nothing to stand for"


def test_a_dry_run_prints_what_would_run_and_starts_nothing(shell):
    shell.write("p.csv", 'x,name\n1,"a b"\n2,"$(id)"\n')
    shown = shell.windfall("run", "--dry-run", "--csv", "p.csv", "--", "./fit", "{x}", "{name}")
    assert (shown.code, shown.out) == (0, "./fit 1 'a b'\n./fit 2 '$(id)'\n"), shown
    assert shown.err == "2 tasks; nothing was started\n" and not (shell.directory / ".windfall").exists()
    script = shell.windfall("run", "--dry-run", "--csv", "p.csv", "--", "sh", "-c", "echo {name}")
    ran = subprocess.run(["sh"], input=script.out, capture_output=True, text=True, check=True)
    assert ran.stdout == "a b\n$(id)\n", "the lines can be pasted"
    shell.write("tasks.txt", "echo one | wc -l\n")
    assert shell.windfall("run", "--dry-run", "tasks.txt").out == "echo one | wc -l\n"
    shell.write("w.toml", '[[task]]\nname = "a"\ncommand = "true"\n')
    assert shell.windfall("run", "--dry-run", "w.toml").out == "a | true\n"
    line = shell.windfall("run", "--dry-run", "--range", "3-3", "--json", "--", "echo").lines
    assert line == [{"task": 0, "command": "echo 3", "params": "3"}]


def test_inputs_are_sent_along_and_outputs_are_brought_back(shell):
    shell.write("data.txt", "3\n")
    script = 'echo $(( $(cat data.txt) * {} )) > out-{}.txt; test "$(pwd)" != "$HERE"'
    ended = shell.windfall(
        "run", "--range", "1-2", "--input", "data.txt", "--output", "out-{}.txt", "--env", f"HERE={shell.directory}",
        "--", "sh", "-c", script,
    )  # fmt: skip
    assert ended.code == 0, ended
    assert not (shell.directory / "out-1.txt").exists()
    ended = shell.windfall("results", "last", "--download", "got")
    assert "2 files in got" in ended.out
    assert (shell.directory / "got/0/out-1.txt").read_text() == "3\n"
    assert (shell.directory / "got/1/out-2.txt").read_text() == "6\n"


def test_outputs_that_tasks_of_one_directory_would_overwrite_are_warned_of(shell):
    write = ["--", "sh", "-c", "echo {} > out-{}.txt; cp out-{}.txt same.txt"]
    shared = shell.windfall("run", "--range", "1-2", "--output", "same.txt", *write)
    assert "write the same 'same.txt'" in shared.err and "--output 'same-{#}.txt'" in shared.err
    assert "same" not in shell.windfall("run", "--range", "1-1", "--output", "same.txt", *write).err, "one task"
    assert "same" not in shell.windfall("run", "--range", "1-2", "--output", "out-{}.txt", *write).err
    shell.write("data", "")
    own = shell.windfall("run", "--range", "1-2", "--input", "data", "--output", "same.txt", *write)
    assert own.code == 0 and "same" not in own.err, "with an input each task has a directory of its own"


def test_a_declared_output_that_is_missing_fails_the_task(shell):
    ended = shell.windfall("run", "--range", "1-1", "--output", "never.txt", "--max-failures", "1", "--", "true")
    assert ended.code == 1
    assert "declared output missing" in ended.out


def test_standard_input_of_a_task_is_what_was_said(shell):
    assert shell.windfall("run", "--range", "7-8", "--stdin-text", "n {}", "--", "cat").code == 0
    assert outputs(shell) == {0: "n 7", 1: "n 8"}


def test_a_task_over_its_time_or_memory_is_killed_and_the_cause_is_said(shell):
    eats = "x = bytearray(400_000_000); print(len(x))"
    limits = {"sleep 60": ["--wall", "1s"], f"{PYTHON} -c '{eats}'": ["--memory", "100M", "--fixed-memory"]}
    for (task, limit), cause in zip(limits.items(), ("time", "oom"), strict=True):
        shell.write("tasks.txt", f"{task}\n")
        ended = shell.windfall("run", "tasks.txt", *limit, "--max-failures", "1", "--json")
        assert ended.code == 1
        assert [group["cause"] for group in ended.document["failures"]] == [cause]


# -- how it ends -----------------------------------------------------------------------------------------------------

DOCUMENT = {
    "job", "name", "state", "tasks", "attempts", "elapsed_s", "down_s", "submitted_s", "finished_s", "mean_run_s",
    "waste", "stopped", "deadline_s", "missed_by_s", "failures", "money",
    "pools",
}  # fmt: skip
RESULT = {
    "task", "state", "attempt", "exit_code", "stdout", "stderr", "value", "host", "start_s", "end_s", "outputs",
    "cause", "text", "command", "params", "cpu_s", "peak_memory_bytes", "stored",
}  # fmt: skip


def test_the_document_of_a_run_has_the_shape_that_was_promised(shell):
    ended = shell.windfall("run", "--range", "1-3", "--json", "--", "true")
    assert ended.code == 0
    assert ended.err == ""
    document = ended.document
    assert set(document) == DOCUMENT
    assert document["tasks"] == {"total": 3, "done": 3, "failed": 0, "cancelled": 0}
    assert (document["job"], document["name"], document["state"], document["attempts"]) == (1, "true", "done", 3)
    assert 0 < document["elapsed_s"] <= document["finished_s"] - document["submitted_s"] + 0.001


def test_failures_are_grouped_by_cause_with_their_last_lines_and_what_to_try(shell):
    script = 'echo working >&2; if [ {} -gt 2 ]; then echo "singular matrix" >&2; exit 3; fi'
    ended = shell.windfall("run", "--range", "1-4", "--max-failures", "1", "--", "sh", "-c", script)
    assert ended.code == 1
    assert "4 tasks: 2 done, 2 failed" in ended.out
    assert "2 failed: exit code 3   task 2, 3" in ended.out
    assert "| singular matrix" in ended.out
    assert "windfall logs 1 2" in ended.out
    assert "windfall retry 1 --failed && windfall run --resume 1" in ended.out


def test_results_are_one_line_per_task_in_the_shape_that_was_promised(shell):
    shell.windfall(
        "run", "--range", "1-2", "--max-failures", "1", "--", "sh", "-c", "echo o; echo e >&2; exit $(({}-1))"
    )
    good, bad = shell.windfall("results", "last", "--json").lines
    assert set(good) == set(bad) == RESULT
    assert (good["task"], good["state"], good["exit_code"], good["stdout"], good["stderr"]) == (
        0,
        "done",
        0,
        "o\n",
        "e\n",
    )
    assert (bad["task"], bad["state"], bad["exit_code"], bad["cause"]) == (1, "failed", 1, "exit")
    assert (good["value"], good["outputs"], good["attempt"]) == (None, [], 1)
    assert good["start_s"] <= good["end_s"]


def test_a_deadline_that_passed_is_exit_code_4_and_the_work_is_done_all_the_same(shell):
    ended = shell.windfall("run", "--range", "1-1", "--deadline", "0.2s", "--json", "--", "sleep", "0.5")
    assert ended.code == 4, ended
    assert ended.document["state"] == "done"
    assert ended.document["missed_by_s"] > 0


def test_a_job_stops_early_when_too_many_tasks_have_failed(shell):
    ended = shell.windfall(
        "run", "--range", "1-200", "--max-failures", "1", "--max-failed-tasks", "3", "--json", "--", "false"
    )
    assert ended.code == 1
    tasks = ended.document["tasks"]
    assert 3 < tasks["failed"] < 200
    assert tasks["failed"] + tasks["cancelled"] == 200
    assert ended.document["stopped"]


def test_a_pipe_sees_no_progress(shell):
    ended = shell.windfall("run", "--range", "1-50", "--", "true")
    assert ended.err == ""
    assert len(ended.out.splitlines()) == 1


# -- stopping and going on -------------------------------------------------------------------------------------------


def started(shell):
    """How many tasks have left their mark."""
    return len(list((shell.directory / "marks").glob("*"))) if (shell.directory / "marks").exists() else 0


@pytest.fixture
def marking(shell):
    """Arguments of a run whose tasks leave a mark when they begin and when they end."""
    (shell.directory / "marks").mkdir()
    (shell.directory / "ends").mkdir()
    script = "touch marks/{}.$WINDFALL_ATTEMPT; sleep 0.5; touch ends/{}.$WINDFALL_ATTEMPT"
    return ["run", "--range", "1-8", "--slots", "2", "--", "sh", "-c", script]


def test_ctrl_c_lets_running_tasks_finish_and_the_same_command_goes_on(shell, marking):
    process = shell.start(*marking)
    shell.eventually(lambda: started(shell) >= 2)
    ended = shell.finish(process, signal.SIGINT)
    assert ended.code == 130
    assert "what runs may finish" in ended.err
    assert "windfall run --resume 1" in ended.err
    begun, finished = started(shell), len(list((shell.directory / "ends").glob("*")))
    assert begun == finished < 8
    status = json.loads(shell.windfall("status", "1", "--json").out)
    assert (status["state"], status["tasks"]["done"]) == ("paused", finished)

    again = shell.windfall(*marking)
    assert again.code == 0, again
    assert f"going on with job 1 'sh': {finished} of 8" in again.err
    assert "8 tasks: 8 done" in again.out
    assert started(shell) == 8, "a task that had ended was run again"


def test_ctrl_c_twice_stops_at_once_and_resume_goes_on(shell, tmp_path):
    shell.write("tasks.txt", "sleep 100\necho quick\n")
    process = shell.start("run", "tasks.txt")
    shell.eventually(lambda: "1 done" in shell.windfall("status", "1").out)
    ended = shell.finish(process, signal.SIGINT, signal.SIGINT)
    assert ended.code == 130
    assert "stopped with 1 of 2 done" in ended.err
    assert processes_in(tmp_path) == []
    status = json.loads(shell.windfall("status", "last", "--json").out)
    assert status["tasks"]["running"] == 0
    shell.windfall("cancel", "last", "0")
    ended = shell.windfall("run", "--resume", "last", "--json")
    assert ended.document["tasks"] == {"total": 2, "done": 1, "failed": 0, "cancelled": 1}


def processes_in(directory):
    """Processes whose working directory lies here."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = (process / "cwd").readlink()
        except OSError:
            continue
        if where.is_relative_to(directory) and process.name != str(os.getpid()):
            found.append(process.name)
    return found


def test_a_run_that_was_killed_leaves_no_process_and_goes_on(shell, marking, tmp_path):
    process = shell.start(*marking)
    shell.eventually(lambda: started(shell) >= 3)
    shell.finish(process, signal.SIGKILL)
    shell.eventually(lambda: processes_in(tmp_path) == [])
    again = shell.windfall(*marking)
    assert again.code == 0, again
    assert "8 tasks: 8 done" in again.out


def workers_in(directory):
    """Process numbers of the workers below here: a process may end while we look, or a child not yet be itself."""
    found = []
    for number in processes_in(directory):
        with contextlib.suppress(OSError):
            if b"windfall.worker\0--server" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(int(number))
    return found


def test_a_worker_that_was_killed_is_followed_by_another_and_the_run_goes_on(shell, marking, tmp_path):
    process = shell.start(*marking)
    shell.eventually(lambda: started(shell) >= 3)
    shell.eventually(lambda: len(workers_in(tmp_path)) == 1)
    os.kill(min(workers_in(tmp_path)), signal.SIGKILL)
    ended = shell.finish(process)
    assert ended.code == 0, ended
    assert "8 tasks: 8 done" in ended.out


def test_sigterm_stops_in_good_order(shell, marking, tmp_path):
    process = shell.start(*marking)
    shell.eventually(lambda: started(shell) >= 1)
    ended = shell.finish(process, signal.SIGTERM)
    assert ended.code == 143
    assert "windfall run --resume 1" in ended.err
    assert processes_in(tmp_path) == []


def test_a_finished_command_typed_again_is_a_new_job(shell):
    for number in (1, 2):
        ended = shell.windfall("run", "--range", "1-2", "--json", "--", "true")
        assert (ended.code, ended.document["job"]) == (0, number)


def test_an_unfinished_job_does_not_start_because_another_one_was_typed(shell, marking):
    process = shell.start(*marking)
    shell.eventually(lambda: started(shell) >= 1)
    shell.finish(process, signal.SIGKILL)
    begun = started(shell)
    ended = shell.windfall("run", "--range", "1-2", "--", "true")
    assert ended.code == 0
    assert "job 1 'sh' is unfinished: windfall run --resume 1" in ended.err
    assert started(shell) == begun


def test_two_runs_in_one_directory_share_one_server(shell):
    first = shell.start("run", "--range", "1-2", "--name", "first", "--", "sleep", "1")
    shell.eventually(lambda: (shell.directory / ".windfall/server.json").exists())
    second = shell.start("run", "--range", "1-2", "--name", "second", "--", "sleep", "1")
    for process, name in ((first, "first"), (second, "second")):
        ended = shell.finish(process)
        assert ended.code == 0, ended
        assert f"'{name}'  2 tasks: 2 done" in ended.out


def test_when_the_run_that_holds_the_server_is_killed_the_other_takes_over(shell):
    first = shell.start("run", "--range", "1-1", "--name", "first", "--", "sleep", "100")
    shell.eventually(lambda: (shell.directory / ".windfall/server.json").exists())
    second = shell.start("run", "--range", "1-6", "--name", "second", "--", "sleep", "0.5")
    shell.eventually(lambda: "second" in shell.windfall("status").out)
    shell.finish(first, signal.SIGKILL)
    shell.windfall("cancel", "first")
    ended = shell.finish(second)
    assert ended.code == 0, ended
    assert "6 tasks: 6 done" in ended.out


# -- afterwards ------------------------------------------------------------------------------------------------------


def test_failed_tasks_are_tried_again_in_place(shell):
    script = "test {} != 2 || test -e fixed"
    assert shell.windfall("run", "--range", "1-3", "--max-failures", "1", "--", "sh", "-c", script).code == 1
    (shell.directory / "fixed").touch()
    ended = shell.windfall("retry", "last", "--failed")
    assert "1 task will be tried again" in ended.out
    assert "windfall run --resume 1" in ended.err
    ended = shell.windfall("run", "--resume", "last", "--json")
    assert (ended.code, ended.document["job"], ended.document["attempts"]) == (0, 1, 4)
    rows = shell.windfall("tasks", "1", "--json").lines
    assert [(row["task"], row["state"], row["attempt"]) for row in rows] == [
        (0, "done", 1),
        (1, "done", 2),
        (2, "done", 1),
    ]


def test_looking_at_a_job_in_every_way(shell):
    shell.windfall("run", "--range", "1-3", "--max-failures", "1", "--", "sh", "-c", "echo out {}; test {} != 2")
    assert "2 done, 1 failed" in shell.windfall("status", "last").out
    assert json.loads(shell.windfall("status", "--json").out)["jobs"][0]["job"] == 1
    assert [row["task"] for row in shell.windfall("tasks", "--state", "failed", "--json").lines] == [1]
    (failed,) = shell.windfall("tasks", "--cause", "exit", "--json").lines
    assert failed["task"] == 1
    there = ("--host", failed["host"])
    assert len(shell.windfall("tasks", *there, "--cause", "done", "--json").lines) == 2
    refused = shell.windfall("tasks", "--host", "nowhere")
    assert refused.code == 2 and "there is no host 'nowhere'" in refused.err
    refused = shell.windfall("tasks", "--group-by", "cause", *there)
    assert refused.code == 2 and "without --state" in refused.err
    groups = json.loads(shell.windfall("tasks", "--group-by", "cause", "--json").out)["groups"]
    assert [(group["cause"], group["exit_code"], group["count"], group["tasks"]) for group in groups] == [
        ("exit", 1, 1, [1])
    ]
    assert shell.windfall("logs", "sh.0").out == "out 1\n"
    assert shell.windfall("logs", "last", "1").out == "out 2\n"
    assert sorted(shell.windfall("logs", "last").out.splitlines()) == ["0 | out 1", "1 | out 2", "2 | out 3"]
    assert shell.windfall("wait", "last").code == 1
    events = shell.windfall("events", "--json").lines
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert {"JobSubmitted", "TasksAdded", "JobSealed", "HostAsked", "ResultsReported"} <= {e["type"] for e in events}
    hosts = json.loads(shell.windfall("host", "list", "--json").out)["hosts"]
    assert [(host["done"], host["failed"]) for host in hosts] == [(2, 1)]
    assert json.loads(shell.windfall("host", "info", hosts[0]["host"], "--json").out)["slots"] >= 1


def test_a_reader_that_goes_away_is_no_error(shell):
    assert shell.windfall("run", "--range", "1-3000", "--", "true").code == 0
    for command in (["tasks"], ["results"], ["results", "--json"], ["events"]):
        process = shell.start(*command)
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(30), said) == (0, ""), command


def test_the_events_of_a_job_hold_its_results_and_nobody_elses(shell):
    for count in ("3", "2"):
        assert shell.windfall("run", "--range", f"1-{count}", "--", "true").code == 0
    for job, tasks in ((1, 3), (2, 2)):
        of_job = shell.windfall("events", str(job), "--json").lines
        results = [result for event in of_job for result in event["event"].get("results", ())]
        assert sorted({(result["job"], result["task"]) for result in results}) == [(job, task) for task in range(tasks)]


def test_waiting_for_what_nobody_runs_is_refused(shell):
    ended = shell.windfall("submit", "--range", "1-2", "--", "true")
    assert (ended.code, ended.out) == (0, "1\n")
    ended = shell.windfall("wait", "last")
    assert ended.code == 3
    assert "windfall run --resume 1" in ended.err
    assert "try: windfall run --resume 1" in shell.windfall("explain", "last").out
    assert shell.windfall("run", "--resume", "1").code == 0


def test_the_demo_shows_a_bag_with_its_failures(shell):
    ended = shell.windfall("demo", "--tasks", "113", "--dir", "demo", "--json")
    assert ended.code == 0, ended
    document = ended.document
    assert set(document) == DOCUMENT
    assert document["tasks"] == {"total": 113, "done": 112, "failed": 1, "cancelled": 0}
    assert document["attempts"] == 113 + 2 + 2  # two tasks fail once, one fails three times
    assert "the dartboard is gone" in json.dumps(document["failures"])


def test_the_demo_of_a_deadline_keeps_it_and_says_what_it_cost(shell):
    ended = shell.windfall("demo", "deadline", "--dir", "demo", "--json")
    assert ended.code == 0, ended
    shown = json.loads(ended.out)
    assert shown["tasks"]["done"] == 60
    assert shown["money"]["cost_usd"] > 0


def test_failures_with_their_parameters_in_the_message_are_one_group_and_the_limit_holds(shell):
    script = 'case {} in 7) kill -9 $$;; 8) exit 3;; *) echo "bad seed {}, see /tmp/run-{}/log" >&2; exit 1;; esac'
    ended = shell.windfall("run", "--range", "1-9", "--max-failures", "1", "--", "sh", "-c", script)
    assert "7 failed: exit code 1   task 0, 1, 2, 3, 4, ..." in ended.out
    assert "1 failed: killed by SIGKILL   task 6" in ended.out
    assert "1 failed: exit code 3   task 7" in ended.out
    assert len(shell.windfall("tasks", "--group-by", "cause", "--limit", "2", "--json").document["groups"]) == 2
    few = shell.windfall("tasks", "--group-by", "cause", "--limit", "2").out
    assert "and 1 in 1 other group" in few


def test_a_task_that_could_not_start_says_why_in_logs_and_in_explain(shell):
    shell.windfall("run", "--range", "1-1", "--max-failures", "1", "--", "./nonexistent", "{}")
    why = "program not found or not executable: ./nonexistent: No such file or directory"
    ended = shell.windfall("logs", "last", "0")
    assert (ended.code, ended.out, ended.err) == (0, "", f"windfall: task 0 wrote nothing: {why}\n")
    assert shell.windfall("logs", "last").err == f"windfall: task 0 wrote nothing: {why}\n"
    assert shell.windfall("logs", "last", "0", "--json").document["cause"] == "no-command"
    assert why in shell.windfall("explain", "last.0").out


def test_results_leave_as_a_table_with_parameters_command_and_memory(shell):
    shell.write("p.csv", "x,host\n1,a\n2,b\n")
    assert shell.windfall("run", "--csv", "p.csv", "--", "echo", "{x}", "{host}").code == 0
    ended = shell.windfall("results", "last", "--csv", "out/table.csv")
    assert (ended.code, ended.out) == (0, "out/table.csv: 2 rows\n"), ended
    with open(shell.directory / "out" / "table.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["x"], first["parameter_host"], first["command"], first["stdout"]) == ("1", "a", "echo 1 a", "1 a\n")
    assert second["exit_code"] == "0" and int(second["peak_memory_bytes"]) > 0 and float(second["run_s"]) >= 0
    assert shell.windfall("results", "last", "--json", "table.json").out == "table.json: 2 rows\n"
    assert [row["x"] for row in json.loads((shell.directory / "table.json").read_text())] == ["1", "2"]
    assert len(shell.windfall("results", "--json", "last").lines) == 2, "a word that names no file is the job"
    line = shell.windfall("results", "last", "0", "--json").lines[0]
    assert (line["command"], line["params"]) == ("echo 1 a", {"x": "1", "host": "a"})
    head, *rows = shell.windfall("joblog", "last").out.splitlines()
    assert head.split("\t")[:4] == ["Seq", "Host", "Starttime", "JobRuntime"]
    assert sorted(row.split("\t")[8] for row in rows) == ["echo 1 a", "echo 2 b"]


def test_what_is_not_there_or_over_is_said_with_a_next_step(shell):
    shell.windfall("run", "--range", "1-3", "--", "true")
    assert shell.windfall("cancel", "last").out == "job 1 'true': 0 tasks cancelled: it has ended before\n"
    beyond = shell.windfall("logs", "last", "7")
    assert (beyond.code, beyond.err) == (
        2, "windfall: there is no task '7': job 1 has tasks 0 to 2\n  list them: windfall tasks 1\n"
    )  # fmt: skip
    failed = shell.windfall("run", "--range", "1-1", "--max-failures", "1", "--", "false")
    assert failed.code == 1 and "1 failed: exit code 1" in failed.out and "| exit code 1" not in failed.out
