"""Improve a plan by ruin and recreate, with exact billing. Pure.

A round removes some tasks (of a machine, around a moment, near each other in the graph), puts them back one by one
where they add the least cost between their parents and children, and keeps the result if it is cheaper or, early on,
nearly so. The other tasks keep their times; now and then all tasks are pushed to the left or to the right, which moves
the slack. Effort is counted in machines tried, not in seconds: the same input gives the same plan.

A round costs the same whatever the size of the workflow: in a large fleet it tries a sample of machines. In a large
workflow only cheaper plans are accepted (no annealing), so the best plan is the present one and is not copied.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from windfall.planning.workflow.methods.timeline import Timeline, from_plan, to_plan
from windfall.planning.workflow.model import NEVER, Plan, Problem

# Weight of the lengths of leases beside their cost: at equal cost, shorter leases are nearer to saving a cycle.
LENGTH_WEIGHT = 0.02
SKIPPED_SHARE = 0.03  # share of machines skipped at random in an insertion, so that choices vary
SKIP_LOG = math.log(1.0 - SKIPPED_SHARE)
RENT_FIRST_SHARE = (
    0.4  # share of rounds that rent a machine first: for one task, a large one never looks worth its price
)
# Acceptance temperatures at the beginning and at the end, relative to the cost of `TEMPERATURE_TASKS` tasks: against
# the whole cost of a large workflow, any loss of one round would look small.
FIRST_TEMPERATURE, LAST_TEMPERATURE, TEMPERATURE_TASKS = 0.15, 0.0003, 5
MACHINE_SHARE = 0.6  # share of rounds that empty a machine or cut an end off it
TRIM_SHARE, RUN_SHARE, BESIDE_SHARE = 0.35, 0.25, 0.5  # of those: cut the last cycle, some tasks; take of another, too
LEAST_REMOVED, MOST_REMOVED = 5, 36  # tasks taken out in one round: at most a number between these
MAX_MACHINES_TRIED = 96  # machines tried for one task, or for one moment; in a larger fleet a sample
MAX_TASKS_ANNEALED = 3_000  # above this, only cheaper plans are accepted
PUSH_SHARE = 0.12  # share of rounds that begin by pushing all tasks to one side, in workflows of up to 300 tasks

Terms = tuple[int, int, int, float, float]
"""Of an offer: unworked time of a lease that is billed, least billed time, cycle, price, price of length."""
Row = tuple[int, int, int, float]
"""Of a task on an offer: duration, boot, latest end, expected cost of losses."""
Way = tuple[int, int, int, float, int, int, int, float, float]
"""Of a task on an offer, now: first begin, latest end, duration, expected cost of losses, and the offer's terms."""


