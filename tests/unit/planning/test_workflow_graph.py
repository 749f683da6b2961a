"""The graph: order, levels and paths; and that it stays linear where recursion would fall over."""

from __future__ import annotations

import pytest

from windfall.planning.workflow.graph import CycleFound, build

DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_levels_count_the_longest_chain_before_a_task():
    assert build(4, [*DIAMOND, (1, 2)]).levels().tolist() == [0, 1, 2, 3]


def test_the_critical_path_follows_the_longest_durations():
    graph = build(4, DIAMOND)
    assert graph.critical_path([1, 5, 2, 1]) == [0, 1, 3]
    assert graph.earliest_finish([1, 5, 2, 1]) == [1, 6, 3, 7]
    assert graph.tail([1, 5, 2, 1]) == [7, 6, 3, 1]


def test_a_cycle_is_named_task_by_task_in_the_order_of_waiting():
    with pytest.raises(CycleFound) as found:
        build(5, [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)])
    tasks = found.value.tasks
    assert sorted(tasks) == [1, 2, 3]
    assert all((a, b) in {(1, 2), (2, 3), (3, 1)} for a, b in zip(tasks, tasks[1:] + tasks[:1], strict=True))


def test_an_edge_said_twice_counts_once():
    graph = build(2, [(0, 1), (0, 1)])
    assert graph.parents() == [[], [0]]


def test_a_chain_of_a_hundred_thousand_tasks_needs_no_recursion():
    n = 100_000
    graph = build(n, [(i, i + 1) for i in range(n - 1)])
    assert max(graph.earliest_finish([1] * n)) == n
    assert len(graph.critical_path([1] * n)) == n
