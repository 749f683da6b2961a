"""Commands that should answer at once load nothing that takes long to load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import windfall

HEAVY = (
    "numpy",
    "scipy",
    "cairosvg",
    "matplotlib",
    "rich",
    "uvicorn",
    "starlette",
    "asyncio",
    "classad2",
    "sqlite3",
    "pickle",
)
NEEDLESS = (
    "numpy", "scipy", "matplotlib", "rich", "classad2", "websockets", "uvicorn", "multiprocessing", "starlette.routing",
    "anyio._backends._asyncio", "windfall.planning.bags", "windfall.sim", "windfall.server.http.openapi",
    "windfall.console", "windfall.server.queries.pictures",
)  # fmt: skip
"""What `run` of a few commands needs in no process of its own."""

SIGNALS = {
    "signal",
    "enum",
    "types",
    "operator",
    "functools",
    "collections",
    "keyword",
    "reprlib",
    "itertools",
    "_thread",
}
SIGNALS |= {f"_{name}" for name in ("operator", "functools", "collections", "collections_abc", "signal", "weakref")}
"""What the module `signal` needs."""
PATHS = {"PYTHONPATH": str(Path(windfall.__file__).parent.parent)}

_LOADED = """
import json, os, sys
file, sys.argv = sys.argv[1], ["windfall", *sys.argv[2:]]
leave = os._exit
def tell_and_leave(code):
    open(file, "w").write(json.dumps(sorted(sys.modules)))
    leave(code)
os._exit = tell_and_leave
from windfall.__main__ import main
main()
"""


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    file = folder / "modules.json"
    said = [sys.executable, "-c", _LOADED, str(file), *arguments]
    subprocess.run(said, cwd=folder, check=False, capture_output=True, timeout=60)
    return set(json.loads(file.read_text()))


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["run", "--help"], ["status", "--help"], ["status"]])
def test_help_and_status_load_neither_a_server_nor_a_library_of_numbers(tmp_path, arguments):
    assert not loaded(tmp_path, *arguments) & set(HEAVY)


def test_status_of_jobs_that_have_ended_starts_no_server(tmp_path):
    made = [sys.executable, "-m", "windfall", "run", "--range", "1-2", "--", "true", "{}"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    # SQLite is needed to read them, and nothing else that takes long to load.
    without = {
        *HEAVY,
        "http.client",
        "socket",
        "ssl",
        "windfall.client.client",
        "windfall.client.transport",
        "windfall.core.engine",
        "windfall.server.embedded",
    } - {"sqlite3"}
    for arguments in (["status"], ["status", "last"], ["status", "--json"]):
        assert not loaded(tmp_path, *arguments) & without
    (tmp_path / "modules.json").unlink()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_ctrl_c_is_taken_over_before_anything_of_ours_is_loaded():
    """Until then it prints a traceback: nothing larger than what tells signals apart may come first."""
    code = "import sys; before = set(sys.modules); import windfall.__main__; print(*sorted(set(sys.modules) - before))"
    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=PATHS)
    assert set(said.stdout.split()) <= {"windfall", "windfall.__main__", "__future__", *SIGNALS}


def test_a_run_in_a_pipe_loads_no_library_that_it_does_not_use(tmp_path):
    assert not loaded(tmp_path, "run", "--range", "1-2", "--", "true", "{}") & set(NEEDLESS)


def test_what_modules_registered_for_the_end_runs_and_the_code_is_kept(tmp_path):
    code = (
        "import windfall.__main__ as m, windfall.cli as c, atexit, sys\n"
        "def run(): atexit.register(print, 'behind'); sys.exit(7)\n"
        "c.main = run; m.main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=PATHS)
    assert (said.returncode, said.stdout) == (7, "behind\n"), said.stderr
