"""What people try in their first hour, typed as they would type it. Real server, real worker, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.commands.typed import Shell
from tests.support.server.cluster import Cluster

CLOUD = """\
[[pool]]
name = "cloud"
kind = "emulated"
time_scale = 60
[[pool.offer]]
name = "steady"
cores = 2
price_usd = 0.10
cycle_s = 900
lag_s = 60
limit = 4
"""


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "here").mkdir()
    made = Shell(tmp_path / "here")
    yield made
    made.close()


def outputs(shell, job="last"):
    return {row["task"]: row["stdout"] for row in shell.windfall("results", job, "--json").lines}


# -- what the tasks are ----------------------------------------------------------------------------------------------


def test_a_job_file_is_recognised_without_an_option(shell):
    shell.write("job.toml", '[job]\nname = "greet"\ncommand = "echo hello {}"\nrange = "1-2"\n')
    ended = shell.windfall("run", "job.toml")
    assert ended.code == 0, ended
    assert outputs(shell, "greet") == {0: "hello 1\n", 1: "hello 2\n"}


def test_a_workflow_file_is_recognised_without_an_option_and_gathers_mapped_outputs(shell):
    shell.write(
        "flow.toml",
        '[[task]]\nname = "merge"\ncommand = "cat fit-*.txt > all.txt; cat all.txt"\ninputs = ["fit-*.txt"]\n'
        '[[task]]\nname = "fit-{x}"\nmap = { x = "1-3" }\noutputs = ["fit-{x}.txt"]\n'
        'command = ["sh", "-c", "echo fit {x} > fit-{x}.txt"]\n',
    )
    ended = shell.windfall("run", "flow.toml")
    assert ended.code == 0, ended
    assert "fit 1\nfit 2\nfit 3\n" in outputs(shell).values()


def test_the_only_pool_of_a_pools_file_is_used(shell):
    shell.write("cloud.toml", CLOUD)
    ended = shell.windfall("run", "--range", "1-2", "--deadline", "10m", "--pools", "cloud.toml", "--", "echo", "{}")
    assert ended.code == 0, ended
    assert "--pool cloud" in ended.err


def test_of_two_pools_one_must_be_named(shell):
    shell.write("two.toml", CLOUD + CLOUD.replace('"cloud"', '"other"'))
    ended = shell.windfall("run", "--range", "1-2", "--deadline", "10m", "--pools", "two.toml", "--", "echo", "{}")
    assert ended.code == 2
    assert "add --pool NAME: cloud, other" in ended.err


def test_a_line_never_reaches_a_shell_as_code(shell):
    ended = shell.windfall("run", "--stdin", "--", "sh", "-c", "echo {}", stdin="$(touch X)\n")
    assert ended.code == 0, ended
    assert outputs(shell) == {0: "$(touch X)\n"}
    assert not (shell.directory / "X").exists()
    assert "never as code" in ended.err


@pytest.mark.parametrize(
    ("option", "words"),
    [(["--memory", "5"], ["5 bytes", "did you mean 5G?"]), (["--cwd", "/nonexistent"], ["no such directory"])],
)
def test_a_limit_or_a_directory_that_cannot_work_is_refused_at_once(shell, option, words):
    ended = shell.windfall("run", *option, "--range", "1-3", "--", "echo", "{}")
    assert ended.code == 2
    assert all(word in ended.err for word in words)
    assert not (shell.directory / ".windfall").exists()


def test_variables_and_directories_take_placeholders(shell):
    for name in ("d1", "d2"):
        (shell.directory / name).mkdir()
    ended = shell.windfall("run", "--range", "1-2", "--env", "S=seed-{}", "--cwd", "d{}", "--", "sh", "-c",
                           'echo "$S $(basename "$(pwd)")"')  # fmt: skip
    assert ended.code == 0, ended
    assert outputs(shell) == {0: "seed-1 d1\n", 1: "seed-2 d2\n"}


def test_the_number_of_a_task_is_the_same_everywhere(shell):
    assert shell.windfall("run", "--range", "5-6", "--", "sh", "-c", "echo {#} $WINDFALL_TASK {}").code == 0
    assert outputs(shell) == {0: "0 0 5\n", 1: "1 1 6\n"}


# -- a list that has changed -----------------------------------------------------------------------------------------


@pytest.fixture
def stopped(shell):
    """A list of which the first task has ended, stopped by Ctrl-C twice."""
    shell.write("tasks.txt", "echo one\nsleep 60\n")
    process = shell.start("run", "tasks.txt")
    shell.eventually(lambda: "1 done" in shell.windfall("status", "1").out)
    shell.finish(process, signal.SIGINT, signal.SIGINT)
    shell.windfall("cancel", "1", "1")
    return shell


def test_lines_appended_to_the_list_of_a_stopped_job_are_appended_to_the_job(shell):
    shell.write("list.txt", "one\ntwo\n")
    script = "while ! test -e go; do sleep 0.05; done; echo {}"
    command = ["run", "list.txt", "--slots", "1", "--", "sh", "-c", script]
    process = shell.start(*command)
    shell.eventually((shell.directory / ".windfall" / "server.json").exists)
    shell.eventually(lambda: shell.windfall("status", "1", "--json").document["tasks"]["running"] > 0)
    shell.finish(process, signal.SIGINT, signal.SIGINT)
    shell.write("go", "")
    shell.write("list.txt", "one\ntwo\nthree\n")
    again = shell.windfall(*command)
    assert again.code == 0, again
    assert "1 task appended to job 1: it has 3 now" in again.err
    assert outputs(shell, "1") == {0: "one\n", 1: "two\n", 2: "three\n"}


def test_a_list_that_was_edited_is_said_to_be_a_new_job(stopped):
    stopped.write("tasks.txt", "echo another\necho two\n")
    stopped.windfall("change", "1", "--pause")
    stopped.windfall("retry", "1", "--cancelled")
    ended = stopped.windfall("run", "tasks.txt")
    assert ended.code == 0, ended
    assert "the tasks have changed since job 1 was stopped" in ended.err
    assert "windfall run --resume 1" in ended.err
    assert outputs(stopped, "2") == {0: "another\n", 1: "two\n"}


def test_resume_appends_the_new_lines_of_a_list_to_a_job_that_has_ended(shell):
    shell.write("x.csv", "x\n1\n2\n")
    shell.windfall("run", "--csv", "x.csv", "--", "echo", "{x}")
    shell.write("x.csv", "x\n1\n2\n3\n")
    again = shell.windfall("run", "--resume", "last", "--csv", "x.csv", "--json", "--", "echo", "{x}")
    assert again.code == 0, again
    assert again.document["tasks"]["done"] == 3 and again.document["attempts"] == 3
    shell.write("x.csv", "x\n7\n2\n3\n4\n")
    other = shell.windfall("run", "--resume", "last", "--csv", "x.csv", "--", "echo", "{x}")
    assert other.code == 2 and "the first 3 tasks are not those of job 1" in other.err


def test_json_of_a_job_counts_appended_tasks(stopped):
    stopped.write("tasks.txt", "echo one\nsleep 60\necho three\n")
    ended = stopped.windfall("run", "--resume", "1", "tasks.txt", "--json")
    assert json.loads(ended.out)["tasks"] == {"total": 3, "done": 2, "failed": 0, "cancelled": 1}


# -- what was left ---------------------------------------------------------------------------------------------------


def test_status_without_a_server_says_so_and_as_of_when(shell):
    shell.write("tasks.txt", "echo one\nsleep 60\nsleep 60\n")
    process = shell.start("run", "tasks.txt", "--slots", "2")
    shell.eventually(lambda: "1 done" in shell.windfall("status", "1").out)
    assert shell.windfall("status", "1", "--json").document["server_runs"] is True
    shell.finish(process, signal.SIGKILL)
    one, table = shell.windfall("status", "1"), shell.windfall("status")
    assert "no server runs; as of " in one.out and " ago): " in one.out
    assert "host with" not in one.out and "windfall run --resume 1" in one.out
    assert "stopped" in table.out and "no server runs" in table.out
    document = shell.windfall("status", "1", "--json").document
    assert (document["server_runs"], document["hosts"], document["slots"]) == (False, 0, 0)


def test_tasks_without_a_server_are_said_to_be_old(shell):
    shell.write("tasks.txt", "echo one\nsleep 60\n")
    process = shell.start("run", "tasks.txt", "--slots", "2")
    shell.eventually(lambda: "1 done" in shell.windfall("status", "1").out)
    assert "no server runs" not in shell.windfall("tasks", "1").out
    shell.finish(process, signal.SIGKILL)
    assert "no server runs: tasks are shown as of " in (shown := shell.windfall("tasks", "1").out)
    assert shown.endswith("  continue: windfall run --resume 1\n")
    assert "no server runs" not in shell.windfall("tasks", "1", "0").out, "a task that has ended stays as it is"


def test_results_are_read_where_nothing_can_be_written(shell):
    shell.windfall("run", "--range", "1-1", "--", "echo", "{}")
    (shell.directory / ".windfall" / "server.json.new").mkdir()  # as a full disk: nothing can be written there
    ended = shell.windfall("results", "last", "--json")
    assert (ended.code, ended.lines[0]["stdout"]) == (0, "1\n"), ended
    assert "server.json cannot be written" in ended.err and "Traceback" not in ended.err


def test_resume_ends_the_job_of_an_executor_whose_program_was_killed(shell):
    shell.write(
        "calls.py",
        "import os, signal, time\nfrom windfall import Client\n"
        "executor = Client(slots=1).executor()\n"
        "executor.submit(len, 'ab').result()\n"
        "executor.submit(time.sleep, 0.5)\n"
        "time.sleep(0.5)\nos.kill(os.getpid(), signal.SIGKILL)\n",
    )
    subprocess.run([sys.executable, "calls.py"], cwd=shell.directory, env=shell.env, check=False, timeout=60)
    ended = shell.windfall("run", "--resume", "last", "--json")
    assert ended.code == 0, ended
    assert (ended.document["state"], ended.document["tasks"]["done"]) == ("done", 2)
    assert "left by a Python program" in ended.err


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_tail_prints_lines_as_they_are_written(shell):
    process = shell.start("run", "--range", "1-1", "--tail", "--", "sh", "-c",
                          "echo first; while ! test -e go; do sleep 0.05; done; echo last {}")  # fmt: skip
    assert process.stdout.readline() == "0 | first\n", "before the task has ended"
    shell.write("go", "")
    ended = shell.finish(process)
    assert ended.code == 0, ended
    assert "0 | last 1\n" in ended.out
    assert "1 task: 1 done" in ended.out


def test_logs_of_a_running_task_show_what_it_has_written_so_far(shell):
    script = "test {} = 1 && echo early; while ! test -e go; do sleep 0.05; done; echo late"
    process = shell.start("run", "--range", "1-2", "--slots", "2", "--", "sh", "-c", script)
    shell.eventually(lambda: "2 running" in shell.windfall("status", "last").out)
    shell.eventually(lambda: shell.windfall("logs", "last", "0").out == "early\n")
    silent, all_ = shell.windfall("logs", "last", "1"), shell.windfall("logs", "last")
    shell.write("go", "")
    assert shell.finish(process).code == 0
    assert (silent.out, silent.err) == ("", "windfall: task 1 runs, and has written nothing yet\n")
    assert (all_.out, all_.err) == ("", "windfall: nothing of job 1 'sh' has ended yet; -f waits for it\n")
    assert shell.windfall("logs", "last", "0").out == "early\nlate\n"


def test_the_story_of_a_task_begins_with_its_command(shell):
    shell.write("p.csv", "name\nMüller & Söhne\n")
    shell.windfall("run", "--csv", "p.csv", "--max-failures", "1", "--", "test", "{name}", "=", "x")
    told = shell.windfall("explain", "last.0").out.splitlines()
    assert told[:2] == ["task 0 of job 1 'test' has failed.", "  its command: test 'Müller & Söhne' = x"]


def test_tasks_are_named_by_ranges_in_every_command(shell):
    shell.windfall("run", "--range", "0-9", "--max-failures", "1", "--", "sh", "-c", "echo n{}; test {} != 5")
    assert [row["task"] for row in shell.windfall("results", "1", "2-4,9", "--json").lines] == [2, 3, 4, 9]
    assert [row["task"] for row in shell.windfall("tasks", "1", "2-4", "7", "--json").lines] == [2, 3, 4, 7]
    assert shell.windfall("logs", "1", "1-2").out == "1 | n1\n2 | n2\n"
    assert shell.windfall("retry", "1", "0-9", "--json").document["retried"] == 1
    shell.windfall("submit", "--range", "0-99", "--name", "c", "--", "echo")
    assert shell.windfall("cancel", "c", "20-29", "31", "--json").document["cancelled"] == 11
    reversed_ = shell.windfall("cancel", "c", "9-3")
    assert reversed_.code == 2 and "write 3-9" in reversed_.err
    unknown = shell.windfall("tasks", "c", "98-101")
    assert unknown.code == 2 and "there is no task '101': job 2 has tasks 0 to 99" in unknown.err
    beyond = shell.windfall("cancel", "c", "98-101")
    assert beyond.code == 2 and "there is no task 100: its last is 99" in beyond.err


def test_jobs_that_have_ended_are_forgotten(shell):
    shell.windfall("run", "--name", "old", "--range", "1-3", "--", "echo", "{}")
    shell.windfall("submit", "--name", "open", "--range", "1-3", "--", "echo", "{}")
    refused = shell.windfall("forget", "old", "open", "--yes")
    assert refused.code == 2 and "job 2 'open' has not ended" in refused.err
    unsaid = shell.windfall("forget", "old")
    assert unsaid.code == 2 and "--yes" in unsaid.err
    assert len(outputs(shell, "old")) == 3, "nothing is forgotten yet"
    assert shell.windfall("forget", "old", "1", "--yes").out == "job 1 'old' is forgotten\n"
    for command in ("status", "results", "explain"):
        gone = shell.windfall(command, "1")
        assert gone.code == 2 and "job 1 was forgotten" in gone.err
    assert [row["job"] for row in shell.windfall("status", "--json").document["jobs"]] == [2]


# -- servers and hosts -----------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path / "cluster")
    made.directory.mkdir()
    made.start_server()
    yield made
    made.close()


def test_every_command_takes_a_token_from_a_file(shell, cluster):
    place = ["--server", cluster.url, "--token-file", str(cluster.state / "token")]
    assert shell.windfall("status", *place).code == 0
    sent = shell.windfall("submit", "--range", "1-2", *place, "--json", "--", "echo")
    assert sent.code == 0, sent
    told = shell.windfall("submit", "--range", "1-2", *place, "--", "echo")
    assert f"windfall status 2 {' '.join(place)}" in told.err
    refused = shell.windfall("status", "--server", cluster.url, "--token-file", "nowhere")
    assert refused.code == 2 and "nowhere: no such file" in refused.err
    refused = shell.windfall("status", "--server", cluster.url.replace("http:", "https:"), "--cafile", "nowhere")
    assert refused.code == 2 and "--cafile nowhere: No such file" in refused.err


def test_hosts_are_told_in_one_sentence_and_a_drained_worker_that_is_restarted_works_again(shell, cluster):
    place = ["--server", cluster.url, "--token-file", str(cluster.state / "token")]
    cluster.start_worker("w1")
    shell.eventually(lambda: "w1" in shell.windfall("host", "list", *place).out)
    blocked = shell.windfall("host", "block", "w1", "--for", "1h", *place)
    assert blocked.out == "host w1 gets no more tasks for 1h00m; it has none now\n"
    assert shell.windfall("host", "unblock", "w1", *place).out == "host w1 gets tasks again\n"
    drained = shell.windfall("host", "drain", "w1", *place)
    assert drained.out == "host w1 gets no more tasks, and its worker ends; it has none now\n"
    assert cluster.workers["w1"].wait(60) == 0
    cluster.start_worker("w1")
    ended = shell.windfall("run", "--range", "1-2", *place, "--", "echo", "{}")
    assert ended.code == 0, ended


def test_explain_of_a_failed_job_says_why_and_what_to_do(shell):
    script = 'test {} -lt 3 || { echo "seed {} is bad" >&2; exit 3; }'
    assert shell.windfall("run", "--range", "1-4", "--max-failures", "1", "--", "sh", "-c", script).code == 1
    told = shell.windfall("explain", "last")
    assert "2 of 4 tasks failed, 2 done" in told.out and "exit code 3   task 2, 3" in told.out
    assert "is bad" in told.out and "windfall logs 1 2" in told.out and "windfall retry 1 --failed" in told.out


def test_submit_refuses_a_directory_that_is_not_there(shell):
    ended = shell.windfall("submit", "--range", "1-4", "--cwd", "nowhere", "--", "echo", "{}")
    assert ended.code == 2 and "nowhere: no such directory" in ended.err
    assert shell.windfall("status").code == 3, "nothing was submitted"


def test_only_tasks_that_are_new_or_changed_run_again(shell):
    def done_by(*words: str) -> list[str]:
        ended = shell.windfall("run", "--changed", "--name", "fit", *words)
        assert ended.code == 0, ended
        return [out.strip() for out in outputs(shell).values()]

    shell.write("fit.sh", "cat $1 2>/dev/null || echo $1\n")
    csv = ("--csv", "runs.csv", "--", "sh", "fit.sh", "{x}")
    shell.write("runs.csv", "x\n1\n2\n")
    assert done_by(*csv) == ["1", "2"], "nothing was done before"
    shell.write("runs.csv", "x\n1\n2\n3\na.txt\n")
    old = shell.write("a.txt", "old\n")
    assert done_by(*csv) == ["3", "old"], "the new rows"
    again = shell.windfall("run", "--changed", "--name", "fit", *csv)
    assert again.code == 0 and "4 of 4 tasks done before and unchanged" in again.err and "jobs 1, 2" in again.err
    assert len(shell.windfall("status", "--json").document["jobs"]) == 2
    shell.write("a.txt", "new\n")
    later_s = old.stat().st_mtime + 3600
    os.utime(old, (later_s, later_s))
    assert done_by(*csv) == ["new"], "a file that a parameter names"
    refused = shell.windfall("run", "--changed", "--range", "1-2", "--", "echo", "{#}")
    assert refused.code == 2 and "{#}" in refused.err


WORKFLOW = """
name = "words"
[[task]]
name = "split"
command = "tr ' ' '\\n' < text.txt > words.txt"
inputs = ["text.txt"]
outputs = ["words.txt"]
[[task]]
name = "count"
command = "wc -w < words.txt"
inputs = ["words.txt"]
[[task]]
name = "sorted"
command = "sort {order} words.txt"
inputs = ["words.txt"]
"""


def test_only_tasks_of_a_workflow_that_have_changed_and_those_behind_them_run_again(shell):
    def ran(order: str = "", *more: str) -> dict[str, str]:
        shell.write("words.toml", WORKFLOW.replace("{order}", order))
        ended = shell.windfall("run", "--changed", "words.toml", *more)
        assert ended.code == 0, ended
        rows = shell.windfall("results", "last", "--json").lines
        return {row["name"]: row["stdout"] for row in rows}

    shell.write("text.txt", "b a")
    assert ran() == {"split": "", "count": "2\n", "sorted": "a\nb\n"}, "nothing was done before"
    assert ran("-r") == {"sorted": "b\na\n"}, "its file comes from the job before"
    nothing = shell.windfall("run", "--changed", "words.toml")
    assert nothing.code == 0 and "3 of 3 tasks done before and unchanged" in nothing.err and "jobs 1, 2" in nothing.err
    os.utime(shell.write("text.txt", "b a"))
    assert shell.windfall("run", "--changed", "words.toml").err == nothing.err, "the content counts, not the time"
    shell.write("text.txt", "c b a")
    assert ran("-r") == {"split": "", "count": "3\n", "sorted": "c\nb\na\n"}, "all that comes after a changed file"
    refused = shell.windfall("run", "--changed", "words.toml", "--cwd", ".")
    assert refused.code == 2 and "--cwd" in refused.err
