"""Levels of running tasks are those of a model that keeps every level from the beginning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windfall.core.state.jobs.attempts import Attempt, Attempts
from windfall.core.state.saving import Reader, Writer

MOVES = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "drop all", "look", "restore"]), st.integers(0, 4)), max_size=60
)


class Model:
    """Every level as a list, in the order in which tasks came to it."""

    def __init__(self) -> None:
        self.of_task: dict[int, int] = {}
        self.levels: dict[int, list[int]] = {}

    def move(self, task: int, to: int) -> None:
        old = self.of_task.pop(task, 0)
        if old:
            self.levels[old].remove(task)
        if to:
            self.of_task[task] = to
            self.levels.setdefault(to, []).append(task)

    def shown(self) -> dict[int, list[int]]:
        return {number: tasks for number, tasks in self.levels.items() if tasks}


def shown(attempts: Attempts) -> dict[int, list[int]]:
    return {number: list(tasks) for number, tasks in attempts.levels.saved().items()}


@given(MOVES)
def test_levels_are_the_same_whether_they_are_kept_or_only_follow_what_is_live(moves):
    attempts, model, number = Attempts(), Model(), 0
    for what, task in moves:
        count = len(attempts.live.get(task, ()))
        if what == "add":
            number += 1
            attempts.add(task, Attempt(number, 1, 0.0))
            model.move(task, count + 1)
        elif what == "drop" and count:
            assert attempts.drop(task, attempts.live[task][0].number) is not None
            model.move(task, count - 1)
        elif what == "drop all":
            attempts.drop_all(task)
            model.move(task, 0)
        elif what == "look":
            assert {level: list(tasks) for level, tasks in attempts.levels.by_number().items()} == model.shown()
        elif what == "restore":
            attempts = Reader(b"".join(Writer().pieces(attempts))).read(Attempts)
        assert shown(attempts) == model.shown()
        assert list(attempts.levels.alone()) == model.shown().get(1, [])
