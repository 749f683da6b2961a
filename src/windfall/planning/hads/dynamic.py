"""HADS (Teylo et al. 2019) while it runs: the hibernation time limit, migration, work stealing, idle machines. Pure.

`replan` depends on the snapshot alone. Beyond the paper: a migration keeps the progress of checkpoints, idle machines
take over from queues, and with `careful` a task moves to a spot machine only if on-demand could still rescue it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.contract import ONDEMAND, SPOT, Machine, Moves, Phase, Plan, Rejected, Snapshot, Start, Task
from windfall.planning.hads.lanes import TOLERANCE_S, Lanes, holds, longest_first
from windfall.planning.hads.primary import first_plan, slowest
from windfall.planning.offers import Offer
from windfall.planning.room import Room


class Settings(Struct, frozen=True, kw_only=True):
    """What goes beyond the paper, all on by default. `AS_PRINTED` is the paper's algorithm, its misprints corrected."""

    careful: bool = True
    checkpoints: bool = True
    balance: bool = True
    margin_s: float = 5.0
    """Seconds before the hibernation time limit at which tasks move."""
    any_thief: bool = True
    """Every idle spot machine steals, not only one that has just resumed."""
    slowest_rescuer: bool = False
    """The machines in K are of the slowest type, as in mkp_w, not of the one that is cheapest in time."""
    rescuers: int | None = None
    """Most machines in the set K, whose time for the tasks sets the limit; None: as many as may be rented.

    The paper leaves K open. The more machines, the later the limit: with many, hardly anything is left to steal back.
    """


AS_PRINTED = Settings(
    careful=False, checkpoints=False, balance=False, margin_s=0.0, any_thief=False, slowest_rescuer=True, rescuers=1
)
RELEASE_S = 5.0
"""Seconds before its next billing cycle at which an idle machine is given back."""
JUST_RESUMED_S = 60.0
"""A machine that has been up again for less than this has just resumed."""


class Rescue(Struct, frozen=True):
    """`machines` of one on-demand offer that would take tasks over: seconds of work after the boot, and the cost."""

    offer: Offer
    machines: int
    work_s: float
    cost_usd: float


def rescues(snapshot: Snapshot, tasks: Sequence[Task], room: Room, most_of_one: int | None = None) -> list[Rescue]:
    """Every number of machines of every on-demand offer that could take the tasks over, within the limits."""
    found = []
    for offer in snapshot.offers:
        if offer.market != ONDEMAND or not all(holds(offer, task) for task in tasks):
            continue
        most = min(len(tasks), room.of(offer), most_of_one or len(tasks))
        for count in range(1, most + 1):
            lanes = [Lanes(offer, ready_t=0.0) for _ in range(count)]
            for task in longest_first(tasks):
                min(lanes, key=lambda lane: lane.end_t(task)).append(task)
            work_s = max(lane.finish_t() for lane in lanes)
            cycles = sum(offer.cycles(offer.lag_s + lane.finish_t()) for lane in lanes if lane.slots)
            found.append(Rescue(offer, count, work_s, cycles * offer.price_usd))
    return found


def limit_t(snapshot: Snapshot, rescue: Rescue) -> float:
    """The hibernation time limit (equation 1): st = (D - alpha) - rt(Q, K)."""
    return snapshot.deadline_t - rescue.offer.lag_s - rescue.work_s


def choose_rescue(snapshot: Snapshot, options: Sequence[Rescue], margin_s: float) -> Rescue | None:
    """The cheapest rescue that is in time; among equally cheap ones, the one that can wait longest.

    The paper leaves K open. If none is in time, the quickest.
    """
    in_time = [option for option in options if limit_t(snapshot, option) - margin_s >= snapshot.t - TOLERANCE_S]
    if in_time:
        return min(in_time, key=lambda option: (round(option.cost_usd, 9), -limit_t(snapshot, option)))
    return max(options, key=lambda option: limit_t(snapshot, option), default=None)


