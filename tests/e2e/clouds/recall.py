"""`make recall`: a long task that checkpoints on a real server with an emulated cloud, whose spot comes after a minute.

It waits, goes on demand, and when spot is there it saves and goes on there. Two minutes, nearly all of them waiting.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.support.clouds.cloud_server import served

POOL = """
[[pool]]
name = "cloud"
kind = "emulated"
time_scale = 60
limit = 6

[[pool.offer]]
name = "spot"
market = "spot"
price_usd = 0.0162
cycle_s = 60
lag_s = 60
when_taken = "terminate"
law = { trace = "trace.json" }

[[pool.offer]]
name = "steady"
price_usd = 0.051
cycle_s = 60
lag_s = 60
"""
ABSENT_MINUTES, WORK_S, DEADLINE_S = 62, 60, 205
COUNT = """
import os, pathlib, signal, sys, time

def save(*why):
    saved.with_suffix(".new").write_text(str(n))
    saved.with_suffix(".new").rename(saved)
    if why:
        sys.exit(1)

saved = pathlib.Path(os.environ["WINDFALL_CHECKPOINT"])
n = int(saved.read_text()) if saved.exists() else 0
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1], f"began-{os.environ['WINDFALL_ATTEMPT']}").write_text(str(n))
while n < 5 * int(sys.argv[2]):
    time.sleep(0.2)
    n += 1
    if n % 25 == 0:
        save()
print("counted")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ticks = [0] * ABSENT_MINUTES + [1] * 600
        (folder / "trace.json").write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": ticks}))
        (folder / "count.py").write_text(COUNT)
        with served(folder, POOL) as made:
            command = [sys.executable, str(folder / "count.py"), name, str(WORK_S)]
            job = made.client().submit(
                command, deadline=DEADLINE_S, pools=["cloud"], estimate=WORK_S, checkpoint="5s"
            )  # fmt: skip
            assert job.wait(timeout=300)["tasks"]["done"] == 1
            recalled = [plan["recall"] for plan in _plans(made.state / "windfall.db") if plan["recall"]]
        began = {path.name: int(path.read_text()) for path in sorted(folder.glob("began-*"))}
    print(f"recalled {recalled}, began at {began}")
    assert len(recalled) == 1, "the task should have moved from on-demand to spot once"
    assert began["began-1"] == 0 < began["began-2"], "the second attempt should have gone on from the checkpoint"


def _plans(database: Path) -> list[dict[str, list[str]]]:
    log = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    rows = log.execute("select data from records where kind = 'PlanProposed' order by seq").fetchall()
    log.close()
    return [msgspec.msgpack.decode(data)[1][4] for (data,) in rows]


if __name__ == "__main__":
    main()
