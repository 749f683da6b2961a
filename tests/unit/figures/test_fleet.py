"""The pictures of a shared fleet: load and slack."""

from __future__ import annotations

from windfall.figures.fleet import fleet_pictures
from windfall.figures.timeline import Axis


def series(**more: object) -> dict[str, object]:
    job = {"job": 3, "name": "a<b", "start_s": 0.0, "end_s": 50.0, "deadline_s": 80.0, "ended": True, "late": False}
    return {
        "rented": [(0.0, 4.0), (100.0, 0.0)], "used": [(10.0, 2.0), (50.0, 0.0)], "used_share": 0.2,
        "jobs": [job, job | {"job": 4, "end_s": 90.0, "late": True}], "jobs_total": 7,
    } | more  # fmt: skip


def test_load_and_slack_are_drawn_and_said():
    load, slack = fleet_pictures(series(), Axis(100.0))
    assert load["name"] == "Load" and "20 %" in load["says"] and 'class="against"' in load["html"]
    assert "2 of 7 jobs, 1 of them late" in slack["says"] and "30.0 s to its deadline" in slack["html"]
    assert "10.0 s late" in slack["html"] and "a&lt;b" in slack["html"]


def test_a_fleet_without_jobs_or_machines_has_no_such_pictures():
    assert fleet_pictures(series(rented=[], jobs=[]), Axis(100.0)) == []