class Board:
    """The machines as the plan changes them: the lanes of those that run, and every queue."""

    def __init__(self, snapshot: Snapshot, settings: Settings, plan: Plan) -> None:
        self.snapshot, self.settings, self.plan = snapshot, settings, plan
        self.lanes = {m.id: Lanes.of(m, snapshot) for m in snapshot.machines if m.phase is not Phase.HIBERNATED}
        self.markets = {m.id: m.offer.market for m in snapshot.machines}
        self.queues = {m.id: list(m.waiting) for m in snapshot.machines}
        self.idle = [m.id for m in snapshot.machines if m.phase is Phase.IDLE]
        self.room = snapshot.room()

    def names(self, idle: bool) -> list[str]:
        """Idle or busy machines, spot before on-demand (sort_by_market)."""
        able = [name for name in self.lanes if (name in self.idle) == idle]
        return sorted(able, key=lambda name: self.markets[name] != SPOT)

    def fits(self, task: Task, name: str) -> bool:
        """Whether the task would end there in time; with `careful`, on spot early enough for a rescue."""
        lanes = self.lanes[name]
        return lanes.end_t(task) <= self.until_t(task, lanes.offer.market) + TOLERANCE_S

    def until_t(self, task: Task, market: str) -> float:
        """When a task must end; with `careful`, on spot early enough for a rescue."""
        careful = self.settings.careful and market == SPOT
        return self.snapshot.deadline_t - (self._alone_s(task) if careful else 0.0)

    def resume_limits_t(self, machine: Machine) -> list[float]:
        """For each task that runs on a hibernated machine: the last moment at which it may go on there.

        What runs is not moved: if the machine hibernated again before the task is done, a rescue must still be in time.
        """
        by_t, tasks = self.snapshot.deadline_t, self.snapshot.tasks
        return [by_t - self._rescue_s(tasks[entry.task]) - entry.left_s for entry in machine.running]

    def _alone_s(self, task: Task) -> float:
        """Seconds of the quickest rescue of one task from its beginning."""
        return self._rescue_s(replace(task, saved_s=0.0))

    def _rescue_s(self, task: Task) -> float:
        """Seconds of the quickest rescue of one task by a new on-demand machine, boot and margin included."""
        able = [o for o in self.snapshot.offers if o.market == ONDEMAND and holds(o, task)]
        return min((o.lag_s + task.seconds_on(o) for o in able), default=0.0) + self.settings.margin_s

    def put(self, task: Task, name: str) -> None:
        """Append the task to the queue of a machine, which is then no longer idle."""
        self.lanes[name].append(task)
        self.queues[name].append(task.id)
        self.plan.assign[name] = self.queues[name]
        if name in self.idle:
            self.idle.remove(name)

    def open(self, task: Task) -> str | None:
        """Start the cheapest on-demand machine that is in time, else the quickest; None if none may be started."""
        snapshot = self.snapshot
        offers = [offer for offer in snapshot.offers if offer.market == ONDEMAND]
        able = [
            offer
            for offer in sorted(offers, key=lambda offer: (offer.price_usd, offer.name))
            if self.room.of(offer) > 0 and holds(offer, task)
        ]
        in_time = [o for o in able if snapshot.t + o.lag_s + task.seconds_on(o) <= snapshot.deadline_t + TOLERANCE_S]
        # Late is better than never: if none is in time, the one that ends soonest.
        late = sorted(able, key=lambda offer: offer.lag_s + task.seconds_on(offer))
        offer = next(iter(in_time or late), None)
        if offer is None:
            return None
        name = f"new-{len(self.plan.start)}"
        self.room.take(offer)
        self.plan.start.append(Start(name, offer))
        self.lanes[name] = Lanes(offer, ready_t=snapshot.t + offer.lag_s)
        self.markets[name], self.queues[name] = ONDEMAND, []
        return name

    def migrate(self, tasks: Iterable[Task]) -> list[Task]:
        """Algorithm 3: each task goes to an idle machine, else a busy one, else a new one. Returns those left over."""
        stranded = []
        to_idle = to_busy = to_new = 0
        for task in longest_first(tasks):
            name = next((name for name in self.names(idle=True) if self.fits(task, name)), None)
            to_idle += name is not None
            if name is None:
                name = next((name for name in self.names(idle=False) if self.fits(task, name)), None)
                to_busy += name is not None
            if name is None:
                name = self.open(task) or self._soonest(task)
                to_new += name is not None
            if name is None:
                stranded.append(task)
            else:
                self.put(task, name)
        if to_idle or to_busy or to_new:
            self.plan.moves = Moves(to_idle, to_busy, to_new)
            self.plan.because.append(
                f"moved {to_idle} tasks to idle machines, {to_busy} to busy ones, {to_new} to new ones"
            )
        return stranded

    def _soonest(self, task: Task) -> str | None:
        able = [name for name in self.lanes if math.isfinite(self.lanes[name].end_t(task))]
        return min(able, key=lambda name: self.lanes[name].end_t(task), default=None)


