"""Windfall's own planner of fleets: slack waits for capacity that is already paid. Pure.

All waiting tasks are laid out on the machines that are there, the one that must begin first, first. Each goes where it
costs least and is in time: into a cycle that is paid already, into one that a machine has to be kept for, or onto a
new machine. A machine is ordered when its task could not wait any longer, so jobs with slack gather until they fill
one, or run in what others have paid for. A task with slack for both goes to a spot machine, if that is cheaper with the
risk counted: on-demand can still do it in time whenever it is interrupted.
"""

from __future__ import annotations

import math
from collections import Counter

from windfall.planning.contract import ONDEMAND, SPOT, Phase, Plan, Start
from windfall.planning.fleet import scs
from windfall.planning.fleet.deadlines import STEPS, Wish, assigned
from windfall.planning.fleet.latest import latest_starts, shared_starts
from windfall.planning.fleet.mix import Mix, mix_of
from windfall.planning.fleet.model import HORIZON_PERIODS, Cycles, Gap, Slots, Waiting, Work, queues_of
from windfall.planning.fleet.scs import predict, waits_s
from windfall.planning.fleet.spot import SpotSide, detection_s
from windfall.planning.room import Room, market_key, pool_limits
from windfall.planning.workflow.methods.assign import assign
from windfall.units import show_duration

LEAST_PAID_SHARE = 0.1
"""Paid time that nobody else is expected to use is charged this part of its price.

A job with no more time than a billing cycle is charged all of it: a long task that is cheap now, on a machine of a type
that others need soon, would make them rent one more.
"""
ORDER_MARGIN_PERIODS = 2.0
"""A machine is ordered this many periods before the last moment."""
LEAST_MARGIN_S, LEAST_MARGIN_SHARE = 8.0, 0.1
"""And at least these seconds, or this part of a shorter deadline: a server that was killed comes back meanwhile."""
GUARD_SHARE = 0.01
"""Tasks are planned to end this part of their job's time before they must."""
USUAL_ROUNDING = 0.3
"""An idle machine is kept for the next cycle if the streams keep it busy for more than the rest of this."""
RESERVE_SHARE = 0.15
"""Tasks keep this part of their job's time, at most a boot, for those that come in between."""
SPREAD_SHARE = 0.8
"""This part of the slack of a chain of tasks is divided among them equally; the first that waits may use the rest.

A job that spent all of it on waiting for its first machine would need each later one at a given minute. It does not pay
where tasks run side by side: they use slack to run one after the other.
"""
SPREAD_CYCLES = 2.0
"""Jobs with less time than this many billing cycles divide less of it, in proportion.

The machine of their first task is still paid when the others come, and the slack is hardly more than their reserve.
"""


ONDEMAND_SHARE = 0.5
"""Spot machines leave this part of the limit of a pool to on-demand machines."""
LAYOUT_EFFORT = 1_000_000
"""Waiting tasks times machines. Above, the loop of SCS plans, whose effort is their sum."""


def plan(work: Work) -> Plan:
    """Lay out all waiting tasks, order what cannot wait, give back what nobody needs."""
    if work.backlog or len(work.waiting) * (len(work.snapshot.machines) + len(work.offers)) > LAYOUT_EFFORT:
        return scs.plan(work)
    spot = SpotSide(work) if work.spot else None
    mix = mix_of(work) if spot is None else spot.ondemand_mix()
    wishes = assigned(work, assign, waits_s(work), mix.allowed)
    layout = Layout(work, mix, wishes, spot=spot)
    layout.place_all()
    return layout.written()


