"""The guides for those who come from other systems: each of our commands in their tables is typed, and works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.commands.scene import Scene

GUIDES = sorted((Path(__file__).parents[3] / "docs" / "howto").glob("from-*.md"))
STAYING = re.compile(r"windfall (server|worker)\b")
"""Tried by the examples of the help."""
BEFORE = {
    "windfall workflow show": "windfall run --workflow wf.toml",
    "windfall results last": "windfall run --range 0-3 --output out.txt -- sh -c 'echo {} > out.txt'",
    "windfall cancel last": "windfall submit --range 0-3 -- sleep 60",
    "windfall retry last": "windfall run --max-failures 1 --range 0-3 -- sh -c 'test {} != 2'",
}


def commands(page: Path) -> list[str]:
    """Our commands: of each row the code of the second column that begins with or leads to `windfall`."""
    found = []
    for line in page.read_text().splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        for code in re.findall(r"`([^`]+)`", cells[1]) if len(cells) == 2 else ():
            command = code.replace("\\|", "|")
            if re.search(r"(^|\| )windfall ", command) and " " in command and not STAYING.search(command):
                found.append(command)
    assert len(found) >= 8, page
    return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    made = Scene(tmp_path_factory.mktemp("scene"))
    (made.folder / "list.txt").write_text("a.log\nb.log\n")
    (made.folder / "job.toml").write_text('[job]\ncommand = "./fit {}"\nrange = "1-4"\ninputs = ["fit"]\n')
    made.type("windfall import sbatch array.sh -o array.toml")
    try:
        yield made
    finally:
        made.close()


def before(command: str) -> str | None:
    return next((first for begin, first in BEFORE.items() if command.startswith(begin)), None)


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=f"{page.stem}: {command}") for page in GUIDES for command in commands(page)]
)
def test_a_command_of_a_guide_works(scene, command):
    if first := before(command):
        scene.type(first)
    ended = scene.type(command)
    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    if "windfall submit" in command:
        waited = scene.type("windfall wait last")
        assert waited.returncode == 0, (command, waited.stdout, waited.stderr)
    if command.startswith("windfall cancel"):
        scene.type("windfall cancel last")


def test_an_array_script_runs_as_it_does_in_slurm(scene):
    (scene.folder / "full.sh").write_text(
        "#!/bin/bash\n#SBATCH -J full --array=2-6:2%2\n#SBATCH --time=10 --mem=200M -c 1\n"
        "#SBATCH -o logs/%x_%3a.out\n#SBATCH --export=ALL,MODE=fast\n"
        'echo "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT $MODE $#"; test -n "$SLURM_ARRAY_JOB_ID"\n'
    )
    made = scene.type("windfall import sbatch full.sh -o full.toml")
    assert made.stdout == "wrote full.toml.  try: windfall run --slots 2 full.toml\n", made.stderr
    ran = scene.type("windfall run full.toml")
    assert ran.returncode == 0, ran.stderr
    written = {path.name: path.read_text() for path in (scene.folder / "logs").iterdir()}
    assert written == {f"full_00{n}.out": f"{n}/3 fast 0\n" for n in (2, 4, 6)}
