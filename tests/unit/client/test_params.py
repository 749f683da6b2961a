"""Parameters of a bag from Python: one item for each task, or the rows of a data frame."""

from __future__ import annotations

import pandas
import pytest

import windfall
from windfall.client.client import _items
from windfall.client.submitting.making import command_bag
from windfall.client.transport import Transport
from windfall.errors import BadInput, Unreachable


@pytest.mark.parametrize("params", [3, "abc", b"abc", {"x": [1, 2]}, None])
def test_what_holds_no_item_for_each_task_is_refused(params):
    with pytest.raises(BadInput, match="params must hold one item for each task"):
        _items(params)


def test_a_data_frame_gives_its_rows():
    frame = pandas.DataFrame({"x": [1, 2], "name": ["a", "b"]})
    assert _items(frame) == [{"x": 1, "name": "a"}, {"x": 2, "name": "b"}]
    assert _items(value for value in "ab") == ["a", "b"]


def test_a_single_command_gives_its_job_the_name_of_its_program():
    assert command_bag("/opt/train --epochs 3", None, {}).spec.name == "train"
    assert command_bag(["echo", "a b"], None, {}).spec.name == "echo"
    assert command_bag("echo", None, {"name": "mine"}).spec.name == "mine"


def test_a_client_that_was_closed_with_its_server_says_so():
    transport = Transport("http://127.0.0.1:9", "token")
    transport.ended = True
    with pytest.raises(Unreachable, match="this client is closed"):
        transport.get("/v1/jobs")


def test_completion_in_a_notebook_shows_what_the_package_offers():
    assert {"Client", "Task", "progress"} <= set(dir(windfall)) and "annotations" not in dir(windfall)