class Search:
    """Improves one plan that meets the deadline and whose machines may all be rented at once.

    `best` is the cheapest found, by dollars; `value`, which the search lowers, counts the lengths of leases, too.
    """

    def __init__(self, problem: Problem, plan: Plan, rng: np.random.Generator) -> None:
        self.problem = problem
        graph = problem.workflow.graph
        self.parents, self.children = graph.parent_rows(), graph.child_rows()
        self.rank = [0] * problem.n
        for position, task in enumerate(graph.order().tolist()):
            self.rank[task] = position
        self.fastest = [min(row) for row in zip(*problem.duration, strict=True)]
        self.width, self.size = problem.workflow.cores, problem.workflow.memory_bytes
        self.due, self.loss_usd = problem.exposure.due, problem.exposure.loss_usd
        self._price()
        self.rent_first = -1
        self.rng = rng
        self._draws: list[float] = []
        self._skip = self._next_skip()
        self.looks = 0
        self._load(from_plan(problem, plan))
        self.best_value = self.value
        self.best_usd = self._usd()
        self.best = plan
        self.annealed = problem.n <= MAX_TASKS_ANNEALED
        self.pushed = PUSH_SHARE * min(1.0, 300 / max(1, problem.n))

    def _price(self) -> None:
        """What the value of a lease follows from, per offer, and what a task adds, per task and offer."""
        problem, offers = self.problem, range(len(self.problem.offers))
        # Billed time beyond the lease's work is the boot, unless that is free.
        self.terms: list[Terms] = [
            (
                problem.lag[offer] - problem.unbilled[offer], max(1, problem.minimum[offer]), problem.cycle[offer],
                problem.offers[offer].price_usd, LENGTH_WEIGHT * problem.rate(offer),
            )
            for offer in offers
        ]  # fmt: skip
        self.rows: list[list[Row]] = [
            [
                (problem.duration[offer][task], problem.lag[offer], self.due[offer][task], self.loss_usd[offer][task])
                for offer in offers
            ]
            for task in range(problem.n)
        ]
        self.alone = [[self._worth(offer, row[offer][0]) + row[offer][3] for offer in offers] for row in self.rows]
        """Per task and offer: what the task adds on a machine of its own."""
        self.empty = [self._worth(offer, 0) for offer in offers]

    def _load(self, machines: list[Timeline]) -> None:
        self.machines = machines
        self.start, self.end = [0] * self.problem.n, [0] * self.problem.n
        self.where: list[Timeline] = [machines[0]] * self.problem.n
        self.live = [0] * len(self.problem.offers)
        self.live_of_pool = [0] * len(self.problem.pool_limit)
        for machine in machines:
            self._count(machine.offer, 1)
            machine.worth = self._worth(machine.offer, machine.last - machine.first)
            for task, start, end in zip(machine.tasks, machine.starts, machine.ends, strict=True):
                self.start[task], self.end[task], self.where[task] = start, end, machine
        self.value = sum(machine.worth for machine in machines)
        self.value += sum(self.loss_usd[self.where[task].offer][task] for task in range(self.problem.n))

    def _count(self, offer: int, change: int) -> None:
        self.live[offer] += change
        self.live_of_pool[self.problem.pool[offer]] += change

    def _has_room(self, offer: int) -> bool:
        problem, pool = self.problem, self.problem.pool[offer]
        return self.live[offer] < problem.limit[offer] and self.live_of_pool[pool] < problem.pool_limit[pool]

    def _worth(self, offer: int, span: int) -> float:
        """Value of a lease from the first task to the last: whole cycles, and a little for its length."""
        boot, least, cycle, price, length_price = self.terms[offer]
        lease = span + boot
        if lease < least:
            lease = least
        return -(-lease // cycle) * price + length_price * lease

    def _random(self) -> float:
        if not self._draws:
            self._draws = self.rng.random(8192).tolist()
        draw: float = self._draws.pop()
        return draw

    def _below(self, n: int) -> int:
        return int(self._random() * n)

    def run(self, looks: int, floor: float) -> None:
        """Search until `looks` machines have been tried, or the cost reaches the lower bound `floor`."""
        warm = (
            FIRST_TEMPERATURE * self.value * min(1.0, TEMPERATURE_TASKS / max(1, self.problem.n))
            if self.annealed
            else 0.0
        )
        begin = self.looks
        cooling = math.log(LAST_TEMPERATURE / FIRST_TEMPERATURE)
        quiet = 0
        while self.looks - begin < looks and self.best_value > 0:
            heat = warm * math.exp(cooling * (self.looks - begin) / looks)
            if self._random() < self.pushed:
                self._push(left=self._random() < 0.5)
            before = self.best_usd
            self._round(heat)
            quiet = 0 if self.best_usd < before - 1e-12 else quiet + 1
            if self.annealed and quiet % 50 == 0 and self.best.cost_usd(self.problem) <= floor * (1 + 1e-9):
                return
        if not self.annealed:
            self.best = to_plan(self.problem, self.machines, "windfall")

    def _round(self, heat: float) -> None:
        out = self._ruin()
        saved: dict[int, tuple[Timeline, Timeline]] = {}
        before = self.value
        old = [(task, self.start[task], self.end[task], self.where[task]) for task in out]
        for task in out:
            machine = self.where[task]
            if id(machine) not in saved:
                saved[id(machine)] = (machine, machine.copy())
            machine.remove(task, self.width[task], self.size[task])
            self.value -= self.loss_usd[machine.offer][task]
        self.looks += sum(len(twin.tasks) for _, twin in saved.values()) // 8
        known, live, live_of_pool = self.machines[:], self.live[:], self.live_of_pool[:]
        for machine, twin in saved.values():
            self.value -= twin.worth
            if machine.starts:
                machine.worth = self._worth(machine.offer, machine.last - machine.first)
                self.value += machine.worth
            else:
                self.machines.remove(machine)
                self._count(machine.offer, -1)
        # The rounding of sums must not turn equal plans away.
        ceiling = before + 1e-12 - heat * math.log(self._random() + 1e-300)
        self.rent_first = self._below(len(self.live)) if self._random() < RENT_FIRST_SHARE else -1
        if self._recreate(out, saved, ceiling):
            self._remember()
            return
        self.value, self.machines, self.live, self.live_of_pool = before, known, live, live_of_pool
        for machine, twin in saved.values():
            machine.become(twin)
        for task, start, end, machine in old:
            self.start[task], self.end[task], self.where[task] = start, end, machine

    def _remember(self) -> None:
        """Keep the plan if it is the cheapest so far, or as cheap and of less value; the copy counts as effort."""
        if not self.annealed:
            self.best_value = min(self.value, self.best_value)
            return
        usd = self._usd()
        if usd > self.best_usd + 1e-12 or (usd > self.best_usd - 1e-12 and self.value >= self.best_value - 1e-12):
            return
        self.best_usd, self.best_value = usd, self.value
        self.best = to_plan(self.problem, self.machines, "windfall")
        self.looks += self.problem.n // 4

    def _usd(self) -> float:
        """Dollars of the present plan, with the expected cost of losses."""
        problem = self.problem
        usd = sum(problem.cost(m.offer, m.last - m.first + problem.lag[m.offer]) for m in self.machines)
        if problem.exposure.matters:
            usd += sum(self.loss_usd[machine.offer][task] for task, machine in enumerate(self.where))
        return usd

    # -- ruin ---------------------------------------------------------------------------------------------------

    def _ruin(self) -> list[int]:
        """Tasks to take out, in one of four ways."""
        n = self.problem.n
        # Mostly few: rounds with many tasks cost more and save less, but some plans are left in no other way.
        most = max(2, min(n, int(LEAST_REMOVED * (MOST_REMOVED / LEAST_REMOVED) ** self._random())))
        dice = self._random()
        if dice < MACHINE_SHARE:
            return self._a_machine(most)
        dice = (dice - MACHINE_SHARE) / (1.0 - MACHINE_SHARE)
        if dice < 0.4:
            return self._a_neighbourhood(2 + self._below(min(most, 12)))
        if dice < 0.8:
            return self._a_moment(most)
        count = 1 + self._below(min(n, 6))
        return list(dict.fromkeys(self._below(n) for _ in range(count)))

    def _a_machine(self, most: int) -> list[int]:
        """All tasks of one machine, or a run of tasks at one end of it; often with tasks of other machines.

        Nearly all dollars are saved so: by closing a machine, or by cutting what reaches into its last cycle.
        """
        machine = self.machines[self._below(len(self.machines))]
        dice = self._random()
        if dice < TRIM_SHARE:
            out = self._last_cycle(machine, most)
        elif dice < TRIM_SHARE + RUN_SHARE or len(machine.tasks) > most:
            count = 1 + self._below(min(len(machine.tasks), most))
            out = machine.tasks[:count] if self._random() < 0.5 else machine.tasks[-count:]
        else:
            out = machine.tasks[:]
        if len(out) < most and (dice := self._random()) < BESIDE_SHARE:
            other = self.machines[self._below(len(self.machines))]
            if other is not machine:
                begin, end = self.start[out[0]], self.end[out[-1]]
                if dice < 0.5 * BESIDE_SHARE:
                    begin, end = 0, NEVER
                spans = zip(other.tasks, other.starts, other.ends, strict=True)
                out += [task for task, start, stop in spans if start < end and stop > begin]
        return out[:most]

    def _last_cycle(self, machine: Timeline, most: int) -> list[int]:
        """Up to `most` tasks at one end of a machine that make its lease a cycle longer; all tasks if it has one."""
        boot, least, cycle, _, _ = self.terms[machine.offer]
        lease = max(least, machine.last - machine.first + boot)
        over = lease - (-(-lease // cycle) - 1) * cycle
        if self._random() < 0.5:
            near = zip(machine.tasks[-2 * most :], machine.ends[-2 * most :], strict=True)
            out = [task for task, end in near if end > machine.last - over][-most:]
        else:
            near = zip(machine.tasks[:most], machine.starts[:most], strict=True)
            out = [task for task, start in near if start < machine.first + over]
        return out or machine.tasks[:most]

    def _a_neighbourhood(self, count: int) -> list[int]:
        """A task and its neighbours in the graph."""
        out = {self._below(self.problem.n): None}
        frontier = list(out)
        while frontier and len(out) < count:
            task = frontier.pop(self._below(len(frontier)))
            near = self.parents[task] + self.children[task]
            for _ in range(min(3, len(near))):
                other = near[self._below(len(near))]
                if other not in out:
                    out[other] = None
                    frontier.append(other)
        return list(out)

    def _a_moment(self, most: int) -> list[int]:
        """The tasks that run around one moment, on all machines or on a few."""
        centre = self._below(self.problem.n)
        middle = self.start[centre]
        reach = max(1, int((self.end[centre] - middle) * 2 * self._random()))
        share = 0.3 + 0.7 * self._random()
        out = [centre]
        for machine in self._some_machines():
            if self._random() < share:
                for task, start, end in zip(machine.tasks, machine.starts, machine.ends, strict=True):
                    if start < middle + reach and end > middle - reach and task != centre:
                        out.append(task)
        return out[:most]

    # -- recreate -----------------------------------------------------------------------------------------------

    def _recreate(self, out: list[int], saved: dict[int, tuple[Timeline, Timeline]], ceiling: float) -> bool:
        """Put the tasks back, parents first; False if one fits nowhere or the value exceeds the ceiling."""
        missing = set(out)
        latest: dict[int, int] = {}
        for task in sorted(out, key=self.rank.__getitem__, reverse=True):
            due = self.problem.deadline
            for child in self.children[task]:
                begin = latest[child] - self.fastest[child] if child in missing else self.start[child]
                if begin < due:
                    due = begin
            latest[task] = due
        style = self._below(3)
        waits = {task: sum(1 for p in self.parents[task] if p in missing) for task in out}
        heap = [(self._urgency(style, task, latest[task]), task) for task in out if not waits[task]]
        heapq.heapify(heap)
        while heap:
            _, task = heapq.heappop(heap)
            if not self._insert(task, latest[task], saved, ceiling):
                return False
            for child in self.children[task]:
                if child in waits:
                    waits[child] -= 1
                    if not waits[child]:
                        heapq.heappush(heap, (self._urgency(style, child, latest[child]), child))
        return True

    def _urgency(self, style: int, task: int, due: int) -> float:
        if style == 0:
            return float(due)
        if style == 1:
            return -float(self.fastest[task])
        return self._random()

    def _some_machines(self) -> list[Timeline]:
        """All machines; in a large fleet a random range and the newest, which this round may have rented."""
        machines = self.machines
        if len(machines) <= MAX_MACHINES_TRIED:
            return machines
        at = self._below(len(machines) - MAX_MACHINES_TRIED + 9)
        return (
            machines[at : at + MAX_MACHINES_TRIED - 8] + machines[max(at + MAX_MACHINES_TRIED - 8, len(machines) - 8) :]
        )

    def _insert(self, task: int, due: int, saved: dict[int, tuple[Timeline, Timeline]], ceiling: float) -> bool:
        """Place the task where the value rises least; False if that is nowhere, or above the ceiling."""
        ready = max([self.end[p] for p in self.parents[task]], default=0)
        if ready + self.fastest[task] > due:
            return False
        ways = self._ways(task, ready, due)
        best, best_start, best_machine, best_offer = ceiling - self.value, NEVER, None, -1
        skip, looks = self._skip, 0
        for machine in self._some_machines():
            way = ways[machine.offer]
            if way is None:
                continue
            looks += 1
            skip -= 1
            if skip < 0:
                skip = self._next_skip()
                continue
            begin, end, duration, loss, boot, least, cycle, price, length_price = way
            first, last = machine.first, machine.last
            # The least lease with this task, whatever the gaps are: mostly it costs too much, and no gap is sought.
            span = last - first
            if (reached := begin + duration - first) > span:
                span = reached
            if (reached := last - end + duration) > span:
                span = reached
            if (lease := span + boot) < least:
                lease = least
            added = -(-lease // cycle) * price + length_price * lease - machine.worth + loss
            if added > best or (added == best and begin >= best_start):
                continue
            for start in self._starts(machine, task, begin, end, duration):
                span = (start + duration if start + duration > last else last) - (start if start < first else first)
                if (lease := span + boot) < least:
                    lease = least
                added = -(-lease // cycle) * price + length_price * lease - machine.worth + loss
                if added < best or (added == best and start < best_start):
                    best, best_start, best_machine, best_offer = added, start, machine, machine.offer
        self._skip, self.looks = skip, self.looks + looks
        offer, start, charged = self._new_one(task, ways, best, ceiling - self.value)
        if offer >= 0:
            best, best_start, best_machine, best_offer = charged, start, None, offer
        if best_offer < 0:
            return False
        self._put(task, best_start, best_machine, best_offer, saved)
        self.value += best
        return True

    def _ways(self, task: int, ready: int, due: int) -> list[Way | None]:
        """Per offer: when the task may begin and must have ended there, and what it takes to price it; or None."""
        ways: list[Way | None] = []
        for (duration, lag, last_end, loss), terms in zip(self.rows[task], self.terms, strict=True):
            begin = ready if ready > lag else lag
            end = last_end if last_end < due else due
            ways.append((begin, end, duration, loss, *terms) if begin + duration <= end else None)
        return ways

    def _new_one(self, task: int, ways: list[Way | None], best: float, room: float) -> tuple[int, int, float]:
        """The offer of which a new machine adds less than `best`, the task's start, and what it adds to the value.

        The offer is -1 if none does. The price of the machine that a round rents first does not count in the
        comparison, only for the ceiling.
        """
        found, start, charged = -1, 0, 0.0
        self.looks += len(ways)
        for offer, added in enumerate(self.alone[task]):
            way = ways[offer]
            seen = added - self.empty[offer] if offer == self.rent_first else added
            if way is None or seen >= best or added > room or not self._has_room(offer):
                continue
            if self._random() >= SKIPPED_SHARE:
                found, start, best, charged = offer, way[0], seen, added
        return found, start, charged

    def _next_skip(self) -> int:
        """How many machines are tried until one is skipped."""
        return int(math.log(self._random() + 1e-300) / SKIP_LOG)

    def _starts(self, machine: Timeline, task: int, ready: int, due: int, duration: int) -> list[int]:
        """The starts worth comparing on one machine: the first, the first within its lease, the last."""
        width, size = self.width[task], self.size[task]
        first = machine.earliest(ready, due, duration, width, size)
        if first is None:
            return []
        if first >= machine.first and first + duration <= machine.last:
            return [first]
        starts = [first]
        if first < machine.first:
            inside = machine.earliest(machine.first, due, duration, width, size)
            if inside is not None:
                starts.append(inside)
            last = machine.latest(ready, min(due, machine.first), duration, width, size)
            if last is not None:
                starts.append(last)
        return starts

    def _put(
        self, task: int, start: int, machine: Timeline | None, offer: int, saved: dict[int, tuple[Timeline, Timeline]]
    ) -> None:
        if machine is None:
            machine = Timeline(self.problem, offer)
            self.machines.append(machine)
            self._count(offer, 1)
            self.rent_first = -1 if offer == self.rent_first else self.rent_first
        elif id(machine) not in saved:
            saved[id(machine)] = (machine, machine.copy())
        end = start + self.problem.duration[offer][task]
        machine.add(task, start, end, self.width[task], self.size[task])
        machine.worth = self._worth(offer, machine.last - machine.first)
        self.start[task], self.end[task], self.where[task] = start, end, machine

    # -- slack --------------------------------------------------------------------------------------------------

    def _push(self, left: bool) -> None:
        """Move every task as far to one side as its neighbours allow; undone if the cost rises."""
        self.looks += self.problem.n
        moved = [Timeline(self.problem, machine.offer) for machine in self.machines]
        number = {id(machine): twin for machine, twin in zip(self.machines, moved, strict=True)}
        start, end = self.start[:], self.end[:]
        tasks = sorted(
            range(self.problem.n), key=lambda t: (start[t], self.rank[t]) if left else (-end[t], -self.rank[t])
        )
        for task in tasks:
            machine = self.where[task]
            twin, duration = number[id(machine)], end[task] - start[task]
            width, size = self.width[task], self.size[task]
            if left:
                ready = max([end[p] for p in self.parents[task]], default=0)
                ready = max(ready, machine.first)  # a lease may shrink, never grow at its front
                place = twin.earliest(ready, NEVER, duration, width, size)
            else:
                due = min([start[c] for c in self.children[task]], default=self.problem.deadline)
                due = min(due, self.due[machine.offer][task])
                place = twin.latest(0, min(due, machine.last), duration, width, size)
            if place is None:
                return
            start[task], end[task] = place, place + duration
            twin.add(task, place, place + duration, width, size)
        value = sum(self._worth(m.offer, m.last - m.first) for m in moved)
        value += sum(self.loss_usd[self.where[task].offer][task] for task in range(self.problem.n))
        if value <= self.value + 1e-12 and max(end) <= self.problem.deadline:
            self._load(moved)
            self._remember()
