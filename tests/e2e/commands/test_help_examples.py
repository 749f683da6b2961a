"""Every example at the end of a page of help is typed into a shell, and does what it says.

Stand-ins are those of tests/support/commands/scene.py. An example that would take minutes (`LONG`) is interrupted by
Ctrl-C after it has begun its work, and has to leave cleanly; one that stays until it is stopped (`STAYING`) likewise.
Where OR-tools, an extra, is not installed, `lab workflows` says so and ends with exit code 2; where the real traces are
not, so do the examples that read them.
"""

from __future__ import annotations

import re

import pytest

from tests.support.commands.scene import Scene
from tests.unit.cli.test_examples import ELSEWHERE, PAGES, examples_of
from windfall.lab import data
from windfall.worker import __main__ as worker_main
from windfall.worker.site import main as site_main

OWN = (worker_main.parser("windfall worker"), site_main.parser("windfall site agent"))
LONG = re.compile(r"windfall (bench |lab (?!--list)|demo|simulate |plan |report )")
"""Benchmarks, laboratories, the demo and simulations."""
STAYING = re.compile(r"windfall (server|worker|site agent)|worker\.pyz|events --follow")
BEGUN_S = 5.0
"""Seconds after which a long example has begun its work."""
CODES = {
    "windfall wait sweep --until failed:1": 1,
    "windfall logs last | grep -i warning": None,
    "windfall pool poke cloud m1 hibernate": 2,
    "windfall pool poke cloud m1 resume": 2,
}
"""Exit codes other than 0: one task of `sweep` has failed, and no machine is rented that could be poked (that is done
in tests/e2e/clouds/test_cloud.py)."""

SWEEP = "windfall run --name sweep --range 0-29 --max-failures 1 -- sh -c 'echo warning {}; test {} != 17'"
CHAIN = "windfall run workflow.toml"
RENTING = (
    "windfall submit --name rented --pool cloud --deadline 2h --estimate 5m --require 'Host.Pool == \"cloud\"'"
    " --range 1-4 -- sleep 300"
)
DRAFTS = " && ".join(f"windfall run --name {name} --range 1-2 -- true {{}}" for name in ("trial", "draft"))
RECORDED = "windfall import nextflow results -o recorded.json"
NIGHT = "windfall fleet create night --pool cloud"
SITE = "windfall site create lab --instance-vcpu 1 --instance-ram 1000 --limit 1 --market"
BEFORE = {
    "windfall plan last": RENTING,
    "windfall run --resume last tasks.txt": "windfall run tasks.txt",
    "windfall workflow show last": CHAIN,
    "windfall workflow export last": CHAIN,
    "windfall submit --class": "windfall submit --workflow wf.toml --class nightly --deadline 2h",
    "windfall logs last": SWEEP,
    "windfall forget trial --yes": "windfall run --name trial --range 1-2 -- true {}",
    "windfall forget trial draft": DRAFTS,
    "windfall cost --fleet night": NIGHT,
    "windfall report --fleet night": NIGHT,
    "windfall fleet create night": "windfall fleet delete night",
    "windfall fleet create day": "windfall fleet delete day",
    "windfall fleet delete day": "windfall fleet create day --pool cloud",
    **{f"windfall fleet {verb} night": NIGHT for verb in ("change", "drain", "info", "pause", "resume")},
    "windfall boinc": "windfall boinc enable --url http://127.0.0.1:7272/grid/",
    "windfall boinc enable": "windfall pool remove boinc --now",
    "windfall boinc close-account": "windfall boinc add-account Ada",
    "windfall boinc rotate-key": "windfall boinc add-account Ada",
    "windfall boinc sign": "windfall boinc sign for-server --key safe/code_sign.key",
    "windfall site": SITE,
    "windfall report sweep --state": "windfall archive sweep -o sweep.tar.gz",
    "windfall state ": "windfall run --state old --range 1-2 -- true {}",
    "windfall simulate --replay": "windfall run --state replayed --range 1-4 -- true {}",
    "windfall pool add lab": "windfall pool remove shed --now",
    "windfall pool add pools.toml": "windfall pool remove annex --now",
    "windfall pool doctor lab": "windfall pool add shed kind=local",
    "windfall pool drain": "windfall pool add shed kind=local",
    "windfall pool remove": "windfall pool add shed kind=local",
    "windfall run --workflow recorded.json": RECORDED,
    "windfall plan --workflow recorded.json": RECORDED,
}
"""What has to be there before an example whose line begins so."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    made = Scene(tmp_path_factory.mktemp("scene"))
    try:
        made.type(SWEEP)
        made.type("windfall run --name fit --range 0-1829 -- true {}")
        made.type(SITE)
        made.spawn("agent", f"site agent --server {made.url} --token-file worker.token --vcpu 8 --ram 16000 --dir s")
        for _ in range(3):
            made.type("windfall site request --vcpu 1 --ram 100 -- true")
        yield made
    finally:
        made.close()


def all_examples() -> list[str]:
    """Of all pages, those that the worker prints by its own parser included."""
    pages = [examples_of(words) for words in sorted(PAGES) if words not in ELSEWHERE]
    own = [parser.format_help().partition("examples:\n")[2].splitlines() for parser in OWN]
    assert all(len(lines) >= 2 for lines in (*pages, *own))
    return list(dict.fromkeys(line.strip() for lines in (*pages, *own) for line in lines if line.strip()))


def is_long(line: str) -> bool:
    return bool(LONG.search(line) or STAYING.search(line))


@pytest.mark.parametrize("example", [line for line in all_examples() if not is_long(line)])
def test_an_example_of_the_help_can_be_typed(scene, example):
    prepare(scene, example)
    ended = scene.type(scene.typed(example))
    wanted = CODES.get(example, 0)
    assert wanted is None or ended.returncode == wanted, (ended.returncode, ended.stdout[-500:], ended.stderr[-500:])
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("example", [line for line in all_examples() if is_long(line)])
def test_an_example_that_takes_long_begins_and_can_be_interrupted(scene, example):
    prepare(scene, example)
    line = scene.typed(example).partition(" | ")[0].partition(" > ")[0]
    code, said = scene.interrupted(line, BEGUN_S)
    lacks_traces = data.root() is None and "WINDFALL_DATA" in said
    may_refuse = STAYING.search(example) or "lab workflows" in example or lacks_traces
    stopped = (0, 130, 2) if may_refuse else (0, 130)
    assert code in stopped, (code, said[-500:])
    assert "Traceback" not in said


def prepare(scene: Scene, example: str) -> None:
    scene.start_worker()
    for start, line in BEFORE.items():
        if example.startswith(start):
            scene.type(line)
