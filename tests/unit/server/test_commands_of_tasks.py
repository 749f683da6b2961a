"""Commands of tasks in a table: one that cannot be rendered is empty; a store that fails is no empty command."""

from __future__ import annotations

import pytest

from windfall.server.queries.table import _command
from windfall.store.contract import StoreError


class Failing:
    """A renderer whose tasks cannot be rendered."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def parameters(self, task: int) -> str:
        raise self.error


def test_a_task_that_cannot_be_rendered_has_an_empty_command():
    assert _command(Failing(KeyError("x")), 0, 1) == ("", None)


def test_a_store_that_cannot_be_read_is_told():
    with pytest.raises(StoreError):
        _command(Failing(StoreError("the disk is gone")), 0, 1)
