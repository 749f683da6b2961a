"""Which type of machine each task should have and by when (SCS, algorithm 1; GAIN uses its second half). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, structs

from windfall.graph import Graph, from_edges
from windfall.planning.workflow.methods.fleet import fastest_offers, finish_with, stretched
from windfall.planning.workflow.model import NEVER, Problem

# Exact upgrades are quadratic. Above each of these numbers of tasks: all tasks of a class and level are upgraded
# together; the gain is that of the task, not of the makespan; a sixteenth of the path is upgraded at once.
MAX_TASKS_UPGRADED_ALONE = 150
MAX_TASKS_EXACT_GAIN = 400
MAX_TASKS_ONE_UPGRADE = 3_000
CHAINING_EFFORT = 3_000_000  # tasks visited while parallelism is reduced


class Assignment(Struct, frozen=True):
    """For each task its offer, its due time, and the task whose machine it should continue on."""

    offer_of: list[int]
    due: list[int]
    bundled_with: list[int]  # -1: none


def assign(problem: Problem) -> Assignment:
    """SCS's deadline assignment: cheapest types, less parallelism while no type changes, upgrades until in time."""
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
    """For each task its most cost-efficient offer; at equal cost, the faster."""
    offers = range(len(problem.offers))
    return [
        min(offers, key=lambda o: (share_cost(problem, task, o), problem.duration[o][task], o))
        for task in range(problem.n)
    ]


def bundles(problem: Problem, preferred: Sequence[int]) -> list[int]:
    """An only child of an only parent runs on the parent's machine if both prefer the same type; -1: none."""
    parents, children = problem.workflow.graph.parent_rows(), problem.workflow.graph.child_rows()
    partner = [-1] * problem.n
    for task, above in enumerate(parents):
        if len(above) == 1 and len(children[above[0]]) == 1 and preferred[task] == preferred[above[0]]:
            partner[task] = above[0]
    return partner


def upgrade(problem: Problem, preferred: Sequence[int] | None = None) -> list[int]:
    """Upgrade the cheapest offers by gain in makespan per dollar until the deadline is met."""
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
    if problem.n <= MAX_TASKS_UPGRADED_ALONE:
        return [[task] for task in range(problem.n)]
    together: dict[tuple[str, int], list[int]] = defaultdict(list)
    keys = list(zip(problem.workflow.classes, problem.workflow.graph.levels(), strict=True))
    for task, key in enumerate(keys):
        together[key].append(task)
    return [together[key] for key in keys]


def _best_steps(problem: Problem, offer_of: list[int], end: list[int], groups: list[list[int]]) -> list[dict[int, int]]:
    """The upgrades with the best gain per dollar on a critical chain: one, or several in a large workflow."""
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
        if problem.n <= MAX_TASKS_EXACT_GAIN:
            trial = [step.get(t, o) for t, o in enumerate(offer_of)]
            gained = float(makespan - max(finish_with(problem, trial)))
        # With two equally long paths no single upgrade shortens the makespan: the task's own gain decides.
        per_dollar = max(dollars, 1e-12)
        scored.append(((gained / per_dollar, local / per_dollar), step))
    many = 1 if problem.n <= MAX_TASKS_ONE_UPGRADE else max(1, len(chain) // 16)
    return [step for _, step in sorted(scored, key=lambda entry: entry[0], reverse=True)[:many]]


def _critical_tasks(problem: Problem, offer_of: list[int], end: list[int]) -> list[int]:
    """A critical chain, last task first: each starts when the next in the list ends."""
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

    A group that cannot run one by one runs in as few parallel chains as possible.
    """
    graph = problem.workflow.graph
    types = upgrade(problem, preferred)
    extra: list[tuple[int, int]] = []
    current, left = problem, CHAINING_EFFORT
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
