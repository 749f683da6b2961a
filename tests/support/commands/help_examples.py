"""The examples at the end of the pages of help, the scene in which they are typed, and what each needs before it.

Stand-ins are those of tests/support/commands/scene.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands.scene import Scene
from tests.unit.cli.test_examples import ELSEWHERE, PAGES, examples_of
from windfall.worker import __main__ as worker_main
from windfall.worker.site import main as site_main

OWN = (worker_main.parser("windfall worker"), site_main.parser("windfall site agent"))
LONG = re.compile(r"windfall (bench |lab (?!--list)|demo|simulate |plan |report )")
"""Benchmarks, laboratories, the demo and simulations."""
STAYING = re.compile(r"windfall (server|worker|site agent)|worker\.pyz|events --follow")

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
    "windfall tasks last": "windfall run --name plenty --range 0-29 -- true {}",
    "windfall forget trial --yes": "windfall run --name trial --range 1-2 -- true {}",
    "windfall forget trial draft": DRAFTS,
    "windfall cost --fleet night": NIGHT,
    "windfall report --fleet night": NIGHT,
    "windfall plan tasks.txt --estimate 5m --fleet night": NIGHT,
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


@contextmanager
def open_scene(folder: Path) -> Iterator[Scene]:
    """A scene with a finished job, a larger one, and a site with an agent and three requests."""
    made = Scene(folder)
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


def prepare(scene: Scene, example: str) -> None:
    scene.start_worker()
    for start, line in BEFORE.items():
        if example.startswith(start):
            scene.type(line)
