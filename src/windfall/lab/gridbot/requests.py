"""GridBot's benchmark of job requests: how often hosts ask, and how many jobs an answer hands out, at most. Pure.

The paper prints both: 4 requests a second for 20 jobs with jobs of 10 to 50 minutes, 18 for 93 with jobs of a fifth of
that. So a request brought five jobs, as many as `Concurrency` let a host hold: clients asked when they had none left.
"""

from __future__ import annotations

from typing import Any

from windfall.lab.gridbot import worlds
from windfall.lab.gridbot.buffer import busiest
from windfall.lab.gridbot.finding import Finding, Means

JOBS = 42_200
CASES = (("as printed", 1, (4, 20)), ("each job split into five", 5, (18, 93)))
"""What the jobs are, into how many the printed ones are split, and the paper's requests and jobs a second."""
WAYS = {"batch": "asks when it has none left", "each": "asks after each job"}
FIVE = "hosts that ask when they have none left get about five jobs (more than four) a request, as in the paper"
ONE = "hosts that ask after each short job get fewer than two, so the paper's clients did not"


def requests(means: Means) -> Finding:
    """How often hosts ask for jobs that come in bundles of five, and one by one."""
    rows, data = [], dict[str, Any]()
    for jobs, split, paper in CASES:
        for report, way in WAYS.items():
            means.show(f"jobs {jobs}, a host {way}")
            rates, _ = busiest(worlds.requests_run(split, report, means.scale))
            data[f"{split}/{report}"] = {"requests_s": rates.requests_s, "jobs_s": rates.jobs_s}
            rows.append([
                jobs, way, f"{paper[0]} and {paper[1]}", f"{rates.requests_s:.2f}", f"{rates.jobs_s:.2f}",
                f"{rates.jobs_s / rates.requests_s:.1f}",
            ])  # fmt: skip
    a_request = {case: rates["jobs_s"] / rates["requests_s"] for case, rates in data.items()}
    return Finding(
        "requests",
        "Number of job requests: bundles of five jobs",
        f"{round(JOBS * means.scale):,} jobs of 10 to 50 minutes, and five times as many of 2 to 10 minutes, on all "
        "grids with a Concurrency of 5, the first three hours. Rates are those of the busiest minute. The number of "
        "hosts is assumed, so only the number of jobs a request can be compared with the paper's.",
        ["jobs", "a host", "paper: requests/s and jobs/s at most", "requests/s at most", "jobs/s at most",
         "jobs a request"],
        rows,
        [
            (FIVE, min(a_request["1/batch"], a_request["5/batch"]) > 4),
            (ONE, a_request["5/each"] < 2),
        ],
        data,
    )  # fmt: skip