class Layout:
    """Machines with what is put into their queues."""

    def __init__(
        self, work: Work, mix: Mix, wishes: dict[int, Wish], gathers: bool = True, spot: SpotSide | None = None
    ) -> None:
        """`gathers`: whether tasks wait for paid time; else what they need is ordered at once."""
        self.work, self.mix, self.wishes, self.gathers, self.spot = work, mix, wishes, gathers, spot
        self.slots, self.room = work.slots(), work.room()
        work.rents_spot = spot is not None
        self.held_by = {name: each for each in self.slots if each.machine for name in each.machine.waiting}
        """On-demand machines by the tasks that are reserved for them."""
        if spot is not None:
            self.slots += work.slots(SPOT)
        self.by_offer: dict[int, list[Slots]] = {}
        for each in self.slots:
            self.by_offer.setdefault(each.offer, []).append(each)
        self.rate = [offer.price_usd / offer.cycle_s for offer in work.every]
        self.new_usd: dict[tuple[int, int], float] = {}
        """By kind and offer: what a task is charged on a machine that is rented for it."""
        self._find_rentable()
        self.ends = dict(work.running_until_t)
        self.found = Plan()
        self.margin_s = ORDER_MARGIN_PERIODS * work.period_s
        boot_s = max((offer.lag_s for offer in work.offers), default=0.0)
        self.horizon_t = work.t + max(HORIZON_PERIODS * work.period_s, boot_s + work.period_s)
        self.order_t = math.inf
        self.paid_t = {each.label: each.paid_until_t for each in self.slots}
        self.last_t: dict[int, float] = {}
        """By task the end after which its job would be late."""
        self.latest_t: dict[int, float] = {}
        """By task the end that is planned for, with a reserve and what is kept for the tasks behind it."""
        self.hurried: set[int] = set()
        """Tasks that must end earlier because others need the same limited machines after them."""
        self.kept_s: dict[int, float] = {}
        """By task the slack of its job that is left to the tasks behind it."""
        self.step_s: dict[int, float] = {}
        """By job the steps in which wishes count its time left."""
        self._find_ends()
        self.spot_room: dict[str, int] = {}
        """By pool with a limit of its own: the spot machines that may be rented, beside those kept for on-demand."""
        if gathers:
            self._leave_room()
        self.shared_t = self._shared_starts() if gathers and spot is None else {}
        """By task the start by which a machine is ordered for it, though it could wait longer alone."""
        self.paid_share = self._paid_shares()
        self.pays_all = self._without_time() if spot is None else frozenset()
        """Jobs that are charged the whole price of paid time."""
        self.planned: set[str] = set()
        """Machines that have something to do, later than what is reserved included."""
        self.gaps: dict[str, Gap] = {}
        """By machine that waits for a task whose parents run."""
        self.waits = 0
        self.cores_of_owner: dict[str, Slots] = {}
        """Cores that the tasks of an owner may hold at once, where these are counted; else none is limited."""

    def _find_rentable(self) -> None:
        self.rentable = [place for place, offer in enumerate(self.work.every) if self.room.of(offer) > 0]

    def _find_ends(self) -> None:
        """Wishes count the time left in whole steps: the rest is given back here, but for the guard."""
        work = self.work
        boot_s = max((offer.lag_s for offer in work.offers), default=0.0)
        for number, tasks in work.by_job.items():
            job = work.job(number)
            span_s = min(job.deadline_t - job.submitted_t, 1e9)
            step_s = self.step_s[number] = span_s / STEPS if job.is_workflow else 0.0
            left_s = max(0.0, job.deadline_t - work.t)
            rest_s = left_s % step_s if step_s and left_s < math.inf else 0.0
            reserve_s = min(RESERVE_SHARE * span_s, boot_s)
            mine = [wait for wait in tasks if wait.id in self.wishes]
            for wait in mine:
                self.last_t[wait.id] = self.wishes[wait.id].latest_t + rest_s - GUARD_SHARE * span_s
            self.kept_s |= self._kept_for_later(mine, span_s)
            for wait in mine:
                self.latest_t[wait.id] = self.last_t[wait.id] - reserve_s - self.kept_s[wait.id]

    def _kept_for_later(self, tasks: list[Waiting], span_s: float) -> dict[int, float]:
        """By task, the slack of its job in seconds that is left to the tasks behind it; 0 while none is ready.

        `span_s`: from submission to the deadline of the job.
        """
        behind = dict.fromkeys((wait.id for wait in tasks), 0)
        for wait in sorted(tasks, key=lambda wait: (-self.last_t[wait.id], -wait.id)):
            for parent in wait.parents:
                if parent in behind:
                    behind[parent] = max(behind[parent], behind[wait.id] + 1)
        stages = 1 + max(behind.values(), default=0)
        cycle_s = max((self.work.offers[self.wishes[wait.id].offer].cycle_s for wait in tasks), default=0.0)
        if stages < len(tasks):
            return dict.fromkeys(behind, 0.0)
        slack_s = max(0.0, min((self._slack_s(wait) for wait in tasks if wait.ready), default=0.0))
        share = SPREAD_SHARE * min(1.0, span_s / (SPREAD_CYCLES * cycle_s)) if cycle_s > 0 else SPREAD_SHARE
        return {name: share * slack_s * count / stages for name, count in behind.items()}

    def _slack_s(self, wait: Waiting) -> float:
        """How long a task that is ready may wait if it has its type then."""
        return self.last_t[wait.id] - self.work.run_s[wait.kind][self.wishes[wait.id].offer] - self.work.t

    def _leave_room(self) -> None:
        """Where machines are limited, tasks end early enough for those that need the same machines after them."""
        work = self.work
        begin_t = latest_starts(work, work.waiting, self.wishes, self.latest_t, self._ondemand_room())
        if self.spot_room and -math.inf in begin_t.values():
            self.spot_room = dict.fromkeys(self.spot_room, 0)
            begin_t = latest_starts(work, work.waiting, self.wishes, self.latest_t, work.room())
        for wait in work.waiting if begin_t else ():
            if wait.id in begin_t:
                end_t = begin_t[wait.id] + work.run_s[wait.kind][self.wishes[wait.id].offer]
                if end_t < self.latest_t[wait.id] - self.work.period_s:
                    self.hurried.add(wait.id)
                self.latest_t[wait.id] = min(self.latest_t[wait.id], end_t)

    def _shared_starts(self) -> dict[int, float]:
        """When tasks must begin to share the machines that the streams are expected to take.

        Orders wait no longer: tasks that all waited until their own last moment would need a machine each.
        """
        machines = [max(1, math.ceil(each)) for each in self.mix.machines]
        return shared_starts(self.work, self.work.waiting, self.wishes, self.latest_t, machines)

    def _ondemand_room(self) -> Room:
        """The room that no spot machine takes: of a pool's limit one half is kept for on-demand machines."""
        room = self.work.room()
        for pool, limit in pool_limits(self.work.every if self.spot is not None else ()).items():
            there = Counter(each.offer.market for each in self.work.snapshot.machines if each.offer.pool == pool)
            kept = max(there[ONDEMAND], math.ceil(limit * ONDEMAND_SHARE))
            room.narrow(pool, kept - there[ONDEMAND])
            self.spot_room[pool] = max(0, limit - kept - there[SPOT])
        return room

    def _paid_shares(self) -> list[float]:
        """By offer, the part of the paid time that waiting and coming tasks are expected to use."""
        work, count = self.work, len(self.work.every)
        spare_s, window_s = [0.0] * count, [0.0] * count
        for each in self.slots:
            paid_s = min(each.paid_until_t - work.t, work.every[each.offer].cycle_s)
            spare_s[each.offer] += max(0.0, paid_s - (min(each.free_t) - work.t))
            window_s[each.offer] = max(window_s[each.offer], paid_s)
        load = self.mix.load + (self.spot.mix.load if self.spot is not None else (0.0,) * len(work.spot))
        wanted_s = [part * window for part, window in zip(load, window_s, strict=True)]
        for wait in work.waiting:
            if wait.id in self.wishes:
                offer = self.wishes[wait.id].offer
                wanted_s[offer] += work.run_s[wait.kind][offer] * wait.task.cores / work.offers[offer].cores
                for place in range(len(work.offers), count):
                    if (run_s := work.every_run_s[wait.kind][place]) < math.inf:
                        wanted_s[place] += run_s * wait.task.cores / work.every[place].cores
        shares = [
            max(LEAST_PAID_SHARE, min(1.0, wanted / spare)) if spare > 0 else 1.0
            for wanted, spare in zip(wanted_s, spare_s, strict=True)
        ]
        if self.spot is None:
            return shares
        # Paid time is worth at most what it replaces.
        return [min(share, self.spot.cheapest_share(offer)) for share, offer in zip(shares, work.every, strict=True)]

    def _without_time(self) -> frozenset[int]:
        """Jobs that have no more time than the shortest billing cycle."""
        cycle_s = min((offer.cycle_s for offer in self.work.offers), default=0.0)
        return frozenset(job.number for job in self.work.jobs.values() if job.deadline_t - job.submitted_t <= cycle_s)

    def place_all(self) -> None:
        order = sorted((self._urgency(wait), wait.id, wait) for wait in self.work.waiting if wait.id in self.wishes)
        for (can_wait, _), _, wait in order:
            if all(parent in self.ends for parent in wait.parents):
                self._place(wait, stays=not can_wait)

    def _urgency(self, wait: Waiting) -> tuple[bool, float]:
        """Tasks for which no machine could be ordered any more come first, then those that must begin first."""
        offer = self.wishes[wait.id].offer
        begin_t = self.latest_t[wait.id] - self.work.run_s[wait.kind][offer]
        # Slack that is kept for later makes no task urgent.
        last_t = begin_t + self.kept_s[wait.id]
        can_wait = last_t - self.work.offers[offer].lag_s > self.work.t
        return can_wait, begin_t if can_wait else last_t

    def _place(self, wait: Waiting, stays: bool) -> None:
        work = self.work
        ready_t = max((self.ends[parent] for parent in wait.parents), default=work.t)
        ready_t = max(ready_t, work.t)
        if (mine := self.cores_of_owner.get(work.job(wait.task.job).owner)) is not None:
            if wait.task.cores > len(mine.free_t):
                return
            ready_t = mine.starts_t(wait.task.cores, ready_t)
        if stays and (held := self.held_by.get(wait.id)) is not None:
            run_s = work.run_s[wait.kind][held.offer]
            if held.starts_t(wait.task.cores, ready_t) + run_s <= self.last_t[wait.id]:
                self._put(wait, held, ready_t)
                return
        latest_t = self._planned_end_t(wait, ready_t)
        here = self._cheapest_here(wait, ready_t, latest_t)
        new = self._cheapest_new(wait, ready_t, latest_t)
        if new is not None and here is not None and here[0] <= max(new[0], self._fair_usd(wait)):
            new = None
        best = new or here
        if best is not None and self.spot is not None and self._place_on_spot(wait, ready_t, best[0]):
            return
        if new is not None:
            self._order_in_time(wait, new[2], ready_t, latest_t)
        elif here is not None:
            self._put(wait, here[2], ready_t)
        else:
            self._place_now(wait, ready_t)

    def _planned_end_t(self, wait: Waiting, ready_t: float) -> float:
        """The end that is planned for; later, if a new machine of the type that the task should have needs the reserve.

        A reserve that forced a task onto a faster type would cost more than it is there to save.
        """
        work, place, latest_t = self.work, self.wishes[wait.id].offer, self.latest_t[wait.id]
        soonest_t = max(ready_t, work.t + work.offers[place].lag_s) + work.run_s[wait.kind][place]
        if soonest_t > self.last_t[wait.id] or wait.id in self.hurried:
            return latest_t
        return max(latest_t, soonest_t)

    def _place_now(self, wait: Waiting, ready_t: float) -> None:
        """The reserve is needed: where it costs least if it is in time, else where it ends first."""
        last_t = self.last_t[wait.id]
        here = self._cheapest_here(wait, ready_t, last_t)
        new = self._cheapest_new(wait, ready_t, last_t)
        if here is not None and (new is None or here[0] <= new[0]):
            self._put(wait, here[2], ready_t)
        elif new is not None:
            offer = self.work.offers[new[2]]
            boots_t = ready_t - offer.lag_s - self._order_margin_s(wait)
            # Earlier, it would be paid for a whole cycle before its task can begin; within one, others may use it.
            if self.gathers and boots_t > self.work.t + offer.cycle_s:
                self._wait_until(wait, boots_t, new[1])
            else:
                self._put(wait, self._rent(new[2]), ready_t)
        else:
            self._place_late(wait, ready_t)

    def _place_on_spot(self, wait: Waiting, ready_t: float, ondemand_usd: float) -> bool:
        """Put a task on a spot machine if that is safe and costs less than this; False if it is not."""
        place = self.wishes[wait.id].offer
        rescue_s = self.work.run_s[wait.kind][place] + self.work.offers[place].lag_s
        due_t = self.latest_t[wait.id] - rescue_s - self._order_margin_s(wait)
        job = self.work.job(wait.task.job)
        due_t -= detection_s(job.deadline_t - job.submitted_t)
        here = self._cheapest_here(wait, ready_t, due_t, SPOT)
        new = self._cheapest_new(wait, ready_t, due_t, SPOT)
        if here is not None and here[0] < ondemand_usd and (new is None or here[0] <= new[0]):
            self._put(wait, here[2], ready_t)
        elif new is not None and new[0] < ondemand_usd:
            self._order_spot(wait, new[2], ready_t, 1 - new[0] / ondemand_usd)
        else:
            return False
        return True

    def _order_spot(self, wait: Waiting, place: int, ready_t: float, saved: float) -> None:
        """Order a spot machine, as soon as the task could begin when it is up: what begins early can be tried again."""
        assert self.spot is not None
        offer = self.work.every[place]
        boots_t = ready_t - offer.lag_s - self.margin_s
        if boots_t > self.work.t:
            self._wait_until(wait, boots_t, ready_t + self.work.every_run_s[wait.kind][place])
            return
        why = (
            "a spot machine, because on-demand could still do its tasks in time if it is interrupted, and it is "
            f"{saved:.0%} cheaper with the risk counted ({self.spot.lost(place, 3600.0):.0%} in an hour)"
        )
        self._put(wait, self._rent(place, why), ready_t)

    def _wait_until(self, wait: Waiting, order_t: float, end_t: float) -> None:
        """No machine is ordered for a task before this moment; it ends at `end_t` then."""
        self.ends[wait.id] = end_t
        self.order_t = min(self.order_t, order_t)
        self.waits += 1

    def _fair_usd(self, wait: Waiting) -> float:
        """What the task costs on the type that it should have, on a machine that is kept for it."""
        place = self.wishes[wait.id].offer
        offer = self.work.offers[place]
        used = wait.task.cores / offer.cores * self.work.run_s[wait.kind][place] / offer.cycle_s
        return offer.price_usd * (used + (1 - self.mix.reuse(place)) * max(0.0, math.ceil(used) - used))

    def _order_in_time(self, wait: Waiting, place: int, ready_t: float, latest_t: float) -> None:
        """Order a machine if the task, which is to end by `latest_t`, cannot wait any longer."""
        work = self.work
        begin_t = latest_t - work.run_s[wait.kind][place]
        if place == self.wishes[wait.id].offer:
            begin_t = min(begin_t, max(ready_t, self.shared_t.get(wait.id, begin_t)))
        order_t = begin_t - work.offers[place].lag_s - self._order_margin_s(wait)
        if self.gathers and order_t > work.t:
            self._wait_until(wait, order_t, latest_t)
        else:
            self._put(wait, self._rent(place), ready_t)

    def _order_margin_s(self, wait: Waiting) -> float:
        job = self.work.job(wait.task.job)
        least_s = min(LEAST_MARGIN_S, LEAST_MARGIN_SHARE * (job.deadline_t - job.submitted_t))
        return max(self.margin_s, least_s) + self.step_s[wait.task.job]

    def _cheapest_here(
        self, wait: Waiting, ready_t: float, latest_t: float, market: str = ONDEMAND
    ) -> tuple[float, float, Slots] | None:
        """Called for every waiting task: the least cost of the machines on which it is in time, then the first end."""
        best: Slots | None = None
        best_usd = best_end_t = math.inf
        run_s, cores, paid = self.work.every_run_s[wait.kind], wait.task.cores, self.paid_t
        pays_all = wait.task.job in self.pays_all
        for offer, machines in self.by_offer.items():
            seconds = run_s[offer]
            wide = self.work.every[offer].cores
            if wide < cores or math.isinf(seconds) or self.work.every[offer].market != market:
                continue
            risk_usd = self._risk_usd(wait, offer, seconds)
            # Inside time that is paid a task costs the same on all machines of an offer.
            share = 1.0 if pays_all else self.paid_share[offer]
            inside_usd = share * cores / wide * seconds * self.rate[offer] + risk_usd
            for each in machines:
                free_t = each.free_t[0] if wide == 1 else each.starts_t(cores, ready_t)
                end_t = (free_t if free_t > ready_t else ready_t) + seconds
                if end_t > latest_t:
                    continue
                usd = inside_usd
                if end_t > paid[each.label]:
                    usd = self._cost_usd(each, end_t - seconds, end_t, cores, share) + risk_usd
                if usd < best_usd or (usd == best_usd and end_t < best_end_t):
                    best, best_usd, best_end_t = each, usd, end_t
        return None if best is None else (best_usd, best_end_t, best)

    def _cost_usd(self, each: Slots, start_t: float, end_t: float, cores: int, share: float) -> float:
        """What a task adds to the bill of a machine that is there, and this share of the paid time that it uses."""
        offer, paid_t = self.work.every[each.offer], self.paid_t[each.label]
        part = cores / offer.cores
        if end_t <= paid_t:
            return share * part * (end_t - start_t) / offer.cycle_s * offer.price_usd
        inside_s = max(0.0, paid_t - start_t)
        cycles = math.ceil((end_t - paid_t) / offer.cycle_s - 1e-9)
        used = part * (end_t - start_t - inside_s) / offer.cycle_s
        idle = (1 - self._reuse(each.offer)) * (cycles - used)
        return offer.price_usd * (used + idle + share * part * inside_s / offer.cycle_s)

    def _risk_usd(self, wait: Waiting, place: int, seconds: float) -> float:
        """What interruptions are expected to cost a task: it is done on demand instead."""
        if self.spot is None or place < len(self.work.offers):
            return 0.0
        return self.spot.lost(place, seconds) * self._fair_usd(wait)

    def _reuse(self, place: int) -> float:
        """The part of paid time of an offer that later tasks are expected to use."""
        count = len(self.work.offers)
        return self.mix.reuse(place) if place < count or self.spot is None else self.spot.mix.reuse(place - count)

    def _cheapest_new(
        self, wait: Waiting, ready_t: float, latest_t: float, market: str = ONDEMAND
    ) -> tuple[float, float, int] | None:
        """A machine of the type that the task should have, else of the cheapest one that is rented for the streams.

        Types were chosen for all tasks of a job and with the load of all streams: the type that is cheapest for a task
        alone has less idle time to pay because the task takes longer there.
        """
        work, wished = self.work, self.wishes[wait.id].offer
        best: dict[bool, tuple[float, float, int]] = {}
        for place in self.rentable:
            offer, seconds = work.every[place], work.every_run_s[wait.kind][place]
            if offer.market != market or (market == SPOT and self.spot_room.get(offer.pool, 1) <= 0):
                continue
            end_t = max(ready_t, work.t + offer.lag_s) + seconds
            if end_t > latest_t or math.isinf(seconds):
                continue
            key = wait.kind, place
            usd = self.new_usd.get(key)
            if usd is None:
                cycles = offer.cycles(offer.lag_s + seconds)
                used = wait.task.cores / offer.cores * seconds / offer.cycle_s
                boot = offer.lag_s / offer.cycle_s
                idle = (1 - self._reuse(place)) * max(0.0, cycles - used - boot)
                usd = offer.price_usd * (used + boot + idle) + self._risk_usd(wait, place, offer.lag_s + seconds)
                self.new_usd[key] = usd
            entry = usd, end_t, place
            if place == wished:
                return entry
            usual = self._is_usual(place)
            if usual not in best or entry < best[usual]:
                best[usual] = entry
        return best.get(True) or best.get(False)

    def _place_late(self, wait: Waiting, ready_t: float) -> None:
        """Nothing is in time: the machine on which the task ends first."""
        work, run_s, cores = self.work, self.work.run_s[wait.kind], wait.task.cores
        ondemand = [each for each in self.slots if each.offer < len(work.offers)]
        able = [each for each in ondemand if len(each.free_t) >= cores and run_s[each.offer] < math.inf]
        here = min(able, key=lambda each: each.starts_t(cores, ready_t) + run_s[each.offer], default=None)
        ends_t = {
            place: max(ready_t, work.t + offer.lag_s) + run_s[place]
            for place, offer in enumerate(work.offers)
            if self.room.of(offer) > 0 and run_s[place] < math.inf
        }
        new = min(ends_t, key=lambda place: (ends_t[place], place), default=None)
        if here is not None and (
            new is None or here.starts_t(cores, ready_t) + run_s[here.offer] <= ends_t[new] + work.period_s
        ):
            self._put(wait, here, ready_t)
        elif new is not None:
            self._put(wait, self._rent(new), ready_t)

    def _put(self, wait: Waiting, chosen: Slots, ready_t: float) -> None:
        cores = wait.task.cores
        start_t, run_s = chosen.starts_t(cores, ready_t), self.work.every_run_s[wait.kind][chosen.offer]
        end_t = self.ends[wait.id] = start_t + run_s
        overtakes = self._overtakes(wait, chosen, ready_t, start_t, run_s)
        chosen.put(wait.id, cores, start_t, end_t)
        if (mine := self.cores_of_owner.get(self.work.job(wait.task.job).owner)) is not None:
            mine.put(wait.id, cores, start_t, end_t)
        self.planned.add(chosen.label)
        paid_t = self.paid_t[chosen.label]
        if end_t > paid_t:
            cycle_s = self.work.every[chosen.offer].cycle_s
            self.paid_t[chosen.label] = paid_t + math.ceil((end_t - paid_t) / cycle_s - 1e-9) * cycle_s
        if start_t > self.horizon_t or overtakes:
            chosen.queue.pop()

    def _overtakes(self, wait: Waiting, chosen: Slots, ready_t: float, start_t: float, run_s: float) -> bool:
        """Whether a task, if it were in the queue, would begin before one that the machine waits for and make it late.

        A machine begins the first task of its queue that is ready.
        """
        gap, idle_t = self.gaps.get(chosen.label), chosen.starts_t(wait.task.cores, self.work.t)
        spare_s = max(0.0, self.latest_t[wait.id] - start_t - run_s)
        if gap is None:
            if start_t > idle_t:
                self.gaps[chosen.label] = Gap(idle_t, start_t, spare_s)
            return False
        if ready_t < min(start_t, gap.until_t) and max(ready_t, gap.from_t) + run_s > gap.until_t + gap.spare_s:
            return True
        self.gaps[chosen.label] = Gap(gap.from_t, gap.until_t, min(gap.spare_s, spare_s))
        return False

    def _rent(self, place: int, because: str = "") -> Slots:
        work, offer = self.work, self.work.every[place]
        label = f"new-{len(self.found.start) + 1}"
        self.found.start.append(Start(label, offer, because))
        self.room.take(offer)
        if offer.market == SPOT and offer.pool in self.spot_room:
            self.spot_room[offer.pool] -= 1
        self._find_rentable()
        new = Slots(label, place, offer.cores, work.t + offer.lag_s)
        self.slots.append(new)
        self.by_offer.setdefault(place, []).append(new)
        self.paid_t[label] = work.t + offer.cycle_s
        return new

    def to_pay(self) -> list[Cycles]:
        """The cycles after those that are paid, of all tasks that are laid out."""
        found = []
        for each in self.slots:
            offer, from_t = self.work.every[each.offer], self.work.t if each.machine is None else each.paid_until_t
            if from_t < math.inf and (count := round((self.paid_t[each.label] - from_t) / offer.cycle_s)):
                found.append(Cycles(from_t, count, offer.cycle_s, offer.price_usd))
        return found

    def written(self) -> Plan:
        work, found = self.work, self.found
        found.assign = queues_of(self.slots)
        there = Counter(each.offer for each in self.slots)
        for each in self.slots:
            machine = each.machine
            if machine is None or machine.running or machine.phase == Phase.PENDING or each.label in self.planned:
                continue
            if each.paid_until_t - work.t > work.period_s or there[each.offer] <= self._usual(each.offer):
                continue
            there[each.offer] -= 1
            found.stop.append(each.label)
            found.because.append(f"m{each.label} has nothing to do and its cycle ends before the next plan")
        self._tell()
        if work.waiting or self.slots:
            found.replan_t = min(work.t + work.period_s, max(self.order_t, work.t))
        predict(work, found, self.ends, self.slots)
        return found

    def _usual(self, place: int) -> int:
        """Machines of an offer that the streams keep busy: to give one back would cost a boot soon."""
        if not self._is_usual(place):
            return 0
        return math.floor(self._load(place) + USUAL_ROUNDING)

    def _load(self, place: int) -> float:
        """Machines of an offer that the streams keep busy."""
        count = len(self.work.offers)
        return self.mix.load[place] if place < count or self.spot is None else self.spot.mix.load[place - count]

    def _is_usual(self, place: int) -> bool:
        """Whether an offer is one of those that the streams are served with."""
        count = len(self.work.offers)
        return (
            place in self.mix.allowed if place < count or self.spot is None else place - count in self.spot.mix.allowed
        )

    def _tell(self) -> None:
        work, found = self.work, self.found
        for offer in work.every:
            new = [start for start in found.start if market_key(start.offer) == market_key(offer)]
            if new:
                why = new[0].because or "tasks cannot wait any longer"
                found.because.append(f"{len(new)} more of {offer.name}: {why}")
        if self.waits:
            found.because.append(
                f"{self.waits} tasks wait for paid capacity, {show_duration(max(0.0, self.order_t - work.t))} at most "
                "before a machine is ordered"
            )