def stealable(machine: Machine, snapshot: Snapshot) -> list[int]:
    """Waiting tasks of an on-demand machine that would not start within its paid billing cycle."""
    slots = Lanes.of(machine, snapshot).slots[len(machine.running) :]
    return [slot.task for slot in slots if slot.start_t >= machine.paid_until_t - TOLERANCE_S]


def _steal_from(board: Board, victim: Machine, thief: str, tasks: Iterable[int]) -> int:
    """Move the tasks that fit from the victim's queue to the thief's. Returns how many."""
    snapshot, moved = board.snapshot, []
    for number in tasks:
        task = snapshot.tasks[number]
        if board.fits(task, thief):
            board.put(task, thief)
            moved.append(number)
    if moved:
        queue = [number for number in board.queues[victim.id] if number not in moved]
        board.queues[victim.id] = board.plan.assign[victim.id] = queue
        board.lanes[victim.id] = Lanes.of(replace(victim, waiting=tuple(queue)), snapshot)
    return len(moved)


def steal(board: Board, thief: str) -> int:
    """Algorithm 4: an idle spot machine takes tasks from cycles that on-demand machines have not begun.

    Line 5 prints vm_j, but the thief vm_k must have the memory, which `fits` checks. Returns how many were stolen.
    """
    stolen = 0
    for victim in board.snapshot.machines:
        if victim.offer.market == ONDEMAND and victim.phase is Phase.BUSY:
            stolen += _steal_from(board, victim, thief, stealable(victim, board.snapshot))
    return stolen


def _thieves(board: Board) -> list[str]:
    """Idle spot machines that may steal; as printed, only those that have just resumed (section 4.5)."""
    idle = [name for name in board.names(idle=True) if board.markets[name] == SPOT]
    if board.settings.any_thief:
        return idle
    t, resumed = board.snapshot.t, set()
    for machine in board.snapshot.machines:
        up_t = machine.up_since_t
        if up_t is not None and up_t > machine.ready_t + TOLERANCE_S and t - up_t <= JUST_RESUMED_S:
            resumed.add(machine.id)
    return [name for name in idle if name in resumed]


def balance(board: Board, thief: str) -> int:
    """Beyond the paper: an idle machine with paid time left takes waiting tasks that would finish there sooner."""
    stolen = 0
    machine = next(m for m in board.snapshot.machines if m.id == thief)
    victims = [m for m in board.snapshot.machines if m.phase is Phase.BUSY and m.id != thief and m.waiting]
    for victim in sorted(victims, key=lambda m: -board.lanes[m.id].finish_t()):
        ends_t = {slot.task: slot.end_t for slot in board.lanes[victim.id].slots}
        for number in reversed(board.queues[victim.id][:]):
            end_t = board.lanes[thief].end_t(board.snapshot.tasks[number])
            if end_t <= machine.paid_until_t and end_t < ends_t.get(number, -math.inf) - TOLERANCE_S:
                stolen += _steal_from(board, victim, thief, [number])
    return stolen


def _to_migrate(board: Board) -> list[Task]:
    """Tasks of machines hibernated beyond their limit; for the others, `replan_t` is set to the limit."""
    snapshot, plan, margin_s = board.snapshot, board.plan, board.settings.margin_s
    due, room = [], snapshot.room()
    for machine in snapshot.machines:
        if machine.phase is not Phase.HIBERNATED or not machine.tasks():
            continue
        tasks = [snapshot.tasks[number] for number in machine.tasks()]
        options = rescues(snapshot, tasks, room, board.settings.rescuers)
        if board.settings.slowest_rescuer and options:
            slow = slowest([option.offer for option in options])
            options = [option for option in options if option.offer is slow]
        rescue = choose_rescue(snapshot, options, margin_s)
        at_t = limit_t(snapshot, rescue) - margin_s if rescue else snapshot.t
        if board.settings.careful:
            at_t = min([at_t, *board.resume_limits_t(machine)])
        if rescue:
            for _ in range(rescue.machines):
                room.take(rescue.offer)
        if at_t > snapshot.t + TOLERANCE_S:
            plan.replan_t = min(plan.replan_t, at_t)
            plan.because.append(
                f"{machine.id} is hibernated with {len(tasks)} tasks; they may wait there until {at_t:.0f}"
            )
            plan.rejected += [Rejected(f"migrate {machine.id} now", rescue.cost_usd)] if rescue else []
            continue
        plan.assign[machine.id] = []
        plan.because.append(f"{machine.id} has been hibernated to its limit; {len(tasks)} tasks move")
        due += tasks
    return due


