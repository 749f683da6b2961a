"""What a call brings along is loaded where it runs."""

from __future__ import annotations

import pickle
import sys

import pytest

from windfall.worker.running.caller import loaded


def test_a_module_that_is_missing_is_said_to_be_missing_on_that_host(monkeypatch):
    monkeypatch.setenv("WINDFALL_HOST", "node7")
    data = pickle.dumps(pytest.raises).replace(b"_pytest", b"no_such")
    with pytest.raises(ModuleNotFoundError) as refused:
        loaded(data)
    assert refused.value.name == "no_such"
    assert str(refused.value).startswith("No module named 'no_such' on host node7, in its Python 3.")
    assert sys.executable in str(refused.value) and "install it there" in str(refused.value)
