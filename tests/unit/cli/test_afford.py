"""What `windfall run` says of a deadline before anything is rented."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.bags.settings import Settings
from windfall.bags.submission import Request, read_job
from windfall.cli.run.afford import say_what_cannot_be_promised
from windfall.pools.config import read_pools

POOLS = """
[[pool]]
name = "cloud"
kind = "emulated"

[[pool.offer]]
name = "steady"
price_usd = 0.1
cores = 2
lag_s = 10
limit = 4
"""


@pytest.mark.parametrize(("deadline", "said"), [("3m", True), ("1h", False)])
def test_a_deadline_that_cannot_be_promised_is_said_with_the_nearest_that_can(tmp_path, capsys, deadline, said):
    (tmp_path / "pools.toml").write_text(POOLS)
    (tmp_path / "tasks.txt").write_text("".join(f"true {n}\n" for n in range(8)))
    settings = Settings(estimate="1m", deadline=deadline, pools=["cloud"])
    bag = read_job(Request(settings=settings, tasks=str(tmp_path / "tasks.txt")))
    say_what_cannot_be_promised(bag, read_pools(Path(tmp_path / "pools.toml")))
    err = capsys.readouterr().err
    assert ("cannot be promised with a chance of 95%; the nearest one that can is" in err) is said
    assert ("windfall plan" in err) is said
