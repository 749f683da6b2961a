"""Jobs that share a fleet of machines of the emulated cloud: real servers, workers and processes."""

from __future__ import annotations

import json

import pytest

from tests.support.clouds.cloud_server import DEADLINE_S, machines, pool, served, submit, until
from tests.support.commands.command import windfall
from windfall.errors import BadInput, WindfallError

pytestmark = pytest.mark.slow


def test_jobs_share_machines_through_a_killed_server_and_the_bill_is_split_to_the_micro_dollar(
    tmp_path, monkeypatch, capsys
):
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))

        def typed(*words: str):
            return windfall(monkeypatch, capsys, *words)

        assert typed("fleet", "create", "night", "--pool", "cloud", "--budget", "20/h", "--planner", "scs").code == 0
        share = {"pools": [], "fleet": "night"}
        jobs = [submit(made, 4, 1.0, name=f"j{number}", **share) for number in range(3)]
        until(lambda: any(job.status()["tasks"]["running"] for job in jobs))
        refused = typed("fleet", "delete", "night")
        assert refused.code == 2 and "unfinished job" in refused.err

        made.kill_server()
        made.start_server("--pools", str(tmp_path / "pools.toml"))
        for job in jobs:
            assert job.wait(120)["state"] == "done"
            status = job.status()
            assert status["elapsed_s"] < DEADLINE_S and status["plan"]["fleet"] == "night"

        typed("fleet", "drain", "night")
        until(lambda: not machines(made, there=True))
        bill = json.loads(typed("cost", "--fleet", "night", "--json").out)
        parts = sum(row["cost_microusd"] for row in bill["jobs"]) + bill["idle_microusd"]
        assert parts == bill["spent_microusd"] == sum(row["cost_microusd"] for row in bill["machines"]) > 0
        assert [row["job"] for row in bill["jobs"]] == [job.id for job in jobs]
        own = json.loads(typed("cost", str(jobs[0].id), "--json").out)
        assert round(1e6 * own["spent_usd"]) == bill["jobs"][0]["cost_microusd"]
        assert {row["market"] for row in bill["machines"]} == {"on-demand"}

        explained = typed("explain", str(jobs[0].id))
        assert "was rented for job" in explained.out or "paid already" in explained.out or "kept for" in explained.out
        page = tmp_path / "night.html"
        told = json.loads(typed("report", "--fleet", "night", "-o", str(page), "--json").out)
        assert {"Rented machines", "Load", "Jobs and their slack"} <= set(told["figures"])
        assert "3 of 3 jobs, 0 of them late" in page.read_text()
        assert typed("report", "3", "--fleet", "night").code == 2

        with pytest.raises(BadInput, match="is being drained"):
            submit(made, 1, **share)
        assert typed("fleet", "delete", "night").code == 0
        with pytest.raises(WindfallError, match="there is no fleet 'night'"):
            submit(made, 1, **share)


def test_a_fleet_on_spot_machines_that_are_reclaimed_keeps_its_deadlines_and_says_why_they_are_spot(
    tmp_path, monkeypatch, capsys
):
    reclaimed = pool().replace('when_taken = "hibernate"', 'when_taken = "terminate"')
    with served(tmp_path, reclaimed) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        client = made.client()
        client.create_fleet("night", ["cloud"])
        share = {"pools": [], "fleet": "night"}
        jobs = [submit(made, 6, 2.0, name=f"j{number}", **share) for number in range(2)]

        def on_spot() -> list[str]:
            rows = machines(made, there=True)
            return [str(row["machine"]) for row in rows if row["market"] == "spot" and row["phase"] == "running"]

        until(lambda: bool(on_spot()) and any(job.status()["tasks"]["running"] for job in jobs))
        for machine in on_spot():
            client.poke("cloud", machine, "terminate")
        for job in jobs:
            assert job.wait(120)["state"] == "done"
            assert job.status()["elapsed_s"] < DEADLINE_S
        rows = machines(made)
        assert "taken" in {row["cause"] for row in rows if row["market"] == "spot"}
        explained = [windfall(monkeypatch, capsys, "explain", str(job.id)).out for job in jobs]
        assert any(
            "it is a spot machine, because on-demand could still do its tasks in time" in out for out in explained
        )
        windfall(monkeypatch, capsys, "fleet", "drain", "night")
        until(lambda: not machines(made, there=True))
        bill = json.loads(windfall(monkeypatch, capsys, "cost", "--fleet", "night", "--json").out)
        parts = sum(row["cost_microusd"] for row in bill["jobs"]) + bill["idle_microusd"]
        assert parts == bill["spent_microusd"] == sum(row["cost_microusd"] for row in bill["machines"])


