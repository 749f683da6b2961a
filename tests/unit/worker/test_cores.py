"""Cores of slots: NUMA node by node, disjoint unless there are more slots than cores."""

from __future__ import annotations

import pytest

from windfall.worker.running.cores import Cores, nodes, read_list

TWO_NODES = [[0, 1, 4, 5], [2, 3, 6, 7]]


@pytest.mark.parametrize(("text", "cores"), [("0-3,8\n", [0, 1, 2, 3, 8]), ("5", [5]), ("\n", [])])
def test_lists_of_the_kernel_are_read(text, cores):
    assert read_list(text) == cores


def test_every_core_of_this_process_is_in_one_node():
    found = [core for node in nodes() for core in node]
    assert found and len(found) == len(set(found))


def test_slots_have_cores_of_their_own():
    cores = Cores(8, TWO_NODES)
    assert [cores.of([slot]) for slot in range(8)] == [(0,), (1,), (4,), (5,), (2,), (3,), (6,), (7,)]


def test_more_slots_than_cores_share_them():
    cores = Cores(16, TWO_NODES)
    assert cores.of([0]) == cores.of([8]) == (0,)


def test_a_wide_task_lies_on_one_node_if_one_has_room():
    cores = Cores(8, TWO_NODES)
    assert cores.of(cores.together([3, 4, 5, 6], 3)) == (2, 3, 6)
    assert cores.of(cores.together([0, 1, 2, 4, 5], 2)) == (2, 3), "the node with fewer left: the other stays whole"
    assert len(cores.of(cores.together([2, 3, 4, 5, 6], 5))) == 5
