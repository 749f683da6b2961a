"""What `windfall run` says of a deadline before anything is rented."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from windfall.bags.settings import Settings
from windfall.bags.submission import Request, read_job
from windfall.cli.options import Place
from windfall.cli.run import afford
from windfall.cli.run.afford import check_budget, say_what_cannot_be_promised
from windfall.errors import Missed
from windfall.planning.offers import Offer
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
    say_what_cannot_be_promised(bag, read_pools(Path(tmp_path / "pools.toml")), Place(state=str(tmp_path)))
    err = capsys.readouterr().err
    assert ("cannot be promised with a chance of 95%; the nearest one that can is" in err) is said
    assert ("windfall plan" in err) is said


def test_an_impossible_deadline_is_said_before_anything_is_rented(tmp_path, capsys):
    """The job was started, and rented a machine for every task, without a word."""
    (tmp_path / "pools.toml").write_text(POOLS)
    (tmp_path / "tasks.txt").write_text("".join(f"true {n}\n" for n in range(8)))
    settings = Settings(estimate="1m", deadline="40s", pools=["cloud"])
    bag = read_job(Request(settings=settings, tasks=str(tmp_path / "tasks.txt")))
    say_what_cannot_be_promised(bag, read_pools(Path(tmp_path / "pools.toml")), Place(state=str(tmp_path)))
    err = capsys.readouterr().err
    assert "a deadline 40.0 s from now is impossible: the earliest possible one is 1m1" in err
    assert "started all the same" in err


class Remote:
    """A server whose pool `cloud` rents what POOLS says, with free hosts of these idle slots."""

    def __init__(self, *free_slots: int) -> None:
        self.free_slots = free_slots

    def runs(self) -> bool:
        return True

    @contextlib.contextmanager
    def open(self):
        yield self

    def machines(self):
        steady = Offer(name="steady", price_usd=0.1, cores=2, lag_s=10.0, limit=4, pool="cloud")
        return {"offers": [{**msgspec.to_builtins(steady), "offer": "steady", "market": "on-demand"}]}

    def market(self):
        return []

    def hosts(self):
        rows = [{"state": "live", "pool": "desks", "slots": n, "held": 0, "draining": False} for n in self.free_slots]
        return [*rows, {"state": "live", "pool": "cloud", "slots": 2, "held": 0, "draining": False}]


@pytest.mark.parametrize(("place", "fits"), [(Remote(), False), (Remote(4, 4), True)])
def test_idle_slots_of_free_hosts_of_the_server_count_in_the_forecast_that_the_budget_is_held_against(
    tmp_path, monkeypatch, place, fits
):
    monkeypatch.setattr(afford, "RUNS", 3)
    (tmp_path / "tasks.txt").write_text("".join(f"true {n}\n" for n in range(8)))
    settings = Settings(estimate="1m", deadline="30m", budget="0.05", pools=["cloud"])
    bag = read_job(Request(settings=settings, tasks=str(tmp_path / "tasks.txt")))
    with contextlib.nullcontext() if fits else pytest.raises(Missed, match="above the budget of"):
        check_budget(bag, (), place)


def test_without_a_server_and_pools_nothing_is_forecast(tmp_path):
    (tmp_path / "tasks.txt").write_text("true\n")
    settings = Settings(estimate="1m", deadline="30m", budget="0.000001", pools=["cloud"])
    bag = read_job(Request(settings=settings, tasks=str(tmp_path / "tasks.txt")))
    check_budget(bag, (), Place(state=str(tmp_path / "none")))
    assert not (tmp_path / "none").exists()