def test_what_a_fleet_cannot_do_is_said_before_anything_is_rented(tmp_path, monkeypatch, capsys):
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        client = made.client()
        with pytest.raises(BadInput, match="no pool 'nowhere'"):
            client.create_fleet("night", ["nowhere"])
        with pytest.raises(BadInput):
            client.create_fleet("night", ["cloud"], budget_usd=0.0)
        with pytest.raises(BadInput, match="no planner 'magic'"):
            client.create_fleet("night", ["cloud"], planner="magic")
        client.create_fleet("night", ["cloud"])
        with pytest.raises(BadInput, match="there is a fleet 'night' already"):
            client.create_fleet("night", ["cloud"])
        assert client.create_fleet("day", ["cloud"])["shares_pools_with"] == ["night"]
        told = client.create_fleet("both", ["cloud"], owner_shares={"ana": 3.0}, owner_caps={"bo": 16}, budget_usd=5.0)
        assert told["owner_shares"] == {"ana": 3.0} and told["owner_caps"] == {"bo": 16}
        change = ("fleet", "change", "both")
        less = ("--cap", "bo=8", "--share", "ana=none", "--budget", "none")
        assert windfall(monkeypatch, capsys, *change, *less).code == 0
        told = client.fleet("both")
        assert (told["owner_shares"], told["owner_caps"], told["budget_usd"]) == ({}, {"bo": 8}, None)
        for wrong in (("--cap", "bo=0"), ("--cap", "bo=1.5"), ("--share", "ana"), ("--planner", "magic"), ()):
            assert windfall(monkeypatch, capsys, *change, *wrong).code == 2
        assert client.fleet("both")["owner_caps"] == {"bo": 8}
        client.delete_fleet("both")
        for settings, said in (
            ({"deadline": None}, "needs a deadline"),
            ({"deadline": -5}, "deadline"),
            ({"budget": 3}, "'budget' is said by fleet"),
            ({"planner": "hads"}, "'planner' is said by fleet"),
            ({"pools": ["cloud"]}, "'pools' is said by fleet"),
        ):
            with pytest.raises(BadInput, match=said):
                submit(made, 1, **({"pools": [], "fleet": "night"} | settings))
        for line, said in (
            (("fleet", "create", "zero", "--pool", "cloud", "--budget", "0/h"), "rents nothing"),
            (("fleet", "info", "nobody"), "there is no fleet 'nobody'"),
            (("report", "--fleet", "nobody"), "there is no fleet 'nobody'"),
            (("submit", "--range", "1-3", "--fleet", "nobody", "--deadline", "5m", "--", "true"), "no fleet 'nobody'"),
            (("submit", "--range", "1-3", "--fleet", "night", "--deadline", "2020-01-01 18:00", "--", "true"), "past"),
        ):
            refused = windfall(monkeypatch, capsys, *line)
            assert refused.code == 2 and said in refused.err, line
        assert client.fleets()[0]["jobs_ever"] == 0 and machines(made) == []
        words = ("submit", "--range", "1-3", "--fleet", "night", "--deadline", "10s", "--estimate", "1h")
        refused = windfall(monkeypatch, capsys, *words, "--reject", "--", "true")
        assert refused.code == 4 and "would not keep a deadline" in refused.err and "earliest" in refused.err
        both = windfall(monkeypatch, capsys, *words, "--reject", "--accept-late", "--", "true")
        assert both.code == 2 and "exclude each other" in both.err
        alone = windfall(monkeypatch, capsys, "submit", "--range", "1-3", "--reject", "--", "true")
        assert alone.code == 2 and "goes with --fleet" in alone.err
        assert client.fleets()[0]["jobs_ever"] == 0 and machines(made) == []
        told = windfall(monkeypatch, capsys, *words, "--", "true")
        assert told.code == 0 and "would not keep a deadline" in told.err
        assert client.fleets()[0]["jobs_ever"] == 1
