"""The exact bound for a small workflow: a CP-SAT model, solved in a process of its own. Touches: stdin and stdout.

OR-tools and HiGHS (through scipy) cannot be imported in one process, so `bound` starts this module as a process and
exchanges JSON with it. Times are rounded in the plan's favour (tasks down, deadline up), so the bound stays valid.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

from windfall.errors import BadInput
from windfall.planning.workflow.model import NEVER, Problem

STEPS = 20_000  # the deadline in time units of the model
NANO = 1e9  # dollars are integers in the model


def bound(problem: Problem, upper_usd: float, limit_s: float, exact: bool = True, workers: int = 1) -> dict[str, Any]:
    """{"bound_usd", "best_usd", "proved"}: no plan costs less than `bound_usd`. `upper_usd` is a plan that we have."""
    request = json.dumps(describe(problem, upper_usd) | {"limit_s": limit_s, "workers": workers, "exact": exact})
    command = [sys.executable, "-m", "windfall.lab.workflows.cpsat"]
    answer = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise BadInput(f"the CP-SAT bound failed: {last[0]}", hint="try: pip install 'windfall[bounds]'")
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def describe(problem: Problem, upper_usd: float) -> dict[str, Any]:
    """The problem in whole time units. A unit coarser than a billing cycle bills continuously: still a bound."""
    unit = max(1, -(-problem.deadline // STEPS))
    graph = problem.workflow.graph
    tasks = range(problem.n)
    offers = []
    for o, offer in enumerate(problem.offers):
        durations = [d // unit if d < NEVER else None for d in problem.duration[o]]
        shortest = min((d for d in problem.duration[o] if d < NEVER), default=0)
        cheapest_lease = problem.cost(o, problem.lag[o] + shortest)
        slots = problem.n if cheapest_lease <= 0 else int(upper_usd / cheapest_lease + 1e-9)
        exact = problem.cycle[o] % unit == 0 or problem.cycle[o] >= 200 * unit
        offers.append(
            {
                "durations": durations,
                "slots": min(slots, problem.n, problem.limit[o]),
                "cores": offer.cores,
                "lag": problem.lag[o] // unit,
                # A cycle that is rounded up holds at least as much work as the real one.
                "cycle": -(-problem.cycle[o] // unit) if exact else 1,
                "price": int((offer.price_usd if exact else problem.rate(o) * unit) * NANO),
            }
        )
    return {
        "n": problem.n,
        "edges": [(p, t) for t, above in enumerate(graph.parent_rows()) for p in above],
        "width": [problem.workflow.cores[t] for t in tasks],
        "deadline": -(-problem.deadline // unit),
        "offers": offers,
        "upper": int(upper_usd * NANO * (1 + 1e-9)) + 1,
    }


def solve(data: dict[str, Any]) -> dict[str, Any]:
    """First the machines of a type counted together (fast, no symmetry), then one by one (exact) in the time left."""
    from ortools.sat.python import cp_model

    together = cp_model.CpModel()
    _together(together, data)
    quick = _run(together, data["limit_s"] * (0.25 if data["exact"] else 1.0), data["workers"])
    if not data["exact"]:
        return {"bound_usd": max(0.0, quick["bound"]) / NANO, "best_usd": None, "proved": False, "status": "RELAXED"}
    exact = cp_model.CpModel()
    parts = _together(exact, data)
    _one_by_one(exact, data, *parts)
    exact.add(parts[0] >= min(math.ceil(quick["bound"] - 1), data["upper"]))
    answer = _run(exact, data["limit_s"] * 0.75, data["workers"])
    return {
        "bound_usd": max(0.0, quick["bound"], answer["bound"]) / NANO,
        "best_usd": None if answer["best"] is None else answer["best"] / NANO,
        "proved": answer["status"] == "OPTIMAL",
        "status": answer["status"],
    }


def _run(model: Any, limit_s: float, workers: int) -> dict[str, Any]:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = workers
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return {
        "bound": solver.best_objective_bound,
        "best": solver.objective_value if found else None,
        "status": solver.status_name(status),
    }


def _together(model: Any, data: dict[str, Any]) -> tuple[Any, list[Any], list[Any], list[list[Any]]]:
    """Machines counted per type, tasks given to types: work must fit the cycles paid and every window of time."""
    n, deadline = data["n"], data["deadline"]
    total = model.new_int_var(0, data["upper"], "cost")
    machines, cycles, runs = [], [], []
    windows = _crowded(data)
    for o, offer in enumerate(data["offers"]):
        usable = [t for t in range(n) if offer["durations"][t] is not None]
        longest_lease = -(-deadline // offer["cycle"])
        count = model.new_int_var(0, offer["slots"], f"n{o}")
        paid = model.new_int_var(0, offer["slots"] * longest_lease, f"paid{o}")
        here = [model.new_bool_var(f"y{t}.{o}") for t in range(n)]
        for t in set(range(n)) - set(usable):
            model.add(here[t] == 0)
        work = {t: data["width"][t] * offer["durations"][t] for t in usable}
        cores, lag = offer["cores"], offer["lag"]
        model.add(cores * offer["cycle"] * paid >= cores * lag * count + sum(work[t] * here[t] for t in usable))
        shortest = min((offer["durations"][t] for t in usable), default=0)
        model.add(paid >= count * max(1, -(-(lag + shortest) // offer["cycle"])))
        for t in usable:
            model.add(count >= here[t])
            model.add(paid >= -(-(lag + offer["durations"][t]) // offer["cycle"])).only_enforce_if(here[t])
        for begin, finish, inside in windows:
            length = finish - max(begin, lag)
            mine = [t for t in inside if t in work]
            model.add(sum(work[t] * here[t] for t in mine) <= cores * max(0, length) * count)
            for most in (1, 2, 3, 4):  # of tasks longer than 1/k of the window, fewer than k fit one after another
                long = [t for t in mine if offer["durations"][t] * (most + 1) > length]
                if len(long) > most * cores:
                    model.add(sum(data["width"][t] * here[t] for t in long) <= most * cores * count)
        machines.append(count)
        cycles.append(paid)
        runs.append(here)
    for t in range(n):
        model.add_exactly_one([here[t] for here in runs])
    model.add(total == sum(offer["price"] * paid for offer, paid in zip(data["offers"], cycles, strict=True)))
    model.minimize(total)
    return total, machines, cycles, runs


def _one_by_one(
    model: Any, data: dict[str, Any], total: Any, machines: list[Any], cycles: list[Any], types: list[list[Any]]
) -> None:
    """Every machine with its own tasks and lease, tied to the counts of its type."""
    n, deadline = data["n"], data["deadline"]
    first, last = _windows(data)
    start = [model.new_int_var(first[t], last[t], f"s{t}") for t in range(n)]
    end = [model.new_int_var(0, deadline, f"e{t}") for t in range(n)]
    for o, offer in enumerate(data["offers"]):
        runs: list[list[Any]] = [[] for _ in range(n)]
        slots = [_slot(model, data, o, k, start, end, runs) for k in range(offer["slots"])]
        model.add(sum(used for _, _, used in slots) == machines[o])
        model.add(sum(paid for paid, _, _ in slots) == cycles[o])
        for t in range(n):
            model.add(sum(runs[t]) == types[o][t])
        for (_, begin, used), (_, next_begin, next_used) in pairwise(slots):
            model.add(used >= next_used)  # equal machines are numbered by their start
            model.add(begin <= next_begin)
    for p, t in data["edges"]:
        model.add(start[t] >= end[p])


def _crowded(data: dict[str, Any]) -> list[tuple[int, int, list[int]]]:
    """Windows of time with the tasks that must run inside them in every plan, the fullest windows first."""
    first, last = _windows(data)
    fastest = _fastest(data)
    finish = [last[t] + fastest[t] for t in range(data["n"])]
    found = []
    for begin in sorted(set(first)):
        for end in sorted(set(finish)):
            inside = [t for t in range(data["n"]) if first[t] >= begin and finish[t] <= end]
            if inside and end > begin:
                found.append((sum(fastest[t] for t in inside) / (end - begin), (begin, end, inside)))
    found.sort(key=lambda entry: -entry[0])
    return [window for _, window in found[:250]]


def _fastest(data: dict[str, Any]) -> list[int]:
    return [min(o["durations"][t] for o in data["offers"] if o["durations"][t] is not None) for t in range(data["n"])]


def _windows(data: dict[str, Any]) -> tuple[list[int], list[int]]:
    """First and last start of every task, as if each had a machine of its own."""
    n, fastest = data["n"], _fastest(data)
    boot = min(offer["lag"] for offer in data["offers"])
    first, last = [boot] * n, [data["deadline"] - fastest[t] for t in range(n)]
    for _ in range(n):  # to a fixed point; n is small
        changed = False
        for p, t in data["edges"]:
            if first[p] + fastest[p] > first[t]:
                first[t], changed = first[p] + fastest[p], True
            if last[t] - fastest[p] < last[p]:
                last[p], changed = last[t] - fastest[p], True
        if not changed:
            break
    return first, last


def _slot(
    model: Any, data: dict[str, Any], o: int, k: int, start: list[Any], end: list[Any], runs: list[list[Any]]
) -> Any:
    """One machine that may be rented: its optional tasks, its lease and its cycles."""
    offer, n, deadline = data["offers"][o], data["n"], data["deadline"]
    used = model.new_bool_var(f"u{o}.{k}")
    begin = model.new_int_var(0, deadline, f"b{o}.{k}")
    release = model.new_int_var(0, deadline, f"r{o}.{k}")
    cycles = model.new_int_var(0, -(-deadline // offer["cycle"]), f"c{o}.{k}")
    model.add(cycles <= -(-deadline // offer["cycle"]) * used)
    intervals, demands, work = [], [], []
    for t in range(n):
        duration = offer["durations"][t]
        if duration is None:
            continue
        here = model.new_bool_var(f"x{t}.{o}.{k}")
        runs[t].append(here)
        intervals.append(model.new_optional_interval_var(start[t], duration, end[t], here, f"i{t}.{o}.{k}"))
        demands.append(data["width"][t])
        work.append(data["width"][t] * duration * here)
        model.add_implication(here, used)
        model.add(start[t] >= begin + offer["lag"]).only_enforce_if(here)
        model.add(end[t] <= release).only_enforce_if(here)
        model.add(offer["cycle"] * cycles >= offer["lag"] + duration).only_enforce_if(here)
    if offer["cores"] == 1:
        model.add_no_overlap(intervals)
    else:
        model.add_cumulative(intervals, demands, offer["cores"])
    model.add(release >= begin)
    model.add(offer["cycle"] * cycles >= release - begin)
    model.add(cycles >= used)
    # Redundant, and without it the bound stays near zero: a lease lasts at least its boot and the work it carries.
    model.add(offer["cores"] * offer["cycle"] * cycles >= offer["cores"] * offer["lag"] * used + sum(work))
    return cycles, begin, used


if __name__ == "__main__":
    from windfall.lab.cases import end_with_parent

    end_with_parent()
    print(json.dumps(solve(json.load(sys.stdin))))
