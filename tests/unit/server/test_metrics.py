"""`GET /metrics`, `/readyz` and log lines: what monitoring reads."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from windfall.cli.serve.logs import JsonLines
from windfall.drivers.timings import BOUNDS_S, Timings

DASHBOARD = Path(__file__).parents[3] / "examples" / "grafana" / "windfall.json"


@pytest.fixture
def server(tmp_path):
    with InProcess(tmp_path) as made:
        yield made


def page(server):
    status, text = server.call("GET", "/metrics")
    assert status == 200
    return text.decode()


def test_figures_follow_the_state(server):
    server.submit(3)
    server.exchange("h")
    text = page(server)
    for line in (
        'windfall_jobs{state="running"} 1.0',
        'windfall_tasks{state="waiting"} 2.0',
        'windfall_tasks{state="running"} 1.0',
        "windfall_attempts_total 1.0",
        'windfall_hosts{state="live"} 1.0',
        "windfall_exchange_seconds_count 1.0",
        "windfall_jobs_late 0.0",
    ):
        assert line in text
    assert float(re.search(r"^windfall_commit_seconds_count (.+)$", text, re.MULTILINE)[1]) >= 3


def test_figures_need_a_token_unless_they_are_opened(server):
    assert server.run(server.full("GET", "/metrics", headers={}))[0] == 401
    server.service.open_metrics = True
    assert server.run(server.full("GET", "/metrics", headers={}))[0] == 200


def test_promtool_has_nothing_to_say(server):
    promtool = shutil.which("promtool")
    if promtool is None:
        assert os.environ.get("CI") != "true", "promtool is missing: sh tools/system.sh"
        pytest.skip("promtool is missing: sh tools/system.sh installs it")
    server.submit(1)
    server.exchange("h")
    said = subprocess.run([promtool, "check", "metrics"], input=page(server), capture_output=True, text=True)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_the_dashboard_asks_only_for_figures_that_exist(server):
    server.submit(1)
    there = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"# TYPE (\S+)", page(server))}
    asked = set(
        re.findall(r"windfall_\w+", json.dumps([p["targets"] for p in json.loads(DASHBOARD.read_text())["panels"]]))
    )
    assert asked and {re.sub(r"_bucket$", "", name) for name in asked} <= there


def test_grafana_knows_every_member_of_the_dashboard():
    pytest.importorskip("grafana_foundation_sdk", reason="Grafana's own library of dashboards, from the extra 'dev'")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    ours = json.loads(DASHBOARD.read_text())
    read = json.loads(json.dumps(Dashboard.from_json(ours), cls=JSONEncoder))
    assert list(lost(ours, read)) == []
    assert list(lost(ours | {"pannels": []}, read)) == ["/pannels"]


def lost(ours, read, place=""):
    """Where the first says something that the second does not."""
    if isinstance(ours, dict) and isinstance(read, dict):
        for key, value in ours.items():
            yield from lost(value, read.get(key), f"{place}/{key}")
    elif isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        for number, pair in enumerate(zip(ours, read, strict=True)):
            yield from lost(*pair, f"{place}/{number}")
    elif ours != read:
        yield place


def test_it_is_ready_once_it_has_begun_and_until_it_stops(server):
    assert server.get("/readyz")[0] == 503
    server.service.serving = True
    assert server.get("/readyz") == (200, {"ok": True})
    server.driver.trouble = "the disk is full"
    assert server.get("/readyz")[1]["error"]["message"] == "the disk is full"
    server.driver.trouble = ""
    server.service.stopping = True
    assert server.get("/readyz")[0] == 503


def test_cells_hold_what_is_at_most_their_bound():
    times = Timings()
    for seconds in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, 99.0):
        times.add(seconds)
    found = dict(times.cumulative())
    assert (found["0.001"], found["0.0025"], found["10.0"], found["+Inf"]) == (2, 3, 3, 4)


def test_a_log_line_is_one_object_whatever_it_says():
    record = logging.LogRecord("windfall.x", logging.ERROR, "f", 1, 'a "%s"\nb', ("word",), None)
    told = json.loads(JsonLines().format(record))
    assert told["message"] == 'a "word"\nb' and told["level"] == "error" and "\n" not in JsonLines().format(record)
