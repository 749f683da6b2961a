"""Validators of volunteers' results: what they see, what their exit codes mean, how they are refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from windfall.boinc import validators
from windfall.boinc.validators import CannotJudge, argv_of, judged, pieces_of
from windfall.errors import BadInput

ROUND = "import sys; print(round(float(open(sys.argv[1] + '/stdout').read()), 3))"


def run(code: str, stdout: bytes = b"", files=(), archive: bytes = b"") -> str:
    pieces = [(name, pieces_of(io.BytesIO(archive), at, size)) for name, at, size in files]
    return judged([sys.executable, "-c", code], stdout, pieces)


def test_results_agree_if_the_validator_prints_the_same():
    assert run(ROUND, b"0.33333") == run(ROUND, b"0.33341") != run(ROUND, b"0.5")


def test_a_validator_sees_output_files_below_files():
    code = "print(open('files/sub/b').read())"
    files = [("a", 0, 2), ("sub/b", 2, 3)]
    assert run(code, files=files, archive=b"xxabc") == run(code, files=files, archive=b"yyabc")
    assert run(code, files=files, archive=b"xxabc") != run(code, files=files, archive=b"xxabd")


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("x" * 300,)])
def test_files_that_no_task_could_have_written_are_wrong(names):
    assert run("print(1)", files=[(name, 0, 1) for name in names], archive=b"x") == ""


def test_a_program_that_is_not_there_says_nothing_about_the_result():
    with pytest.raises(CannotJudge):
        judged(["/no/such/program"], b"", [])


def test_an_exit_code_says_that_the_result_is_wrong():
    assert run("raise SystemExit(1)") == "" == run("raise SystemExit(125)")


@pytest.mark.parametrize("code", ["raise SystemExit(127)", "import os; os.kill(os.getpid(), 9)"])
def test_a_validator_that_breaks_says_nothing_about_the_result(code):
    with pytest.raises(CannotJudge):
        run(code)


def test_a_validator_that_hangs_or_floods_is_ended(monkeypatch):
    monkeypatch.setattr(validators, "LIMIT_S", 0.2)
    with pytest.raises(CannotJudge, match="longer"):
        run("import time; time.sleep(60)")
    monkeypatch.setattr(validators, "LIMIT_S", 60.0)
    monkeypatch.setattr(validators, "MAX_SAID_BYTES", 10)
    with pytest.raises(CannotJudge, match="more than 10 bytes"):
        run("print('x' * 100)")


def test_the_environment_of_the_server_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("WINDFALL_TOKEN", "secret")
    assert run("import os; print(os.environ.get('WINDFALL_TOKEN'))") == run("print(None)")


@pytest.mark.parametrize("command", ["", "relative/path", "/no/such/program", "'unbalanced"])
def test_a_command_that_cannot_run_is_refused_when_it_is_registered(command, tmp_path: Path):
    with pytest.raises(BadInput, match="here"):
        argv_of(command, "here")
