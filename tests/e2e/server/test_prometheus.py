"""A real Prometheus reads a live server as the page on monitoring says; every query of the dashboard is answered."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clouds import cloud_server
from tests.support.clouds.cloud_server import until
from tests.support.commands.pages import blocks
from tests.support.server.cluster import Cluster, free_port

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "examples" / "grafana" / "windfall.json"
PAGE = ROOT / "docs" / "howto" / "monitoring.md"

pytestmark = pytest.mark.slow


class Prometheus:
    """Reads the server every half second, by the settings of the page."""

    def __init__(self, folder: Path, made: Cluster) -> None:
        (settings,) = blocks(PAGE, "yaml")
        token = folder / "windfall.token"
        token.write_text(made.client().create_token("read", "prometheus")["token"])
        text = settings.replace("head-node:7272", f"127.0.0.1:{made.port}")
        text = text.replace("/etc/prometheus/windfall.token", str(token))
        assert str(made.port) in text and str(token) in text
        self._file = folder / "prometheus.yml"
        self._file.write_text(f"global:\n  scrape_interval: 500ms\n  scrape_timeout: 400ms\n{text}")
        self._url = f"http://127.0.0.1:{free_port()}"
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self._file}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={self._url.removeprefix('http://')}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def check_settings(self) -> None:
        said = subprocess.run(["promtool", "check", "config", self._file], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr

    def asked(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now; an error if it is none."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=10) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            assert error.code == 503, f"{expression}: {said}"
            return []  # it has just begun
        except OSError:
            return []  # it has not begun
        assert told["status"] == "success", told
        return list(told["data"]["result"])


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    if shutil.which("prometheus") is None:
        assert os.environ.get("CI") != "true", "prometheus is missing: sh tools/system.sh"
        pytest.skip("prometheus is missing: sh tools/system.sh installs it")
    with cloud_server.served(tmp_path, cloud_server.pool()) as found:
        yield found


@contextlib.contextmanager
def reading(folder: Path, made: Cluster) -> Iterator[Prometheus]:
    found = Prometheus(folder, made)
    try:
        yield found
    finally:
        found.process.terminate()
        found.process.wait(20)


def queries() -> list[tuple[str, set[str]]]:
    """The expressions of the dashboard, and the labels that their legends name."""
    targets = [each for panel in json.loads(DASHBOARD.read_text())["panels"] for each in panel["targets"]]
    return [(each["expr"], set(re.findall(r"{{(\w+)}}", each["legendFormat"]))) for each in targets]


def test_every_query_of_the_dashboard_has_an_answer_with_the_labels_of_its_legend(made, tmp_path):
    client = made.client()
    with reading(tmp_path, made) as prometheus:
        prometheus.check_settings()
        until(lambda: prometheus.asked("windfall_log_records_total"))
        made.start_worker("lost", slots=1)
        client.submit(["sleep", "60"], range(1), name="cut off")
        until(lambda: client.job("cut off").status()["tasks"]["running"])
        made.kill_worker("lost")
        cloud_server.submit(made, 6, 2.0, name="rented")
        until(lambda: all(prometheus.asked(expression) for expression, _ in queries()))
        for expression, labels in queries():
            rows = prometheus.asked(expression)
            assert all(labels <= row["metric"].keys() for row in rows), (expression, rows)
        (up,) = prometheus.asked("up")
        assert up["value"][1] == "1" and prometheus.asked("scrape_samples_scraped")
