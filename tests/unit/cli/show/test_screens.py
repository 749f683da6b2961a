"""What commands show, without a server: durations, tables, progress, summaries, exit codes, values."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import time

import pytest
from rich.console import Console

from windfall.cli.options import Place, literal
from windfall.cli.show import summary
from windfall.cli.show.output import fitted, moment, plural, print_table, rate
from windfall.cli.show.progress import Pace, Progress, bar
from windfall.cli.show.summary import document, exit_code, missed_by_s, print_groups, print_summary
from windfall.cli.show.values import shown_value


def status(state="done", done=10, failed=0, cancelled=0, running=0, total=10, deadline_s=None, **more):
    tasks = {"total": total, "done": done, "failed": failed, "cancelled": cancelled, "running": running}
    return {
        "job": 7, "name": "fit", "state": state, "tasks": tasks, "attempts": done + failed, "elapsed_s": 4.0,
        "submitted_s": 1000.0, "finished_s": 1004.0, "mean_run_s": 0.5, "waste": 0, "stopped": "", "causes": {},
        "deadline_s": deadline_s, "slots": 2, "hosts": 1, "version": 3, **more,
    }  # fmt: skip


GROUP = {
    "cause": "exit", "exit_code": 3, "count": 2, "tasks": [8, 9], "last_line": "singular matrix", "text": "exit code 3",
    "stderr_tail": "one\ntwo\nthree\nsingular matrix\n", "example": 8, "final": True,
}  # fmt: skip


def test_rates_are_a_second_or_a_minute():
    assert [rate(1234.5), rate(21.3), rate(0.05)] == ["1,234/s", "21.3/s", "3.0/min"]


def test_a_moment_of_another_day_has_its_date():
    assert len(moment(time.time())) == 8
    assert moment(0.0).startswith(("1970-01-01", "1969-12-31"))


def test_numbers_stand_to_the_right_and_names_to_the_left(capsys):
    print_table(["tasks", "name"], [[1, "a"], [1000, "long name"]])
    assert capsys.readouterr().out.splitlines() == ["tasks  name", "    1  a", "1,000  long name"]


def test_numbers_of_tasks_and_jobs_are_shown_as_they_are_typed(capsys):
    print_table(["job", "task", "tasks"], [[1204, 19997, 20000]])
    assert capsys.readouterr().out.splitlines()[1].split() == ["1204", "19997", "20,000"]
    assert (plural(1, "task"), plural(2000, "task")) == ("1 task", "2,000 tasks")


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (status(), 0),
        (status("failed", failed=1), 1),
        (status("cancelled", cancelled=3), 1),
        (status("paused"), 130),
        (status(deadline_s=1003.0), 4),
        (status(deadline_s=1005.0), 0),
        (status("failed", failed=1, deadline_s=1003.0), 1),
    ],
)
def test_the_exit_code_says_how_it_ended(made, code):
    assert exit_code(made) == code


def test_a_deadline_is_missed_by_the_last_result():
    assert missed_by_s(status(deadline_s=1003.0)) == 1.0
    assert missed_by_s(status()) is None


def test_the_document_counts_four_kinds_of_tasks():
    assert document(status(), [])["tasks"] == {"total": 10, "done": 10, "failed": 0, "cancelled": 0}


def test_a_summary_shows_causes_last_lines_and_what_to_try(capsys):
    retried = {**GROUP, "count": 1, "tasks": [4], "final": False, "last_line": "hiccup", "stderr_tail": "x\nhiccup\n"}
    print_summary(status("failed", done=8, failed=2, attempts=15), [retried, GROUP], Place(state="my dir"))
    assert capsys.readouterr().out.splitlines() == [
        "job 7 'fit'  10 tasks: 8 done, 2 failed   in 4.00 s (2.0/s)   5 extra attempts",
        "  2 failed: exit code 3   task 8, 9",
        "      | two",
        "      | three",
        "      | singular matrix",
        "  1 failed at first and went on: exit code 3   task 4",
        "      | hiccup",
        "what next:",
        "  output of a failed task              windfall logs 7 8 --state 'my dir'",
        "  run the failed tasks again           windfall retry 7 --failed --state 'my dir'",
        "  results of the other tasks           windfall results 7 --json --state 'my dir'",
    ]


def test_hosts_of_a_task_that_takes_several_are_no_extra_attempts(capsys):
    print_summary(status(attempts=33, parts=22), [], Place())
    assert capsys.readouterr().out.splitlines()[0].endswith("   1 extra attempt")


def test_many_groups_are_counted_not_listed(capsys):
    groups = [{**GROUP, "count": n, "tasks": [n], "exit_code": n} for n in range(1, 9)]
    print_summary(status("failed", failed=36, done=0, total=36), groups, Place())
    out = capsys.readouterr().out
    assert "8 failed: exit code 8" in out
    assert "and 6 in 3 other groups:   windfall tasks 7 --group-by cause" in out


def test_a_kind_with_many_messages_hides_no_other_kind(capsys):
    many = [{**GROUP, "count": 9, "last_line": f"message {n}"} for n in "abcdefgh"]
    rare = [{**GROUP, "cause": "oom", "exit_code": None, "count": 1}, {**GROUP, "cause": "no-command", "count": 1}]
    print_groups([*many, *rare], 5)
    out = capsys.readouterr().out
    assert "1 failed: out of memory" in out
    assert "1 failed: program not found" in out
    assert out.count("9 failed: exit code 3") == 3
    assert "and 45 in 5 other groups" in out


def test_failures_that_were_not_compared_are_counted(capsys):
    print_groups([{**GROUP, "count": 1500, "compared": False}])
    assert capsys.readouterr().out == "  1,500 more failed: exit code 3 (output not compared)   task 8, 9, ...\n"


def test_the_pace_is_that_of_the_last_while():
    pace = Pace()
    for second in range(100):
        pace.add(float(second), 10 * second if second < 50 else 500 + 2 * (second - 50))
    assert pace.per_second == pytest.approx(2.0)


def test_there_is_no_pace_before_something_has_ended():
    pace = Pace()
    pace.add(0.0, 0)
    pace.add(5.0, 0)
    assert pace.per_second is None


@pytest.mark.parametrize(("done", "failed"), [(0, 0), (0.5, 0), (0.99, 0.001), (0, 1), (1, 0), (0.3, 0.7)])
def test_a_bar_is_always_as_long_as_it_should_be(done, failed):
    text = bar(done, failed, 30)
    assert len(text.plain) == 30
    assert not failed or any(span.style == "red" for span in text.spans)


class FakeJob:
    def groups(self):
        return [GROUP]


def drawn(made, width=120):
    screen = Console(width=width, force_terminal=True, color_system=None, record=True, file=io.StringIO())
    progress = Progress(FakeJob(), screen=screen)
    progress.update(status("running", done=0, total=100, running=5))
    progress.update(made)
    screen.print(progress.picture(made))
    return screen.export_text()


def test_one_look_says_how_far_how_fast_and_what_is_wrong():
    text = drawn(status("running", done=58, failed=2, total=100, running=5))
    assert "job 7 'fit'  100 tasks" in text
    assert "60 / 100   2 running" in text
    assert "to go" in text
    assert '2 tasks failed: 2 x exit code 3 "singular matrix" (task 8, 9)' in text


def test_a_deadline_shows_whether_it_will_be_met():
    assert "to spare" in drawn(status("running", done=50, total=100, deadline_s=time.time() + 1000))
    assert "late" in drawn(status("running", done=50, total=100, deadline_s=time.time() - 5))


def test_the_last_tasks_get_no_estimate_from_the_pace_of_others():
    text = drawn(status("running", done=98, total=100, running=2))
    assert "98 / 100   2 running   the last 2 tasks, for" in text
    assert "to go" not in text


@pytest.mark.parametrize("done", [50, 98], ids=["many are left", "the last"])
def test_the_bar_gives_way_in_a_narrow_terminal(done):
    made = status("running", done=done, total=100, running=2, deadline_s=time.time() + 1000)
    (wide,), (narrow,) = ([line for line in drawn(made, width).splitlines() if "/ 100" in line] for width in (120, 70))
    assert wide.count("█") + wide.count("░") == 30 and len(wide) > 70 >= len(narrow)
    assert narrow.count("█") + narrow.count("░") >= 8 and "░" in narrow, "not all of it is done"


def test_a_job_that_is_done_has_nothing_to_go():
    assert "to go" not in drawn(status("running", done=100, total=100))


def test_the_time_that_a_job_was_stopped_is_not_counted(capsys):
    print_summary(status(elapsed_s=3604.0, down_s=3600.0), [], Place())
    assert "10 done   in 4.00 s (and 1h00m stopped) (2.5/s)" in capsys.readouterr().out
    assert missed_by_s(status(elapsed_s=3604.0, down_s=3600.0, deadline_s=1010.0)) == 3594.0


def test_nobody_working_is_said():
    assert "no host has asked for work" in drawn(status("running", done=0, total=100, slots=0))


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "text", [1, [2]], {"a": [None]}])
def test_a_plain_value_is_shown_as_it_is(value):
    assert shown_value(pickle.dumps((True, value))) == value


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, b"bytes", {1, 2}, complex(1, 2)])
def test_what_json_cannot_say_is_shown_as_its_pickle(value):
    data = pickle.dumps((True, value))
    shown = shown_value(data)
    assert base64.b64decode(shown["pickle"]) == data
    json.dumps(shown)


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("sprung",))


def test_looking_at_a_value_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "pickle" in shown_value(pickle.dumps((True, Trap())))
    assert not (tmp_path / "sprung").exists()


def nested(depth):
    """A list that holds a list ten times, which holds ... : some bytes, and ten to the power of `depth` parts."""
    value = []
    for _ in range(depth):
        value = [value] * 10
    return value


LOOP = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps((True, nested(9))),
        pickle.dumps((True, LOOP)),
        # Remembers a value by the number 2,147,483,647: the reader would make room for all numbers below it.
        b"\x80\x04]r\xff\xff\xff\x7f.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"(" * 100_000,
        b"",
    ],
    ids=["many parts", "holds itself", "memo", "size", "marks", "nothing"],
)
def test_a_value_that_would_take_all_memory_is_shown_as_its_pickle(data):
    shown = shown_value(data)
    assert shown is None if not data else base64.b64decode(shown["pickle"]) == data


def test_attributes_are_numbers_truths_or_texts():
    assert [literal(text) for text in ("3", "1.5", "true", "False", "x")] == [3.0, 1.5, True, False, "x"]


def test_the_progress_of_a_workflow_tells_what_waits_for_others_and_what_is_blocked():
    workflow = {"class": "", "edges": 9, "held": 7, "blocked": 2}
    text = drawn(status("running", done=10, failed=1, total=20, running=2, workflow=workflow))
    assert "5 wait for others" in text and "2 blocked" in text


LINE = "  cost $0.18 (predicted $0.1545)   4 machines (4 spot)   15 plans by windfall"


@pytest.mark.parametrize("columns", [20, 40, 60, 76])
def test_a_line_is_broken_between_words_on_a_narrow_terminal(columns):
    pieces = fitted(LINE, columns)
    assert len(pieces) > 1 and all(len(piece) <= columns for piece in pieces)
    assert " ".join(" ".join(pieces).split()) == " ".join(LINE.split())
    assert all(piece.startswith("    ") for piece in pieces[1:])


def test_a_line_that_fits_or_goes_to_a_pipe_stays_as_it_is():
    assert fitted(LINE, 80) == fitted(LINE, None) == [LINE]
    assert fitted("x" * 100, 60) == ["x" * 100]


def test_commands_to_copy_are_not_broken_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setattr(summary, "columns_here", lambda: 60)
    summary.print_next(4, [{"final": True, "tasks": [6]}], Place(), True)
    said = capsys.readouterr().out
    assert "\n    windfall retry 4 --failed && windfall run --resume 4\n" in said


def _group(count, text, **more):
    about = {"cause": "exit", "exit_code": 1, "final": True, "tasks": [0], "stderr_tail": "", "last_line": ""}
    return {**about, "count": count, "text": text, **more}


def test_failures_that_were_not_compared_come_behind_those_of_their_kind(capsys):
    summary.print_groups([_group(700, "exit code 1", compared=False), _group(500, "exit code 1", compared=True)])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("  500 failed") and second.startswith("  700 more failed")


def test_a_program_that_may_not_be_executed_is_told_what_helps(capsys):
    summary.print_groups([_group(3, "./fit.py: Permission denied", cause="no-command", exit_code=None)])
    assert "chmod +x" in capsys.readouterr().out
    summary.print_groups([_group(3, "./fit.py: No such file or directory", cause="no-command", exit_code=None)])
    assert "chmod" not in capsys.readouterr().out
