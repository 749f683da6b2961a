"""The how-to pages on resources and containers: their commands are typed, with stand-ins for the user's programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.pages import blocks, commands, says
from tests.support.commands.typed import Ended, Shell
from tests.support.server.podman import Podman

HOWTO = Path(__file__).parents[3] / "docs" / "howto"
NVIDIA_SMI = "#!/bin/sh\nprintf '0\\n1\\n'\n"
TELLS = '#!/bin/sh\necho "$0 $* $CUDA_VISIBLE_DEVICES $WINDFALL_RESOURCES"\n'
TORCHRUN = '#!/bin/sh\necho "$*"\n'


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    (tmp_path / "bin").mkdir()
    made.write("bin/windfall", f'#!/bin/sh\nexec "{sys.executable}" -m windfall "$@"\n', 0o755)
    made.write("bin/torchrun", TORCHRUN, 0o755)
    made.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    made.env.pop("CUDA_VISIBLE_DEVICES", None)
    yield made
    made.close()


def on_page(page: str) -> list[tuple[str, list[str]]]:
    """Commands without their remarks, and what they print by the page."""
    found = [each for block in blocks(HOWTO / f"{page}.md", "console") for each in commands(block)]
    return [(line.partition("  #")[0].strip(), printed) for line, printed in found]


def typed(shell: Shell, line: str) -> Ended:
    ended = subprocess.run(
        ["bash", "-c", line], cwd=shell.directory, env=shell.env, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def works(shell: Shell, line: str) -> list[str]:
    """What the tasks of a command printed, once all of them are done."""
    ended = typed(shell, line)
    assert ended.code == 0, f"{line}\n{ended.out}\n{ended.err}"
    waited = typed(shell, "windfall wait last --max-wait 90s")
    assert waited.code == 0, f"{line}\n{waited.out}\n{waited.err}"
    return [row["stdout"].strip() for row in shell.windfall("results", "last", "--json").lines]


def test_tasks_get_gpus_of_their_own_as_the_page_on_resources_says(shell):
    shell.write("bin/nvidia-smi", NVIDIA_SMI, 0o755)
    whole, parts = (line for line, _ in on_page("resources") if line.startswith("windfall run"))
    for line, amount in ((whole, 1.0), (parts, 0.5)):
        shell.write(shlex.split(line.partition(" -- ")[2])[0], TELLS, 0o755)
        said = works(shell, line)
        assert len(said) == 100
        given = [json.loads(text.split(maxsplit=4)[4])["gpus"] for text in said]
        assert {each["amount"] for each in given} == {amount}
        assert {each["units"][0] for each in given} <= {0, 1} and all(len(each["units"]) == 1 for each in given)


def start(shell: Shell, server: str) -> None:
    shell.start(*f"{server} --listen 127.0.0.1:0".split()[1:])
    shell.eventually(lambda: (shell.directory / ".windfall" / "server.json").exists())
    shell.env["WINDFALL_TOKEN"] = (shell.directory / ".windfall" / "token").read_text().strip()


def join(shell: Shell, *names: str, words: str = "") -> None:
    url = json.loads((shell.directory / ".windfall" / "server.json").read_text())["url"]
    for name in names:
        shell.start(*f"worker --server {url} --name {name} --dir {name} --slots 2 {words}".split())
    shell.eventually(
        lambda: {row["host"] for row in shell.windfall("host", "list", "--json").document["hosts"]} >= {*names}
    )


def test_licences_whole_hosts_and_reasons_are_as_the_page_on_resources_says(shell):
    lines = dict(on_page("resources"))
    (server,) = (line for line in lines if line.startswith("windfall server"))
    said = [line for line in lines if line.startswith("windfall submit") and "--pool" not in line]
    licensed, one_host, four_hosts = said  # what is said of rented machines is typed where there is a cloud
    start(shell, server)
    join(shell, "w1", "w2", words="--resource fpga=2 --resource gpus=1")
    (explain,) = (line for line in lines if line.startswith("windfall explain"))
    assert typed(shell, "windfall submit --range 1-1 --name first -- true").code == 0
    assert typed(shell, "windfall submit --range 1-1 --name fit --gpus 2 -- true").code == 0
    shell.eventually(lambda: says(lines[explain], typed(shell, explain).out))
    typed(shell, "windfall cancel fit")
    shell.write("simulate", TELLS, 0o755)
    said = works(shell, licensed)
    assert len(said) == 100 and all('"fpga": {"amount": 2.0' in text and "licence" in text for text in said)
    shell.write("solve", TELLS, 0o755)
    assert len(works(shell, one_host)) == 10
    join(shell, "w3", "w4")
    (launch,) = (block for block in blocks(HOWTO / "resources.md", "sh") if "torchrun" in block)
    shell.write("train.sh", f"#!/bin/sh\n{launch}", 0o755)
    said = works(shell, four_hosts)
    form = r"--nnodes 4 --node-rank 0 --master-addr 127\.0\.0\.1 --master-port 2\d{4} train\.py (\d)"
    assert sorted(re.fullmatch(form, text)[1] for text in said) == ["1", "2", "3"]


def test_tasks_run_in_the_image_that_the_page_on_containers_names(shell, tmp_path):
    ((line, _),) = on_page("containers")
    named = shlex.split(line)[shlex.split(line).index("--image") + 1]
    # Nothing is fetched from a registry here: a program of this name that runs its file stands in for Python.
    (tmp_path / "podman").mkdir()
    podman = Podman(tmp_path / "podman", {"python": '#!/bin/sh\nexec sh "$@"\n'})
    try:
        podman.tag(named)
        shell.env |= podman.env | {"PATH": f"{tmp_path / 'bin'}:{podman.env['PATH']}"}
        shell.write("simulate.py", 'test -e /usr || echo "boxed $1"\n')
        said = works(shell, line.replace("1-100", "1-5"))  # starting a container takes about a second
        assert Counter(said) == Counter(f"boxed {number}" for number in range(1, 6)) and podman.left() == []
    finally:
        podman.close()
