"""A server serves more peers than the soft limit of open files of a shell."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

CODE = "from windfall.server.open_files import allow_many; print(allow_many())"


@pytest.mark.parametrize(("limits", "found"), [((64, 500), 500), ((500, 500), 500)])
def test_a_server_may_open_as_many_files_as_the_hard_limit_lets(limits, found):
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    told = subprocess.run([sys.executable, "-c", CODE], preexec_fn=limited, capture_output=True, text=True, check=True)
    assert int(told.stdout) == found
