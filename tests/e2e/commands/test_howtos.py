"""How-to pages whose commands need a server with pools and jobs: each command is typed in a scene, and works."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.pages import blocks, commands
from tests.support.commands.scene import Scene

HOWTO = Path(__file__).parents[3] / "docs" / "howto"
STAYING = re.compile(r"windfall (server|worker)\b")
"""The server of the scene stands for it."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    made = Scene(tmp_path_factory.mktemp("scene"))
    try:
        yield made
    finally:
        made.close()


def typed(page: str) -> list[str]:
    """The commands of a page but those that stay."""
    found = [command for block in blocks(HOWTO / f"{page}.md", "console") for command, _ in commands(block)]
    return [command for command in found if not STAYING.match(command)]


def test_the_commands_of_the_page_on_fleets_work(scene):
    assert len(typed("fleets")) >= 12
    for command in typed("fleets"):
        ended = scene.type(command)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"


def test_the_commands_of_the_page_on_the_market_show_and_import(scene):
    shutil.copy(scene.folder / "trace.json", scene.folder / "us-west-2a_v100_1.json")
    (scene.folder / "aws-us-east-1.csv.gz").write_bytes(gzip.compress((scene.folder / "prices.csv").read_bytes()))
    show, plot, *imports = typed("market")
    assert [line.split()[2] for line in (show, plot, *imports)] == ["show", "show", "import", "import"]
    for command in (*imports, show, plot):
        ended = scene.type(command)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    assert "imported: us-west-2a_v100_1.json" in ended.stdout and "hour (UTC)" in ended.stdout
    assert "imported: aws-us-east-1.csv.gz (us-east-1a/m5.large)" in ended.stdout and "prices: " in ended.stdout
    assert (scene.folder / "spot.png").stat().st_size > 1000
    again = scene.type(imports[0])
    assert again.returncode == 2 and "is known of cloud/spot already" in again.stderr, "a file counts once"


def test_the_commands_of_the_page_on_explaining_say_why(scene):
    waits = 'Host.Memory >= 999999 && Host.site == "haifa"'
    submitted = scene.type(f"windfall submit --range 0-19 --name fit --require '{waits}' -- true")
    assert submitted.returncode == 0, submitted.stderr
    ends = {"windfall wait fit --max-wait 5m": 4}
    begins = {"windfall explain fit": "waits.\n", "windfall explain fit.17": "task 17 of job"}
    assert {*ends, *begins, "windfall host list"} == set(typed("explain"))
    for command in typed("explain"):
        line = command.replace("5m", "1s")  # as long as one likes to wait
        ended = scene.type(line)
        assert ended.returncode == ends.get(command, 0), f"{line}\n{ended.stdout}\n{ended.stderr}"
        assert begins.get(command, "") in ended.stdout
        if command in ends:
            assert "windfall: nothing of job" in ended.stderr and "Host.Memory >= 999999" in ended.stderr


def sh_lines(page: str, words: str) -> list[str]:
    """Lines of the `sh` blocks of a page that hold these words, without their remarks."""
    lines = [line for block in blocks(HOWTO / f"{page}.md", "sh") for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if words in line]


@pytest.mark.parametrize(
    ("page", "kept"), [("state", "monday"), ("upgrade", "before-upgrade")], ids=["backup", "upgrade"]
)
def test_a_state_is_backed_up_checked_and_restored_as_a_page_says(page, kept, tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    lines = sh_lines(page, kept)
    assert [line.partition("windfall state ")[2].split()[0] for line in lines] == ["backup", "check", "restore"]
    checked = sh_lines(page, "windfall server --check") + sh_lines(page, "windfall version")
    assert len(checked) == (2 if page == "upgrade" else 0)
    ran = "windfall run --name kept --range 1-3 -- echo {}"
    for line in [ran, *lines[:2], *checked, lines[2], "windfall status kept"]:
        ended = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    assert "3 done" in ended.stdout, ended.stdout


def test_the_commands_of_the_page_on_simulating_work(scene):
    lines = [line.partition("  #")[0] for line in typed("simulate")]
    assert len(lines) >= 11
    alone = re.compile(r"windfall simulate (campus|demand|owners) *")  # as they are, by the tests of the library
    for line in [line for line in lines if not alone.fullmatch(line)]:
        fewer = re.sub(r"--seeds \d+", "--seeds 2", line)  # more of them take longer and show the same
        ended = scene.type(fewer)
        assert ended.returncode == 0, f"{fewer}\n{ended.stdout}\n{ended.stderr}"
    assert (scene.folder / "campus.html").exists() and (scene.folder / "campus.ndjson").exists()


def test_a_front_of_deadlines_is_planned_and_drawn_as_the_page_says(scene):
    line = next(command for command in typed("deadlines") if command.startswith("windfall plan"))
    ended = scene.type(f"{line} --seeds 2")  # the page shows forty runs
    assert ended.returncode == 0, ended.stderr
    assert "impossible before" in ended.stdout and "<- yours" in ended.stdout
    assert (scene.folder / "front.png").stat().st_size > 1000


def test_a_worker_is_started_drained_and_upgraded_as_the_page_says(scene):
    def there(line: str) -> str:
        return line.replace("http://SERVER:7272", scene.url)

    (token,), fetch = sh_lines("workers", "--role worker"), sh_lines("workers", "curl -fsS http://SERVER:7272/")
    starts, (drain,) = sh_lines("workers", "WINDFALL_TOKEN=... python3"), sh_lines("workers", "windfall host drain")
    assert len(fetch) == len(starts) == 2
    try:
        for number, (get, start) in enumerate(zip(fetch, starts, strict=True)):
            assert scene.type(f"{token}.{number}" if number else token).returncode == 0
            assert scene.type(there(get)).returncode == 0
            line = there(start).replace("WINDFALL_TOKEN=...", "exec env WINDFALL_TOKEN=$(cat worker.token)")
            name = "upgraded" if number else "elsewhere"
            process = scene.start(f"{line} --name {name} --dir {name}", name)
            scene.until(lambda name=name: any(h["host"] == name and h["state"] == "live" for h in scene.hosts()))
            assert scene.type(drain.replace("node7", name)).returncode == 0
            assert process.wait(60) == 0, "it ends by itself"
    finally:
        (scene.folder / "worker.token").write_text(scene.token)


def test_the_link_to_the_console_signs_in_as_the_page_says(scene):
    (line,) = sh_lines("console", "windfall console")
    ended = scene.type(line)
    assert ended.returncode == 0 and ended.stdout.startswith(f"{scene.url}/#"), ended


def test_the_token_of_the_page_on_monitoring_reads_figures_and_nothing_more(scene):
    (line,) = sh_lines("monitoring", "windfall token create")
    assert scene.type(line.replace("/etc/prometheus/", "")).returncode == 0
    asks = f'curl -s -o answer.txt -w "%{{http_code}}" -H "Authorization: Bearer $(cat windfall.token)" {scene.url}'
    assert scene.type(f"{asks}/metrics").stdout == "200"
    assert "windfall_tasks" in (scene.folder / "answer.txt").read_text()
    assert scene.type(f"{asks}/v1/tokens").stdout == "403"
