"""The graph of a workflow: order and paths, what is refused, what is shared, how it grows."""

from __future__ import annotations

import sys
from array import array

import pytest

from windfall import graph as graphs

DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def chain(tasks: int) -> graphs.Graph:
    return graphs.from_edges(tasks, ((i, i + 1) for i in range(tasks - 1)))


def test_a_diamond_becomes_ready_from_its_top_to_its_bottom():
    shape = graphs.from_edges(4, DIAMOND)
    left = shape.counters()
    assert list(left) == [0, 1, 1, 2]
    assert shape.finish(left, 0) == [1, 2]
    assert shape.finish(left, 2) == []
    assert shape.finish(left, 1) == [3]


def test_ranks_and_the_critical_path_follow_the_run_times():
    shape = graphs.from_edges(4, DIAMOND)
    assert list(shape.tail([1.0, 2.0, 5.0, 1.0])) == [7.0, 3.0, 6.0, 1.0]
    assert shape.critical_path([1.0, 2.0, 5.0, 1.0]) == [0, 2, 3]


def test_an_edge_that_is_said_twice_counts_once():
    assert graphs.from_edges(2, [(0, 1), (0, 1)]).key == graphs.from_edges(2, [(0, 1)]).key


@pytest.mark.parametrize("edges", [[(0, 1), (1, 0)], [(0, 0)], [(0, 2)], [(-1, 0)]])
def test_a_circle_and_a_task_that_is_not_there_are_refused(edges):
    with pytest.raises(graphs.BadGraph):
        graphs.from_edges(2, edges)


@pytest.mark.parametrize(
    ("offsets", "children"),
    [([], []), ([0, 2], [0]), ([1, 1], []), ([0, 2, 1], [0, 1]), ([0, 1], [7]), ([0, 1, 2], [1, 0])],
)
def test_packed_arrays_that_are_no_graph_are_refused(offsets, children):
    with pytest.raises(graphs.BadGraph):
        graphs.unpack(array("I", offsets).tobytes(), array("I", children).tobytes())
    with pytest.raises(graphs.BadGraph):
        graphs.unpack(b"\0\0\0", b"")


def test_a_shape_survives_packing_and_equal_shapes_have_one_key():
    shape = graphs.from_edges(4, DIAMOND)
    again = graphs.unpack(shape.offsets.tobytes(), shape.children.tobytes())
    assert again.key == shape.key and again.children == shape.children
    assert graphs.from_edges(5, DIAMOND).key != shape.key


def test_a_chain_of_a_hundred_thousand_needs_no_recursion():
    shape = chain(100_000)
    assert shape.tail([1.0] * 100_000)[0] == 100_000.0
    assert len(shape.critical_path([1.0] * 100_000)) == 100_000
    assert len(shape.descendants([0])) == 99_999
    assert sum(1 for _ in shape.walk_up(99_999, lambda task: True)) == 99_999


def test_a_workflow_costs_the_same_bytes_a_task_whatever_its_size():
    def bytes_a_task(tasks: int) -> float:
        shape = chain(tasks)
        columns = (shape.offsets, shape.children, shape.parent_counts)
        return sum(sys.getsizeof(column[:]) for column in columns) / tasks

    assert bytes_a_task(100_000) == pytest.approx(bytes_a_task(10_000), rel=0.02)
    assert bytes_a_task(100_000) < 16


def test_a_job_of_a_class_costs_its_counters_alone():
    shape = chain(1000)
    assert sys.getsizeof(shape.counters()) < 4 * 1000 + 200


class Counting(array):
    """An array that counts how many of its numbers were read."""

    read = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        Counting.read += len(found) if isinstance(index, slice) else 1
        return found


@pytest.mark.parametrize("tasks", [1_000, 10_000])
def test_running_a_workflow_reads_each_edge_once(tasks):
    """Work grows with tasks and edges and nothing else; counted, not timed."""
    edges = [(i // 3, i) for i in range(1, tasks)] + [(i // 5, i) for i in range(5, tasks)]
    shape = graphs.from_edges(tasks, edges)
    left, ready = shape.counters(), [0]
    shape.children = Counting("I", shape.children)
    Counting.read = 0
    for task in ready:
        ready += shape.finish(left, task)
    assert len(ready) == tasks
    assert Counting.read == shape.edges


def test_levels_count_the_longest_chain_before_a_task():
    assert graphs.from_edges(4, [*DIAMOND, (1, 2)]).levels() == [0, 1, 2, 3]


def test_the_critical_path_follows_the_longest_durations():
    graph = graphs.from_edges(4, DIAMOND)
    assert graph.critical_path([1, 5, 2, 1]) == [0, 1, 3]
    assert graph.earliest_finish([1, 5, 2, 1]) == [1, 6, 3, 7]
    assert graph.tail([1, 5, 2, 1]) == [7, 6, 3, 1]


def test_a_cycle_is_named_task_by_task_in_the_order_of_waiting():
    with pytest.raises(graphs.CycleFound) as found:
        graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)])
    tasks = found.value.tasks
    assert sorted(tasks) == [1, 2, 3]
    assert all((a, b) in {(1, 2), (2, 3), (3, 1)} for a, b in zip(tasks, tasks[1:] + tasks[:1], strict=True))
