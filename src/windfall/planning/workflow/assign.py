"""Which type of machine each task should have and by when (SCS, algorithm 1; GAIN uses its second half). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, structs

from windfall.graph import Graph, from_edges
from windfall.planning.workflow.fleet import fastest_offers, finish_with, stretched
from windfall.planning.workflow.model import NEVER, Problem

# Above so many tasks an upgrade moves all tasks of a class and level together, above so many more a gain is judged by
# the task alone, and above so many more a sixteenth of the path is upgraded at once: exactness would be quadratic.
ONE_BY_ONE = 150
EXACT_GAIN = 400
ONE_STEP = 3_000
CHAINED = 3_000_000  # tasks looked at while parallelism is reduced


class Assignment(Struct, frozen=True):
    """For each task its offer, the time by which it should end, and the task whose machine it should take over."""

    offer_of: list[int]
    due: list[int]
    bundled_with: list[int]  # -1: none


def assign(problem: Problem) -> Assignment:
    """Deadline assignment: the cheapest types, parallelism reduced while no type changes, upgrades until it fits."""
    preferred = cheapest_offers(problem)
    narrow = reduce_parallelism(problem, preferred)
    offer_of = upgrade(narrow, preferred)
    return Assignment(offer_of, stretched(narrow, finish_with(narrow, offer_of)), bundles(problem, preferred))


def share_cost(problem: Problem, task: int, offer: int) -> float:
    """Dollars for a task's share of a machine, as if it were billed continuously."""
    duration = problem.duration[offer][task]
    if duration >= NEVER:
        return float("inf")
    return duration * problem.rate(offer) * problem.workflow.cores[task] / problem.offers[offer].cores


def cheapest_offers(problem: Problem) -> list[int]:
    """For each task its most cost-efficient offer, of equals the faster."""
    offers = range(len(problem.offers))
    return [
        min(offers, key=lambda o: (share_cost(problem, task, o), problem.duration[o][task], o))
        for task in range(problem.n)
    ]


def bundles(problem: Problem, preferred: Sequence[int]) -> list[int]:
    """A task with one parent, whose parent has one child, runs where the parent ran if both prefer the same type."""
    parents, children = problem.workflow.graph.parent_rows(), problem.workflow.graph.child_rows()
    partner = [-1] * problem.n
    for task, above in enumerate(parents):
        if len(above) == 1 and len(children[above[0]]) == 1 and preferred[task] == preferred[above[0]]:
            partner[task] = above[0]
    return partner


def upgrade(problem: Problem, preferred: Sequence[int] | None = None) -> list[int]:
    """From the cheapest offers, upgrade the best gain in makespan per dollar until the makespan fits the deadline."""
    offer_of = list(preferred or cheapest_offers(problem))
    groups: list[list[int]] | None = None
    while True:
        end = finish_with(problem, offer_of)
        if max(end, default=0) <= problem.deadline:
            return offer_of
        groups = groups or _groups(problem)
        steps = _best_steps(problem, offer_of, end, groups)
        if not steps:
            return fastest_offers(problem)
        for step in steps:
            for task, offer in step.items():
                offer_of[task] = offer


def _groups(problem: Problem) -> list[list[int]]:
    """For each task, the tasks that are upgraded together with it."""
    if problem.n <= ONE_BY_ONE:
        return [[task] for task in range(problem.n)]
    together: dict[tuple[str, int], list[int]] = defaultdict(list)
    keys = list(zip(problem.workflow.classes, problem.workflow.graph.levels(), strict=True))
    for task, key in enumerate(keys):
        together[key].append(task)
    return [together[key] for key in keys]


def _best_steps(problem: Problem, offer_of: list[int], end: list[int], groups: list[list[int]]) -> list[dict[int, int]]:
    """The upgrades with the best gain per dollar among the tasks that hold the makespan up: one, or a few of many."""
    makespan = max(end)
    scored: list[tuple[tuple[float, float], dict[int, int]]] = []
    chain = _critical_tasks(problem, offer_of, end)
    for task in chain:
        if _next_faster(problem, task, offer_of[task]) is None:
            continue
        step = {t: o for t in groups[task] if (o := _next_faster(problem, t, offer_of[t])) is not None}
        dollars = sum(share_cost(problem, t, o) - share_cost(problem, t, offer_of[t]) for t, o in step.items())
        local = problem.duration[offer_of[task]][task] - problem.duration[step[task]][task]
        gained = float(local)
        if problem.n <= EXACT_GAIN:
            trial = [step.get(t, o) for t, o in enumerate(offer_of)]
            gained = float(makespan - max(finish_with(problem, trial)))
        # Two equally long paths: no single upgrade shortens the makespan, so the shorter task itself decides.
        per_dollar = max(dollars, 1e-12)
        scored.append(((gained / per_dollar, local / per_dollar), step))
    many = 1 if problem.n <= ONE_STEP else max(1, len(chain) // 16)
    return [step for _, step in sorted(scored, key=lambda entry: entry[0], reverse=True)[:many]]


def _critical_tasks(problem: Problem, offer_of: list[int], end: list[int]) -> list[int]:
    """One chain of tasks, each starting when the one before ends, that ends last."""
    parents = problem.workflow.graph.parent_rows()
    at: int | None = max(range(problem.n), key=end.__getitem__)
    chain = []
    while at is not None:
        chain.append(at)
        start = end[at] - problem.duration[offer_of[at]][at]
        at = next((p for p in parents[at] if end[p] == start), None)
    return chain


def _next_faster(problem: Problem, task: int, offer: int) -> int | None:
    now = problem.duration[offer][task]
    faster = [o for o in range(len(problem.offers)) if problem.duration[o][task] < now]
    return max(faster, key=lambda o: (problem.duration[o][task], -share_cost(problem, task, o)), default=None)


def reduce_parallelism(problem: Problem, preferred: Sequence[int] | None = None) -> Problem:
    """Chain parallel tasks that share parents and children, level by level, until a task has to change its type.

    Of a group that cannot run one by one, as few as possible run side by side.
    """
    graph = problem.workflow.graph
    types = upgrade(problem, preferred)
    extra: list[tuple[int, int]] = []
    current, left = problem, CHAINED
    for siblings in _parallel_groups(graph):
        lanes = 1
        while lanes <= len(siblings) // 2 and left > 0:
            left -= problem.n
            chains = list(zip(siblings, siblings[lanes:], strict=False))
            trial = _with_edges(problem, extra + chains)
            if max(finish_with(trial, types)) <= problem.deadline:
                extra += chains
                current = trial
                break
            lanes *= 2
    return current


def _parallel_groups(graph: Graph) -> list[list[int]]:
    level = graph.levels()
    groups: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for task, (above, below) in enumerate(zip(graph.parent_rows(), graph.child_rows(), strict=True)):
        groups[level[task], tuple(above), tuple(below)].append(task)
    return [groups[key] for key in sorted(groups) if len(groups[key]) > 1]


def _with_edges(problem: Problem, extra: Sequence[tuple[int, int]]) -> Problem:
    graph = problem.workflow.graph
    edges = [(p, task) for task, above in enumerate(graph.parent_rows()) for p in above]
    workflow = structs.replace(problem.workflow, graph=from_edges(graph.tasks, [*edges, *extra]))
    return structs.replace(problem, workflow=workflow)
