"""Which jobs `windfall forget` chooses by age and number."""

import pytest

from windfall.cli.jobs.forget import chosen

JOBS = [
    {"job": 5, "state": "running", "finished_s": None},
    {"job": 4, "state": "done", "finished_s": 900.0},
    {"job": 3, "state": "failed", "finished_s": 100.0},
    {"job": 2, "state": "paused", "finished_s": None},
    {"job": 1, "state": "cancelled", "finished_s": 500.0},
]


@pytest.mark.parametrize(
    ("older_s", "keep", "expected"),
    [
        (None, 0, [3, 1, 4]),
        (None, 1, [3, 1]),
        (None, 3, []),
        (None, 99, []),
        (400.0, None, [3, 1]),
        (0.0, None, [3, 1, 4]),
        (2000.0, None, []),
        (400.0, 2, [3]),
        (400.0, 0, [3, 1]),
    ],
)
def test_ended_jobs_are_chosen_by_age_and_number_and_unfinished_ones_never(older_s, keep, expected):
    assert chosen(JOBS, 1000.0, older_s, keep) == expected
