"""Live runs in the emulated cloud, replayed by `windfall simulate --replay`: predicted against actual finish and cost.

python -m tests.e2e.clouds.replays SEEDS
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.clouds.cloud_server import machines, pool, served, until
from tests.support.server.cluster import Cluster
from windfall.client import Job

WITHIN = 0.05
DEADLINE_S = 75
PRICES = "price_changes_per_h = 6, price_step = 0.1, price_spread = 0.3"
LAWS = {
    "hibernate": f"hibernations_per_h = 3, resumes_per_h = 12, {PRICES}",
    "terminate": f"terminations_per_h = 2, capacity_errors = 0.2, {PRICES}",
}


def bag(made: Cluster) -> Job:
    rows = [{"s": f"{1.5 + n % 5 / 20:g}"} for n in range(64)]
    return made.client().submit(["sleep", "{s}"], rows, deadline=DEADLINE_S, pools=["cloud"], estimate=1.6)


def workflow(made: Cluster) -> Job:
    """Twenty tasks, five that each join four of them, and one that joins these."""
    flow = made.client().workflow(name="sums", deadline=DEADLINE_S, pools=["cloud"], estimate=3.0)
    rows = [{"n": str(n), "s": f"{2.8 + n % 5 / 10:g}"} for n in range(20)]
    script = ["sh", "-c", "sleep $1; echo $2 > part-$2", "sh", "{s}", "{n}"]
    parts = flow.map(script, rows, outputs=["part-{n}"])
    sums = [
        flow.task(f"sleep 3; cat part-* > sum-{k}", inputs=parts[4 * k : 4 * k + 4], outputs=[f"sum-{k}"])
        for k in range(5)
    ]
    flow.task("cat sum-*", inputs=sums)
    return flow.submit()


JOBS = {"bag": bag, "workflow": workflow}


def replayed(directory: Path, kind: str, when_taken: str, seed: int) -> dict[str, Any]:
    """A live run, and what a replay of its log says: the row of its job, with the machines as they were."""
    cloud = pool(seed=seed, law=LAWS[when_taken], scale=60).replace("limit = 6", "limit = 40")
    with served(directory, cloud.replace('when_taken = "hibernate"', f'when_taken = "{when_taken}"')) as made:
        job = JOBS[kind](made)
        job.wait(timeout=DEADLINE_S + 60)
        until(lambda: not machines(made, there=True))
        rows = machines(made)
        made.stop_server()
        command = [sys.executable, "-m", "windfall", "simulate", "--replay", str(made.state), "--seeds", "1", "--json"]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
    (row,) = answer["jobs"]
    offers = {offer["name"]: offer for offer in answer["scenario"]["cloud"][0]["offer"]}
    return {**row, "machines": rows, "spot": offers["spot"]}


def main(seeds: int) -> int:
    missed = 0
    for kind in JOBS:
        for when_taken in LAWS:
            for seed in range(1, seeds + 1):
                with tempfile.TemporaryDirectory() as directory:
                    row = replayed(Path(directory), kind, when_taken, seed)
                off = max(abs(row["off_by"]), abs(row["cost_off_by"]))
                missed += off > WITHIN
                print(
                    f"{kind}, {when_taken}, seed {seed}: {row['actual_s']:.1f} s, replayed {row['off_by']:+.1%}; "
                    f"${row['actual_usd']:.4f}, replayed {row['cost_off_by']:+.1%}",
                    flush=True,
                )
    print(f"{missed} of {len(JOBS) * len(LAWS) * seeds} runs are off by more than {WITHIN:.0%}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
