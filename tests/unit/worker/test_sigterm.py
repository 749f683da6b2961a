"""Which ends of a process may follow from a SIGTERM to the whole job of a batch system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from windfall.worker.running.runner import _by_sigterm


@pytest.mark.parametrize(
    "script",
    [
        "kill -TERM $$",
        "sh -c 'kill -TERM $$' || exit 1",
        "sh -c 'kill -TERM $$'; exit $?",
    ],
)
def test_a_process_or_its_child_that_sigterm_has_ended_is_known_by_its_end(script):
    ended = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert _by_sigterm(ended.returncode, ended.stderr)


@pytest.mark.parametrize("script", ["exit 1", "echo no such file >&2; exit 2", "kill -KILL $$"])
def test_other_ends_are_told_at_once(script):
    ended = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert not _by_sigterm(ended.returncode, ended.stderr)


def test_a_python_program_that_says_terminated_long_before_its_end_is_not_waited_for():
    program = "import sys; sys.stderr.write('Terminated early' + 'x' * 1000); sys.exit(1)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert not _by_sigterm(ended.returncode, ended.stderr)
