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


def test_in_a_pipe_a_line_comes_after_a_tenth_or_half_a_minute_and_not_at_once():
    from windfall.client.showing.milestones import Milestones

    milestones = Milestones(0.0)
    assert not milestones.is_due(1.0, 0.9), "a short run stays quiet"
    milestones = Milestones(0.0)
    told = [t for t in range(1, 121) if milestones.is_due(float(t), t / 1000)]
    assert told == [30, 60, 90, 120], "slow: every 30 s"
    milestones = Milestones(0.0)
    told = [t for t in range(101) if milestones.is_due(float(t), t / 100)]
    assert told == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100], "after each tenth"
    milestones = Milestones(0.0)
    told = [t for t in range(11) if milestones.is_due(float(t), t / 10)]
    assert told == [5, 10], "quick: not more often than every 5 s"
