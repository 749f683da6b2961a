"""Long tasks that checkpoint, each with a machine of its own: planned by the programme of the spot laboratory. Pure.

A task that keeps its progress and takes more than half of the time to the deadline is the laboratory's world: it is on
spot, on demand or idle, and every change costs a boot and the reading of its checkpoint. `spot.windfall.choose`
decides, tick by tick, from the same counts. What differs from the laboratory is only how capacity is seen: by asking
for it. Where the choice would be spot, a machine is ordered; if that is refused, the choice is made again without.

A running task leaves its machine only when the provider has taken the order of the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from windfall.planning.bags.packing import is_usable, ondemand_offers
from windfall.planning.checkpoints import best_interval_s, constant, save_s
from windfall.planning.contract import SPOT, Machine, Market, Plan, Snapshot, Start, Task
from windfall.planning.counts import CLASSES, SpellCounts
from windfall.planning.offers import Offer
from windfall.planning.spot import market as lab
from windfall.planning.spot.law import PRIOR, Prior
from windfall.planning.spot.live import USUAL_INTERRUPTIONS_PER_H, Learner
from windfall.planning.spot.sight import Sight, sight_of
from windfall.planning.spot.windfall import choose, choose_unseen, expected_usd
from windfall.units import show_duration

MAX_TASKS = 50
"""More tasks than this are planned as a bag: each one here has a programme of its own."""
TICKS_PER_CHANGEOVER = 2
MAX_TICKS = 500
"""From the beginning of a job to its deadline."""
LEAST_TICK_S = 1.0
START_OF_TICK = 0.1
"""Share of a tick that counts as its beginning. Choices are made there, and wherever a task has lost its machine."""
ORDER_TICKS = 0.02
"""Part of a tick after which the answer to an order is looked for."""
MAX_CYCLE_S = 600.0
"""With longer billing cycles it matters what is paid for already, which the programme does not know."""
MAX_SAVING_SHARE = 0.05
"""A task that saves very often does so at less than the usual cost."""
SAME_SPEED = 0.01
"""Offers whose speeds differ by less than this share count as equally fast."""


WORDS = {lab.Market.IDLE: "wait", lab.Market.SPOT: "spot", lab.Market.ONDEMAND: "on demand"}


class Deal(Struct, frozen=True):
    """The terms of one task, and the offers that they are about."""

    task: Task
    terms: lab.Terms
    spot: tuple[Offer, ...]
    """The cheapest first."""
    ondemand: Offer

    def seconds(self, task_s: float) -> float:
        """Seconds on its machines for seconds of progress at speed 1, its saves included."""
        return _with_saves(self.task, task_s / self.ondemand.speed_for(self.task.task_class))


def plan_serial(snapshot: Snapshot, margin_s: float) -> Plan | None:
    """The plan, if every unfinished task is such a task; else None."""
    if not 0 < len(snapshot.tasks) <= MAX_TASKS or snapshot.groups or not math.isfinite(snapshot.deadline_t):
        return None
    deals = [_deal(snapshot, task, margin_s) for _, task in sorted(snapshot.tasks.items())]
    if any(deal is None for deal in deals):
        return None
    return _SerialPlan(snapshot, [deal for deal in deals if deal is not None]).made()


def _deal(snapshot: Snapshot, task: Task, margin_s: float) -> Deal | None:
    """The terms of a task that the programme can plan; None if it cannot."""
    whole_s = snapshot.deadline_t - margin_s - snapshot.begun_t
    ondemand = next((o for o in ondemand_offers(snapshot, task.task_class) if task.fits(o)), None)
    if task.checkpoint_mb is None or ondemand is None or 2.0 * task.runtime_s <= whole_s:
        return None
    speed, alone = ondemand.speed_for(task.task_class), len(snapshot.tasks) == 1
    spot = [
        offer
        for offer in snapshot.offers
        if offer.market == SPOT and task.fits(offer) and offer.when_taken == "terminate"
        if abs(offer.speed_for(task.task_class) / speed - 1.0) <= SAME_SPEED
    ]
    fits_one = all(alone or offer.cores < 2 * task.cores for offer in (*spot, ondemand))
    if not spot or not fits_one or any(offer.cycle_s > MAX_CYCLE_S for offer in (*spot, ondemand)):
        return None
    spot.sort(key=lambda offer: (_usd_per_h(offer), offer.key))
    changeover_s = max(offer.lag_s for offer in (*spot, ondemand)) + save_s(task.checkpoint_mb)
    tick_s = max(LEAST_TICK_S, changeover_s / TICKS_PER_CHANGEOVER, whole_s / MAX_TICKS)
    terms = lab.Terms(
        work_ticks=_ticks(_with_saves(task, task.runtime_s / speed), tick_s),
        deadline_ticks=math.floor(whole_s / tick_s - START_OF_TICK),
        changeover_ticks=_ticks(changeover_s, tick_s),
        tick_s=tick_s,
        spot_usd=_usd_per_h(spot[0]),
        ondemand_usd=_usd_per_h(ondemand),
    )
    return Deal(task, terms, tuple(spot), ondemand)


def _ticks(seconds: float, tick_s: float) -> int:
    return max(0, math.ceil(seconds / tick_s - 1e-6))


def _with_saves(task: Task, seconds: float) -> float:
    """Seconds of work and of the saves on the way."""
    cost_s = save_s(task.checkpoint_mb or 0.0)
    every_s = best_interval_s(cost_s, max(seconds, 1.0), constant(USUAL_INTERRUPTIONS_PER_H))
    share = cost_s / max(task.save_every_s or every_s, 1e-6)
    return seconds * (1.0 + min(share, MAX_SAVING_SHARE))


def _usd_per_h(offer: Offer) -> float:
    return offer.compared_usd / offer.cycle_s * 3600.0


class _SerialPlan:
    """A plan in the making: one task after the other."""

    def __init__(self, snapshot: Snapshot, deals: list[Deal]) -> None:
        self.snapshot, self.deals, self.t = snapshot, deals, snapshot.t
        self.plan, self.room = Plan(), snapshot.room()
        self.usable = {machine.id: machine for machine in snapshot.machines if is_usable(machine)}
        self.by_task = {task: machine for machine in snapshot.machines for task in machine.tasks()}
        self.spare = [m for _, m in sorted(self.usable.items()) if not m.tasks()]
        """Machines without a task: a task that runs elsewhere is on its way to each of them, or waits for it."""
        self.is_moving = False
        """Whether an order is not answered yet for which a task would leave its machine."""

    def made(self) -> Plan:
        plan, waiting = self.plan, []
        for deal in self.deals:
            machine = self.by_task.get(deal.task.id)
            if machine is None or not is_usable(machine):
                waiting.append(deal)
            else:
                self._leave_or_keep(deal, machine)
        for deal in waiting:
            self._place(deal)
        for machine in self.spare:
            plan.stop.append(machine.id)
            plan.because.append(f"{machine.id} is stopped: no task needs it")
        for machine in self.snapshot.machines:
            if not is_usable(machine) and machine.is_recalled and not machine.tasks():
                plan.stop.append(machine.id)
        plan.replan_t = min(self._next_tick_t(deal) for deal in self.deals)
        if self.is_moving:
            plan.replan_t = min(plan.replan_t, self.t + ORDER_TICKS * min(deal.terms.tick_s for deal in self.deals))
        plan.only_reserved = True
        plan.predicted_cost_usd = self.snapshot.spent_usd + sum(self._expected_usd(deal) for deal in self.deals)
        plan.predicted_finish_t = max(self.t + self._left_s(deal) for deal in self.deals)
        return plan

    # --- one task -----------------------------------------------------------------------------------------------------

    def _leave_or_keep(self, deal: Deal, machine: Machine) -> None:
        """A task that has a machine: it moves on to the next one, stays, or gives its machine up."""
        following = self._spare_of_other_market(machine)
        if following is not None:
            self.spare.remove(following)
            self.is_moving = self.is_moving or not following.is_taken
            if following.is_taken:
                self.plan.because.append(f"task {deal.task.id} goes from {machine.id} to {following.id}")
                self._leave(deal, machine, following.id)
            return
        if not self._is_start_of_tick(deal):
            return
        market = lab.Market.SPOT if machine.offer.market == SPOT else lab.Market.ONDEMAND
        choice, offer = self._choice(deal, self._state(deal, machine, market), machine)
        if choice is market:
            return
        if choice is lab.Market.IDLE:
            self._leave(deal, machine, "")
        elif offer is not None and self.room.of(offer) > 0:
            self._start(offer)
            self.is_moving = True
        elif offer is not None and choice is lab.Market.ONDEMAND and self.room.of_offer(offer) > 0:
            # Its own machine has the last place of the pool, which must be free first.
            self._leave(deal, machine, "")

    def _place(self, deal: Deal) -> None:
        """A task that has no machine."""
        number = deal.task.id
        if number in self.by_task and self.by_task[number].running:
            # It is still there: saved, or reclaimed, in a moment.
            if self.by_task[number].is_recalled and self.spare:
                self.spare.pop(0)
            return
        if self.spare:
            self._queue(self.spare.pop(0).id, [number])
            return
        if self._has_chosen(deal):
            return
        _, offer = self._choice(deal, self._state(deal, None, lab.Market.IDLE), None)
        if offer is None or self.room.of(offer) <= 0:
            return
        self._queue(self._start(offer), [number])

    def _choice(
        self, deal: Deal, state: lab.State, machine: Machine | None
    ) -> tuple[lab.Market, Offer | None]:  # fmt: skip
        """What the programme chooses, and the offer that it means."""
        if machine is not None and machine.offer.market == SPOT:
            choice = self._chosen(deal, machine.offer, state, is_here=True)
            return choice, deal.ondemand if choice is lab.Market.ONDEMAND else machine.offer
        open_ = [offer for offer in deal.spot if self.room.of(offer) > 0]
        if not self._is_start_of_tick(deal):
            # Absent spot is asked for once a tick.
            open_ = [offer for offer in open_ if not self._was_away(offer)]
        offer = (open_ or deal.spot)[0]
        if open_:
            choice = choose_unseen(
                lambda is_here: self._chosen(deal, offer, state, is_here=is_here), was_absent=self._was_away(offer)
            )
        else:
            choice = self._chosen(deal, offer, state, is_here=False)
        return choice, {lab.Market.ONDEMAND: deal.ondemand, lab.Market.SPOT: offer}.get(choice)

    def _chosen(self, deal: Deal, offer: Offer, state: lab.State, *, is_here: bool) -> lab.Market:
        terms = replace(deal.terms, spot_usd=_usd_per_h(offer))
        choice = choose(terms, self._sight(offer, deal, is_here), state, self.t)
        where = "if there is spot" if is_here else "without spot"
        spare = show_duration(max(0, lab.slack(terms, state)) * terms.tick_s)
        self.plan.because.append(
            f"task {deal.task.id}, {where}: {WORDS[choice]} for the next {show_duration(terms.tick_s)}; "
            f"{spare} may pass without progress"
        )
        return choice

    # --- what is known -----------------------------------------------------------------------------------------------

    def _counts(self, offer: Offer) -> SpellCounts:
        market = self.snapshot.markets.get(offer.key)
        return SpellCounts() if market is None or market.counts is None else market.counts

    def _was_away(self, offer: Offer) -> bool:
        return self._counts(offer).away_t is not None

    def _sight(self, offer: Offer, deal: Deal, is_here: bool) -> Sight:
        market = self.snapshot.markets.get(offer.key, Market())
        up = [m.up_since_t for m in self.snapshot.machines if m.offer.key == offer.key and m.is_taken]
        return sight_of(
            self._counts(offer),
            self.t,
            up_since_t=[since_t for since_t in up if since_t is not None],
            is_here=is_here,
            imported=market.imported,
            prior=_prior(offer),
            replaced=_replaced(offer, deal.spot, self.snapshot.markets),
            looks_every_s=deal.terms.tick_s,
        )

    def _state(self, deal: Deal, machine: Machine | None, market: lab.Market) -> lab.State:
        """The task as the laboratory sees it, at the beginning of a tick."""
        terms, warming = deal.terms, 0
        if machine is not None and not machine.running:
            ready_s = max(0.0, machine.ready_t - self.t) + save_s(deal.task.checkpoint_mb or 0.0)
            warming = min(terms.changeover_ticks, _ticks(ready_s - START_OF_TICK * terms.tick_s, terms.tick_s))
        return lab.State(self._tick(deal), _ticks(self._left_s(deal), terms.tick_s), market, warming)

    def _expected_usd(self, deal: Deal) -> float:
        """Expected dollars of a task from now on."""
        machine = self.by_task.get(deal.task.id)
        is_spot = machine is not None and machine.offer.market == SPOT
        market = lab.Market.IDLE if machine is None else lab.Market.SPOT if is_spot else lab.Market.ONDEMAND
        offer = machine.offer if machine is not None and is_spot else deal.spot[0]
        is_here = is_spot or not self._was_away(offer)
        terms = replace(deal.terms, spot_usd=_usd_per_h(offer))
        return expected_usd(terms, self._sight(offer, deal, is_here), self._state(deal, machine, market), self.t)

    def _left_s(self, deal: Deal) -> float:
        """Seconds of work that are left of a task."""
        machine = self.by_task.get(deal.task.id)
        for entry in machine.running if machine is not None else ():
            if entry.task == deal.task.id:
                return _with_saves(deal.task, entry.left_s)
        return deal.seconds(max(0.0, deal.task.runtime_s - deal.task.saved_s))

    def _ticks_passed(self, deal: Deal) -> float:
        return max(0.0, self.t - self.snapshot.begun_t) / deal.terms.tick_s

    def _tick(self, deal: Deal) -> int:
        return math.floor(self._ticks_passed(deal) + 1.0 - START_OF_TICK)

    def _is_start_of_tick(self, deal: Deal) -> bool:
        passed = self._ticks_passed(deal) + 1e-9
        return passed - math.floor(passed) <= START_OF_TICK

    def _has_chosen(self, deal: Deal) -> bool:
        """Whether the choice to wait was made at the beginning of this tick, and nothing was seen since."""
        since_t = self._next_tick_t(deal) - (1.0 - START_OF_TICK) * deal.terms.tick_s
        seen = [self._counts(offer).seen_t for offer in deal.spot]
        return self.t > since_t and all(seen_t is not None and seen_t <= since_t for seen_t in seen)

    def _next_tick_t(self, deal: Deal) -> float:
        return self.snapshot.begun_t + (math.floor(self._ticks_passed(deal) + 1e-9) + 1) * deal.terms.tick_s

    # --- what is done ------------------------------------------------------------------------------------------------

    def _spare_of_other_market(self, machine: Machine) -> Machine | None:
        return next((spare for spare in self.spare if spare.offer.market != machine.offer.market), None)

    def _start(self, offer: Offer) -> str:
        label = f"new-{len(self.plan.start)}"
        self.plan.start.append(Start(label, offer))
        self.plan.assign[label] = []
        self.room.take(offer)
        return label

    def _queue(self, label: str, tasks: list[int]) -> None:
        self.plan.assign[label] = tasks

    def _leave(self, deal: Deal, machine: Machine, following: str) -> None:
        """Give a machine back: what runs there saves first. What waits for it waits for the following one."""
        if machine.running:
            self.plan.recall.append(machine.id)
            return
        self._queue(machine.id, [])
        self.plan.stop.append(machine.id)
        if following:
            self._queue(following, [deal.task.id])


def _prior(offer: Offer) -> Prior:
    """The prior of an offer: with the rate that it states, if it states one."""
    if offer.interruptions_per_h is None:
        return PRIOR
    return Prior((max(offer.interruptions_per_h, 1e-3),) * CLASSES, PRIOR.away)


def _replaced(offer: Offer, spot: tuple[Offer, ...], markets: Mapping[str, Market]) -> float:
    """The chance that spot of another offer can be had when this one is interrupted."""
    learner = Learner(markets)
    return 1.0 - math.prod(learner.shared_fate(offer, other) for other in spot if other.key != offer.key)
