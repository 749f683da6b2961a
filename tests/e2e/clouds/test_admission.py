"""A fleet is asked before a job is submitted: over HTTP, from Python and from the command line."""

from __future__ import annotations

import json

import pytest

from tests.support.clouds.cloud_server import machines, pool, served
from tests.support.commands.command import windfall
from windfall.client import LateJob
from windfall.errors import BadInput, Missed, WindfallError

pytestmark = pytest.mark.slow
HOUR = {"fleet": "night", "pools": [], "estimate": "1h"}


def test_a_job_that_its_fleet_cannot_finish_in_time_is_told_so_however_it_comes(tmp_path, monkeypatch, capsys):
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        client = made.client()
        client.create_fleet("night", ["cloud"])

        # Python
        with pytest.raises(Missed, match=r"would not keep a deadline .* nothing was submitted") as refused:
            client.submit("true {}", range(3), deadline="10s", reject=True, **HOUR)
        assert "earliest" in refused.value.hint
        with pytest.raises(BadInput, match="how long the tasks take"):
            client.submit("true {}", range(3), deadline="1h", reject=True, fleet="night")
        with pytest.raises(BadInput, match="exclude each other"):
            client.submit("true {}", range(3), deadline="1h", reject=True, accept_late=True, **HOUR)
        flow = client.workflow(fleet="night", deadline="5s", estimate="1h")
        flow.task("true", name="a")
        with pytest.raises(Missed):
            flow.submit(reject=True)
        assert client.fleets()[0]["jobs_ever"] == 0 and machines(made) == []
        with pytest.warns(LateJob, match="would not keep a deadline"):
            late = client.submit("true {}", range(3), deadline="10s", **HOUR)
        assert late.admission is not None and late.admission["earliest_s"] > 10
        late.cancel()

        # HTTP
        asked = {"deadline_s": 10, "tasks": [{"seconds": 3600, "count": 3}]}
        told = client.ask_fleet("night", asked)
        assert not told["holds"] and told["earliest_s"] > 3600 and told["extra_usd"] > 0
        assert client.ask_fleet("night", asked | {"deadline_s": 2 * told["earliest_s"]})["holds"]
        body = {
            "spec": {"name": "h", "command": ["true", "{}"], "source": {"kind": "range", "first": 1, "last": 3},
                     "fleet": "night", "deadline_s": 10.0, "estimate_s": 3600.0},
            "count": 3, "seal": True, "late": "reject",
        }  # fmt: skip
        with pytest.raises(Missed):
            client.transport.post("/v1/jobs", body)
        assert client.transport.post("/v1/jobs", body | {"late": "tell"})["admission"]["holds"] is False
        for wrong, said in (
            ({"deadline_s": 10, "tasks": []}, "tasks"),
            ({"deadline_s": 0, "tasks": [{"seconds": 1}]}, "deadline_s"),
            ({"deadline_s": 10, "tasks": [{"seconds": 1, "count": 4000}, {"seconds": 2, "count": 4000}]}, "too many"),
            ({"deadline_s": 10, "tasks": [{"seconds": 1, "count": 2}], "after": {"0": [1], "1": [0]}}, "circle"),
            ({"deadline_s": 10, "tasks": [{"seconds": 1}], "after": {"0": [7]}}, "not among"),
            ({"deadline_s": 10, "tasks": [{"seconds": 1}], "evry_s": 60}, "evry_s"),
        ):
            with pytest.raises(BadInput, match=said):
                client.ask_fleet("night", wrong)
        with pytest.raises(WindfallError, match="there is no fleet 'day'"):
            client.ask_fleet("day", asked)

        # the command line
        words = ("submit", "--range", "1-3", "--fleet", "night", "--deadline", "10s", "--estimate", "1h")
        refused = windfall(monkeypatch, capsys, *words, "--reject", "--", "true")
        assert refused.code == 4 and "would not keep a deadline" in refused.err and "earliest" in refused.err
        told = windfall(monkeypatch, capsys, *words, "--json", "--", "true")
        assert told.code == 0 and "would not keep a deadline" in told.err
        assert json.loads(told.out)["admission"]["holds"] is False


def test_a_plan_prices_one_more_job_of_a_fleet_and_one_more_a_minute_before_it_is_submitted(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "tasks.txt").write_text("true 1\ntrue 2\ntrue 3\n")
    (tmp_path / "flow.toml").write_text('[[task]]\nname = "a"\ncommand = "true"\n')
    with served(tmp_path, pool()) as made:
        monkeypatch.setenv("WINDFALL_STATE", str(made.state))
        made.client().create_fleet("night", ["cloud"])
        words = ("plan", str(tmp_path / "tasks.txt"), "--estimate", "20s", "--fleet", "night")
        one = windfall(monkeypatch, capsys, *words, "--deadline", "10m", "--json")
        told = json.loads(one.out)
        assert one.code == 0 and told["holds"] and told["extra_usd"] > 0 and told["stream"] is None
        often = json.loads(
            windfall(monkeypatch, capsys, *words, "--deadline", "10m", "--what-if", "every=1m", "--json").out
        )
        seldom = json.loads(
            windfall(monkeypatch, capsys, *words, "--deadline", "10m", "--what-if", "every=10m", "--json").out
        )
        assert often["stream"]["after_usd"] > seldom["stream"]["after_usd"] > 0
        assert often["stream"]["each_usd"] < seldom["stream"]["each_usd"], "jobs that come often share their cycles"
        compared = windfall(monkeypatch, capsys, *words, "--deadline", "10m", "--what-if", "deadline=1s,20m")
        assert compared.code == 0 and "would not be kept" in compared.out and compared.out.count("would be kept") == 2
        late = windfall(monkeypatch, capsys, *words, "--deadline", "1s")
        assert late.code == 4 and "earliest" in late.err
        flow = ("plan", "--workflow", str(tmp_path / "flow.toml"), "--fleet", "night", "--deadline", "10m")
        assert windfall(monkeypatch, capsys, *flow, "--estimate", "20s").code == 0
        for wrong, said in (
            (("--what-if", "every=0s"), "every=TIME"),
            (("--what-if", "soon=1m"), "every=TIME"),
            (("--pool", "cloud"), "does not go with --fleet"),
            (("--planner", "hads"), "does not go with --fleet"),
        ):
            refused = windfall(monkeypatch, capsys, *words, "--deadline", "10m", *wrong)
            assert refused.code == 2 and said in refused.err
        unknown = windfall(monkeypatch, capsys, *words[:-1], "day", "--deadline", "10m")
        assert unknown.code == 2 and "there is no fleet 'day'" in unknown.err
        assert windfall(monkeypatch, capsys, *words).code == 2, "without a deadline"
        assert made.client().fleets()[0]["jobs_ever"] == 0 and machines(made) == []