def _overdue(board: Board) -> list[Task]:
    """Beyond the paper: tasks queued on a machine that resumed before its limit but too late for its whole queue.

    Equation 1 asks when new machines could still do the work, not when the hibernated one could.
    """
    snapshot, late = board.snapshot, []
    for machine in snapshot.machines:
        if machine.id not in board.lanes or machine.offer.market != SPOT:
            continue
        ends_t = {slot.task: slot.end_t for slot in board.lanes[machine.id].slots}
        moved = [n for n in machine.waiting if ends_t[n] > board.until_t(snapshot.tasks[n], SPOT) + TOLERANCE_S]
        if moved:
            queue = [number for number in machine.waiting if number not in moved]
            board.queues[machine.id] = board.plan.assign[machine.id] = queue
            board.lanes[machine.id] = Lanes.of(replace(machine, waiting=tuple(queue)), snapshot)
            late += [snapshot.tasks[number] for number in moved]
            board.plan.because.append(f"{machine.id} has no time left for {len(moved)} of its tasks")
    return late


def _orphans(snapshot: Snapshot) -> list[Task]:
    """Tasks on no machine: theirs was reclaimed."""
    homed = {number for machine in snapshot.machines for number in machine.tasks()}
    return [task for number, task in sorted(snapshot.tasks.items()) if number not in homed]


def _release(board: Board) -> None:
    """Stop idle machines just before their next billing cycle; until then they may get work."""
    for machine in board.snapshot.machines:
        if machine.id not in board.idle:
            continue
        at_t = machine.paid_until_t - RELEASE_S
        if at_t <= board.snapshot.t + TOLERANCE_S:
            board.plan.stop.append(machine.id)
            board.plan.because.append(f"{machine.id} is idle and its billing cycle ends")
        else:
            board.plan.replan_t = min(board.plan.replan_t, at_t)


def _to_come_usd(board: Board) -> float:
    """Dollars for the billing cycles that the queues as they stand will begin."""
    paid_until_t = {machine.id: machine.paid_until_t for machine in board.snapshot.machines}
    cost_usd = 0.0
    for name, lanes in board.lanes.items():
        if lanes.slots:
            late_s = lanes.finish_t() - paid_until_t.get(name, board.snapshot.t)
            cost_usd += max(0, math.ceil(late_s / lanes.offer.cycle_s - 1e-9)) * lanes.offer.price_usd
    return cost_usd


def replan(snapshot: Snapshot, settings: Settings | None = None) -> Plan:
    """The plan for this snapshot: without machines the primary schedule, else the four events of section 4.3."""
    settings = settings or Settings()
    if not settings.checkpoints:
        fresh = {number: replace(task, saved_s=0.0) for number, task in snapshot.tasks.items()}
        snapshot = replace(snapshot, tasks=fresh)
    if not snapshot.machines and snapshot.tasks:
        tasks = [snapshot.tasks[number] for number in sorted(snapshot.tasks)]
        return first_plan(tasks, snapshot.offers, snapshot.t, snapshot.deadline_t)
    plan = Plan()
    board = Board(snapshot, settings, plan)
    late = _overdue(board) if settings.careful else []
    stranded = board.migrate([*_to_migrate(board), *late, *_orphans(snapshot)])
    if stranded:
        plan.because.append(f"{len(stranded)} tasks fit on no machine that can be rented")
    for thief in _thieves(board):
        if stolen := steal(board, thief):
            plan.moves.thieves += 1
            plan.because.append(f"{thief} takes {stolen} tasks from on-demand machines before their next billing cycle")
    if settings.balance:
        for thief in board.names(idle=True):
            if stolen := balance(board, thief):
                plan.because.append(f"{thief} is idle and takes {stolen} waiting tasks")
    _release(board)
    finish_t = max((lanes.finish_t() for lanes in board.lanes.values()), default=-math.inf)
    plan.predicted_finish_t = finish_t if math.isfinite(finish_t) else None
    plan.predicted_cost_usd = snapshot.spent_usd + _to_come_usd(board)
    return plan
