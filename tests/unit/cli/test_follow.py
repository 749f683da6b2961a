"""What a job that is followed says where no screen shows it."""

from __future__ import annotations

from types import SimpleNamespace

from windfall.cli.run.follow import StuckWatch


def watch(is_seen: bool = False) -> StuckWatch:
    return StuckWatch(SimpleNamespace(id=7), SimpleNamespace(is_seen=is_seen, trouble=""))


def status(finish_s: float | None, deadline_s: float | None = 1000.0) -> dict:
    tasks = {"running": 1, "waiting": 3}
    return {"state": "running", "tasks": tasks, "deadline_s": deadline_s, "plan": {"finish_s": finish_s}}


def test_a_plan_that_comes_too_late_is_said_once_with_what_to_try(capsys):
    late = watch()
    late.look(status(900.0))
    assert capsys.readouterr().err == ""
    late.look(status(1090.0))
    late.look(status(1100.0))
    said = capsys.readouterr().err
    assert said.count("job 7 will be late") == 1 and "(1m30s late)" in said and "windfall plan 7" in said


def test_a_screen_a_job_without_deadline_and_one_without_plan_are_left_in_peace(capsys):
    watch(is_seen=True).look(status(1090.0))
    watch().look(status(1090.0, deadline_s=None))
    watch().look(status(None))
    watch().look(status(None) | {"plan": None})
    assert capsys.readouterr().err == ""
