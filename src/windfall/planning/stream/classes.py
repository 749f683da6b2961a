"""Job classes of a stream: assign deadlines to the tasks of a job, at arrival and again as its tasks finish. Pure.

The assignment depends only on the class, the tasks left and the time left, so it is computed once and cached (SCS,
sections 3.3.1 and 4.1.4).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from windfall.graph import from_edges
from windfall.numeric import Ints
from windfall.planning.offers import Offer
from windfall.planning.stream.control import Waiting
from windfall.planning.workflow.methods.assign import Assignment, assign
from windfall.planning.workflow.model import US, Problem, Workflow, make_problem

Array = NDArray[np.float64]
Method = Callable[[Problem], Assignment]


class Template(Struct, frozen=True, eq=False):
    """For each task of the class: its offer and its interval in seconds from now. Tasks already done have offer -1.

    `latest_s` is the end after which its descendants could not keep their types.
    """

    offer: Ints
    begin_s: Array
    due_s: Array
    latest_s: Array
    ready: NDArray[np.bool_]  # all its parents are done


class JobClass:
    """One graph of tasks with one deadline, on given offers; answers of `assigned` are cached."""

    def __init__(
        self, workflow: Workflow, offers: tuple[Offer, ...], deadline_s: float, method: Method = assign, steps: int = 48
    ) -> None:
        self.workflow = workflow
        self.offers = offers
        self.deadline_s = deadline_s
        self.n = workflow.graph.tasks
        self.parents = workflow.graph.parent_rows()
        self.children = workflow.graph.child_rows()
        self.all_done = (1 << self.n) - 1
        problem = make_problem(workflow, offers, deadline_s)
        self.duration_s: Array = np.asarray(problem.duration, dtype=np.float64).T / US
        self._whole = problem
        self._method = method
        self.step_s = deadline_s / steps
        self._parts: dict[tuple[int, ...], Problem] = {}  # by the tasks that are left
        self._memory: dict[tuple[int, int, tuple[int, ...]], Template] = {}

    def assigned(self, done: int, left_s: float, wait: tuple[int, ...] = ()) -> Template:
        """Offers and intervals for the tasks not in the bit set `done`, with `left_s` seconds to the job's deadline.

        The time left is rounded down to a step, so that jobs in nearly the same situation share one answer. `wait`: by
        offer, how many quarters of a boot a job that has begun waits for its next machine (empty: none).
        """
        step = max(0, int(left_s / self.step_s + 1e-9))
        key = (done, step, wait if done else ())
        if key not in self._memory:
            self._memory[key] = self._work_out(*key)
        return self._memory[key]

    def _work_out(self, done: int, step: int, wait: tuple[int, ...]) -> Template:
        left_s = step * self.step_s
        rest = [task for task in range(self.n) if not done >> task & 1]
        problem = self._rest(rest, left_s, done != 0, wait or (0,) * len(self.offers))
        wish = self._method(problem)
        offer = np.full(self.n, -1, dtype=np.int64)
        begin, due, latest = np.zeros(self.n), np.zeros(self.n), np.zeros(self.n)
        offer[rest] = wish.offer_of
        due[rest] = np.asarray(wish.due) / US
        own = [problem.duration[o][i] for i, o in enumerate(wish.offer_of)]
        tail = problem.workflow.graph.tail(own)
        latest[rest] = [left_s - (after - mine) / US for after, mine in zip(tail, own, strict=True)]
        for task in rest:
            begin[task] = max((due[p] for p in self.parents[task] if not done >> p & 1), default=0.0)
        free = [offer[task] >= 0 and all(done >> p & 1 for p in self.parents[task]) for task in range(self.n)]
        return Template(offer, begin, due, np.maximum(latest, due), np.asarray(free, dtype=bool))

    def _rest(self, rest: list[int], left_s: float, started: bool, wait: tuple[int, ...]) -> Problem:
        """The tasks left as a problem of its own; machines for later tasks can be requested ahead."""
        if not started:
            return structs.replace(self._whole, deadline=int(left_s * US))
        key = tuple(rest)
        if key not in self._parts:
            self._parts[key] = self._part(rest)
        lag = [lag * quarters // 4 for lag, quarters in zip(self._whole.lag, wait, strict=True)]
        return structs.replace(self._parts[key], deadline=int(left_s * US), lag=lag)

    def _part(self, rest: list[int]) -> Problem:
        number = {task: i for i, task in enumerate(rest)}
        edges = [(number[p], number[task]) for task in rest for p in self.parents[task] if p in number]
        workflow = self.workflow
        part = Workflow(
            name=workflow.name,
            ids=[workflow.ids[task] for task in rest],
            classes=[workflow.classes[task] for task in rest],
            runtime_s=[workflow.runtime_s[task] for task in rest],
            cores=[workflow.cores[task] for task in rest],
            memory_bytes=[workflow.memory_bytes[task] for task in rest],
            graph=from_edges(len(rest), edges),
            resources=[workflow.resources[task] for task in rest] if workflow.resources else [],
        )
        duration = [[row[task] for task in rest] for row in self._whole.duration]
        return structs.replace(self._whole, workflow=part, duration=duration)


def assigned_to_all(
    shapes: list[JobClass], job_class: Ints, done: Ints, left_s: Array, now_s: float
) -> tuple[Waiting, Ints, Ints]:
    """Assign deadlines again for every job of a stream, with one computation per class and situation.

    `done` holds bit sets. Returns the waiting tasks, and for each its job and its index within the job.
    """
    widest = max(shape.n for shape in shapes)
    first_kind = np.cumsum([0, *(shape.n for shape in shapes)])
    step_s = np.array([shape.step_s for shape in shapes])[job_class]
    step = np.maximum((left_s / step_s + 1e-9).astype(np.int64), 0)
    sets, of_set = np.unique(done, return_inverse=True)
    steps = int(step.max(initial=0)) + 1
    keys, of_job = np.unique((job_class * len(sets) + of_set) * steps + step, return_inverse=True)
    class_and_set = keys // steps
    parts = (class_and_set // len(sets), sets[class_and_set % len(sets)], keys % steps)
    situations = zip(*(part.tolist() for part in parts), strict=True)
    offer = np.full((len(keys), widest), -1, dtype=np.int64)
    begin, due, latest = np.zeros(offer.shape), np.zeros(offer.shape), np.zeros(offer.shape)
    ready = np.zeros(offer.shape, dtype=bool)
    for row, (number, finished, left) in enumerate(situations):
        shape = shapes[number]
        template = shape.assigned(finished, left * shape.step_s)
        n = shape.n
        offer[row, :n], begin[row, :n], due[row, :n] = template.offer, template.begin_s, template.due_s
        latest[row, :n], ready[row, :n] = template.latest_s, template.ready
    job, task = np.nonzero((offer >= 0)[of_job])
    of_task = of_job[job]
    waiting = Waiting(
        kind=first_kind[job_class[job]] + task,
        offer=offer[of_task, task],
        begin_s=now_s + begin[of_task, task],
        due_s=now_s + due[of_task, task],
        latest_s=now_s + latest[of_task, task],
        ready=ready[of_task, task],
    )
    return waiting, job, task
