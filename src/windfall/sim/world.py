"""The simulated world: hosts that come, run, fail and vanish, around the real engine in virtual time. Touches nothing.

The engine is driven as the live server drives it: results and requests in, tasks and cancellations out. This module
plays the part of a network of real hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from windfall.core.decisions import ACCEPTED, MEMBER, PART, WASTE, HostAnswered
from windfall.core.engine import Engine
from windfall.core.events import (
    FleetCreated,
    HostAsked,
    HostDrained,
    JobCancelled,
    JobSealed,
    JobShaped,
    JobSubmitted,
    Key,
    Result,
    ResultsReported,
    TasksAdded,
    TasksEstimated,
)
from windfall.core.matching.dispatch import SAVE
from windfall.core.records import Record
from windfall.core.renting import money
from windfall.core.state.jobs.causes import CANCEL
from windfall.core.state.renting.fleets import FleetRules
from windfall.core.wishes import Wishes
from windfall.drivers.simulated import Simulated
from windfall.planning.contract import BAG, FLEET, WORKFLOW, Planner
from windfall.planning.registry import FLEET_PLANNERS, PLANNERS, planner_named
from windfall.policy import compile_policies
from windfall.sim.clouds.machines import Provider
from windfall.sim.hosts.attempts import DONE_CODE, EXIT_CODE, begin
from windfall.sim.hosts.host import Ground, Host
from windfall.sim.hosts.pools import AskedPool, PoolKeeper, rules_of
from windfall.sim.hosts.saving import Saver
from windfall.sim.hosts.sites import OwnedSite
from windfall.sim.scenario import Drain, Gap, Scenario
from windfall.sim.work import Work, submissions
from windfall.wire.messages import CAUSES, LOST, NO_WORK, PREEMPTED

LOST_CODE, PREEMPTED_CODE = CAUSES.index(LOST), CAUSES.index(PREEMPTED)
RETRY_S, RETRY_MAX_S = 10.0, 300.0
"""Back-off of a host that cannot reach the server."""

Watch = Callable[[str, Key, float, float, int], None]
"""Called for every attempt that left its slot: host, key, start, end, cause."""


class World:
    """One scenario under one seed."""

    def __init__(
        self, scenario: Scenario, seed: int, keep: Callable[[Record], None] | None = None, watch: Watch | None = None,
        planner: Callable[[str], Planner] = PLANNERS.__getitem__,
        workflow_planner: Callable[[str], Planner] = lambda name: planner_named(name, WORKFLOW),
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self._keep = keep
        self.provider: Provider | None = None
        self.sites: list[OwnedSite] = []
        self.driver = Simulated(
            Engine(compile_policies),
            scenario.settings,
            self._listen if scenario.clouds or scenario.sites else keep,
            lambda name, kind: {WORKFLOW: workflow_planner, BAG: planner, FLEET: FLEET_PLANNERS.__getitem__}[kind](
                name
            ),
            scenario.planning_s,
            scenario.plans_took,
            scenario.told_plans,
        )
        self.grounds = [Ground(pool, seed) for pool in scenario.pools]
        self.hosts: list[Host] = []
        self._by_name: dict[str, Host] = {}
        self.jobs: dict[int, Work] = {}
        self.saver = Saver(self)
        self.bills: list[tuple[float, float, str, int]] = []
        """(from, to, pool or offer, micro-dollars) of every stay that cost something."""
        self._to_come = submissions(scenario.bags, seed)
        self._unfinished: list[int] = []
        self.cut_off_until = 0.0
        self._watch = watch
        self._ends = self._end
        """Bound once: half of all calls on the agenda are this one."""
        self.pools: PoolKeeper | None = None
        self._asked: dict[str, AskedPool | OwnedSite] = {}
        """Pools and sites that start workers on request, by name."""
        self.driver.carry_out = self._carry_out
        self.driver.wake = self._wake
        if scenario.clouds:
            self.provider = Provider(self, scenario.clouds, seed)
            self.provider.open()
        for fleet in scenario.fleets:
            pools = list(fleet.clouds) or [cloud.name for cloud in scenario.clouds]
            budget = money.microusd(fleet.budget_usd) or None
            self.driver.submit(FleetCreated(0.0, FleetRules(fleet.name, pools, fleet.planner, budget)))
        if scenario.sites or any(pool.on_demand for pool in scenario.pools):
            self._open_pools(seed)
        self._plan()

    def _open_pools(self, seed: int) -> None:
        self.pools = keeper = PoolKeeper(self)
        for ground in self.grounds:
            keeper.rules.append(rules_of(ground))
            if ground.pool.on_demand:
                keeper.pools[ground.pool.name] = self._asked[ground.pool.name] = AskedPool(self, ground)
        self.sites = [OwnedSite(self, site, seed) for site in self.scenario.sites]
        for site in self.sites:
            self.grounds.append(site.ground)
            keeper.rules.append(site.rules.pool)
            keeper.pools[site.rules.name] = self._asked[site.rules.name] = site
            site.open()
        keeper.open()

    def _carry_out(self, wanted: Wishes) -> None:
        if self.provider is not None:
            self.provider.carry_out(wanted)
        if self.pools is not None and wanted.asks:
            self.pools.carry_out(wanted)

    def _listen(self, record: Record) -> None:
        if self._keep is not None:
            self._keep(record)
        if self.provider is not None:
            self.provider.listen(record)
        for site in self.sites:
            site.listen(record)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        at = self.driver.at
        for work in self._to_come:
            at(work.submit_s, self._submit, work)
        for gap in self.scenario.outages:
            at(gap.at_s, self._cut_off, gap)
        for gap in self.scenario.restarts:
            at(gap.at_s, self._stop_server, gap)
        for drain in self.scenario.drains:
            at(drain.at_s, self._drain, drain)
        for ground in self.grounds:
            for index in range(0 if ground.pool.on_demand else ground.pool.hosts):
                host = Host(ground, index)
                self.hosts.append(host)
                at(ground.first(host), self._ask_for, host)

    def run(self, look: Callable[[World], None] | None = None, every: int = 50_000) -> None:
        """Run until all work has ended or the scenario's time is over. `look` is called now and then, for progress."""
        driver, until = self.driver, self.scenario.until_s
        next_look = every

        def looked() -> bool:
            nonlocal next_look
            if look is not None and driver.events >= next_look:
                next_look += every
                look(self)
            return False

        driver.run(until, None if look is None else looked, self._is_over)
        for host in self.hosts:
            if host.here:
                self.go(host)
        if self.provider is not None:
            self.provider.close()

    @property
    def arrived(self) -> dict[str, dict[int, int]]:
        """Accepted results by pool and by the hour in which they reached the server."""
        return {
            ground.pool.name: {int(hour): count for hour, count in ground.arrived.items()} for ground in self.grounds
        }

    def _is_over(self) -> bool:
        """Whether all jobs have ended."""
        unfinished, bags = self._unfinished, self.driver.state.bags
        while unfinished:
            if bags[unfinished[-1]].finished_t is None:
                return False
            unfinished.pop()
        return not self._to_come

    # --- the server's side --------------------------------------------------------------------------------------------

    def _submit(self, work: Work) -> None:
        driver = self.driver
        if driver.now < self.cut_off_until:
            driver.at(self.cut_off_until, self._submit, work)
            return
        classes, parts = work.classes()
        rules = work.rules([cloud.name for cloud in self.scenario.clouds], self.scenario.settings.replication)
        job = driver.submit(JobSubmitted(driver.now, rules, classes)).decided.job  # type: ignore[union-attr]
        self.jobs[job] = work
        shape = work.shape()
        if shape is not None:
            known = shape.key in driver.state.bags.shapes
            columns = (b"", b"") if known else (shape.offsets.tobytes(), shape.children.tobytes())
            driver.submit(JobShaped(driver.now, job, shape.key, *columns))
        for count, number in parts:
            driver.submit(TasksAdded(driver.now, job, count, number))
        if estimates := work.estimates():
            driver.submit(TasksEstimated(driver.now, job, estimates))
        driver.submit(JobSealed(driver.now, job))
        self._unfinished.append(job)
        self._to_come.remove(work)
        if work.bag.cancelled_s is not None:
            driver.at(max(driver.now, work.bag.cancelled_s), self._cancel_job, job)

    def _cancel_job(self, job: int) -> None:
        self.driver.submit(JobCancelled(self.driver.now, job))

    def _cut_off(self, gap: Gap) -> None:
        self.cut_off_until = max(self.cut_off_until, gap.at_s + gap.lasts_s)

    def _stop_server(self, gap: Gap) -> None:
        self._cut_off(gap)
        self.driver.stop_server()
        self.driver.at(gap.at_s + gap.lasts_s, self._start_server)

    def _start_server(self) -> None:
        self.driver.start_server(self.scenario.settings)
        if self.pools is not None:
            self.pools.open()

    def _drain(self, drain: Drain) -> None:
        """Somebody drains hosts; each hears of it with the answer to its next exchange."""
        if self.driver.now < self.cut_off_until:
            self.driver.at(self.cut_off_until, self._drain, drain)
            return
        there = [host for host in self.hosts if host.here and host.pool.pool.name == drain.pool]
        for host in there[: drain.hosts or None]:
            host.away_s = drain.lasts_s
            self.driver.submit(HostDrained(self.driver.now, host.name))

    # --- a host comes and goes ----------------------------------------------------------------------------------------

    def _ask_for(self, host: Host) -> None:
        """Request a host: it arrives after its queue wait or boot."""
        if host.pool.pool.refusals and host.pool.refuses(host):
            self.driver.after(host.pool.pool.refusal_pause_s, self._ask_for, host)
            return
        host.rented_s, here_s, gone_s = host.pool.next_stay(host, self.driver.now)
        if here_s < inf:
            self.driver.at(here_s, self.come_to_stay, host, gone_s)

    def come_to_stay(self, host: Host, gone_s: float) -> None:
        """A host of a pool has arrived and stays until `gone_s`, unless it ends before."""
        books, driver = host.pool.books, self.driver
        another = host.pool.pool.identity == "new" and not host.boot
        if another and host.boots:
            host.pool.describe(host)
        books.hosts += another or not host.boots
        if gone_s < inf:
            driver.at(gone_s, self._taken_away, host, host.epoch)
        self.come(host)

    def come(self, host: Host) -> None:
        """A host has arrived, for the first time or again, and asks for work."""
        driver = self.driver
        host.pool.books.stays += 1
        self._by_name[host.name] = host
        host.here, host.since_s, host.idle_since = True, driver.now, inf
        host.polls = host.retries = 0
        resumes = bool(host.boot)
        host.boots += 1
        if not resumes:
            host.boot, host.n = f"boot-{host.boots}", 0
        for key, running in host.running.items():
            running.sleep(driver.now - host.last_s)
            driver.at(running.end_s, self._end, host, host.epoch, key)
            self.saver.plan(host, key, running)
        if later_s := self._end_at_waking(host) if host.running and resumes else 0.0:
            host.retrying = True
            driver.after(later_s, self._retry, host, host.epoch)
        else:
            self.exchange(host)
        if host.here and host.pool.pool.heartbeat_s < inf:
            driver.after(host.pool.pool.heartbeat_s, self._beat, host, host.epoch)

    def _end_at_waking(self, host: Host) -> float:
        """End attempts that had ended in a replayed log when their machine woke; seconds until it told of them."""
        now, later_s = self.driver.now, 0.0
        for key in [key for key in host.running if key[1:] in self.jobs[key[0]].at_waking]:
            running, later_s = host.running.pop(key), max(later_s, self.jobs[key[0]].at_waking[key[1:]])
            host.results.append(Result(*key, DONE_CODE, 0, running.start_s + running.slept_s, now, running.cpu_s))
        return later_s

    def _taken_away(self, host: Host, epoch: int) -> None:
        """The stay is over: preempted, interrupted, switched off."""
        if host.epoch != epoch:
            return
        suspended = host.pool.pool.leaves == "suspend"
        if not suspended:
            self._lose_all(host)
        self.go(host)
        if suspended:
            # `last_s` holds the time of the suspension for running attempts.
            host.last_s = self.driver.now
            self._ask_for(host)
        else:
            self._ended(host)

    def _ended(self, host: Host, away_s: float = 0.0) -> None:
        """Its worker has ended: the host queues again after `away_s`, or is another's if it was asked for."""
        host.boot = ""
        if host.pool.pool.on_demand:
            self._asked[host.pool.pool.name].left(host)
        elif away_s:
            self.driver.after(away_s, self._ask_for, host)
        else:
            self._ask_for(host)

    def go(self, host: Host) -> None:
        """End a stay: record its time and cost. A new epoch invalidates the calls scheduled for it."""
        now, ground = self.driver.now, host.pool
        ground.books.present_s += (now - host.since_s) * ground.pool.slots
        if ground.pool.price_usd:
            cost = ground.bill(now - host.rented_s)
            ground.books.cost_microusd += cost
            self.bills.append((host.rented_s, now, ground.pool.name, cost))
        host.here = host.polling = host.retrying = host.asking = host.ask_again = False
        host.epoch += 1
        if ground.long_poll:
            self.driver.idle.end(host.name)

    def lose(self, host: Host) -> None:
        """Lose all attempts that run on a host."""
        now, books = self.driver.now, host.pool.books
        for key, running in host.running.items():
            books.lost += 1
            books.lost_s += running.worked_s(now)
            if self._watch:
                self._watch(host.name, key, running.start_s, now, LOST_CODE)
        host.running, host.queue, host.results, host.part = {}, [], [], None

    def vanish(self, host: Host) -> None:
        """A host is gone with all that runs there, without a word."""
        if host.here:
            self.lose(host)
            self.go(host)

    def preempt(self, host: Host) -> None:
        """A host hands its work back, says that it leaves, and is gone."""
        if host.here:
            self._lose_all(host, told=True)
            self.go(host)

    def _lose_all(self, host: Host, told: bool = False) -> None:
        now = self.driver.now
        told = told or (bool(host.running or host.queue or host.part) and host.pool.tells(host))
        results = host.results
        if told:
            results += [
                Result(*key, PREEMPTED_CODE, None, running.awake_since_s, now, running.worked_s(now))
                for key, running in host.running.items()
            ]
            unbegun = [*host.queue, *([host.part] if host.part else [])]
            results += [Result(*key, PREEMPTED_CODE, None, now, now) for key in unbegun]
        self.lose(host)
        host.results = results
        if told and now >= self.cut_off_until:
            if host.results:
                self._report(host)
            self.driver.submit(
                HostAsked(now, host.name, host.boot, host.n + 1, 0, host.pool.pool.slots, None, "preempted")
            )
        host.results = []

    def _leave(self, host: Host, why: str, away_s: float = 0.0) -> None:
        """A host without work for too long ends (GridBot, section 5) and queues again; so does one that is drained."""
        self.driver.submit(
            HostAsked(self.driver.now, host.name, host.boot, host.n + 1, 0, host.pool.pool.slots, None, why)
        )
        self.go(host)
        self._ended(host, away_s)

    # --- the exchange -------------------------------------------------------------------------------------------------

    def exchange(self, host: Host) -> None:
        """Report results, ask for tasks, and begin those assigned: after the round trip, one exchange at a time."""
        if not host.pool.round_trip_s:
            self._exchange(host)
        elif host.asking:
            host.ask_again = True
        else:
            host.asking = True
            self.driver.after(host.pool.round_trip_s, self._arrive, host, host.epoch)

    def _arrive(self, host: Host, epoch: int) -> None:
        """An exchange has been to the server and back."""
        if host.epoch != epoch:
            return
        host.asking, again, host.ask_again = False, host.ask_again, False
        self._exchange(host)
        if again and host.epoch == epoch:
            self.exchange(host)

    def _exchange(self, host: Host) -> None:
        driver, ground = self.driver, host.pool
        now = driver.now
        if now < self.cut_off_until:
            self._try_later(host)
            return
        host.retries = 0
        if ground.long_poll:
            driver.idle.end(host.name)
        if host.results:
            self._report(host)
        ground.books.exchanges += 1
        host.n = n = host.n + 1
        host.last_s = now
        slots = ground.slots
        want = host.want(now) if ground.bundles else ground.hold - len(host.running) - len(host.queue)
        asked = HostAsked(now, host.name, host.boot, n, want, slots)
        if n == 1 or host.tells_ad:
            asked.ad = host.ad
        if ground.bundles:
            asked.room = host.room(want)
        record = driver.submit(asked)
        answer: HostAnswered = record.decided  # type: ignore[assignment]
        queue, running = host.queue, host.running
        host.tells_ad = answer.tell
        if answer.cancel:
            self._cancel(host, answer.cancel)
        for piece in answer.assigned:
            job, first, attempt = piece.job, piece.first, piece.attempt
            if piece.why == MEMBER:
                host.part = (job, first, attempt)
                continue
            for task in range(first, first + piece.count):
                queue.append((job, task, attempt))
            if piece.checkpoint_s is not None:
                for task in range(first, first + piece.count):
                    host.every_s[job, task, attempt] = piece.checkpoint_s
        if answer.hand_back:
            self._hand_back(host, answer.hand_back)
        if answer.begin and host.part is not None and host.part in answer.begin:
            queue.append(host.part)
            host.part = None
        if queue and len(running) < slots:
            self._fill(host)
        if ground.long_poll and len(running) < slots and not answer.stop:
            driver.idle.begin(host.name, record.seq, now)
            driver.look_at_idle()
        if answer.gang is not None or answer.all_joined is not None:
            self._call_members(host)
        if answer.stop:
            if answer.stop == SAVE:
                self.saver.save_and_go(host)
            else:
                self._leave(host, answer.stop, host.away_s)
        elif not running and host.part is None:
            self._wait_for_work(host)
        if host.offer is not None and self.provider is not None:
            self.provider.asked(host)

    def _wake(self, name: str) -> None:
        """There may be work for a host, or something that it shall cancel."""
        host = self._by_name[name]
        # A host with a fixed prefetch would fetch at once what it was told to return.
        if host.here and host.pool.long_poll and (host.pool.bundles or len(host.running) < host.pool.slots):
            self.driver.at(self.driver.now, self._retry, host, host.epoch)

    def _call_members(self, host: Host) -> None:
        """The other hosts of a task have news: on a live server they wait for an answer, and are woken."""
        job, task, _ = self.driver.state.hosts.by_name[host.name].gang or (0, 0, 0)
        bag = self.driver.state.bags.get(job)
        for number in bag.attempts.gangs[task].hosts if bag is not None else ():
            other = self._by_name.get(self.driver.state.hosts[number].name)
            if other is not None and other is not host and other.here:
                self.driver.at(self.driver.now, self._retry, other, other.epoch)

    def _report(self, host: Host) -> None:
        """Send the results of a host; the caller has it ask or leave next."""
        results, ground, now = host.results, host.pool, self.driver.now
        books = ground.books
        host.results = []
        reported = self.driver.submit(ResultsReported(now, host.name, results), True)
        verdicts = reported.decided.verdicts  # type: ignore[union-attr]
        for place, result in enumerate(results):
            verdict = verdicts[place]
            if verdict == ACCEPTED:
                hour = now // 3600
                ground.arrived[hour] = ground.arrived.get(hour, 0) + 1
                books.done += 1
                books.useful_s += result.cpu_s
            elif verdict == PART:
                books.useful_s += result.cpu_s
            elif result.cause == DONE_CODE and verdict == WASTE:
                books.discarded += 1
                books.discarded_s += result.cpu_s
            elif result.cause == EXIT_CODE:
                books.failed += 1
                books.failed_s += result.cpu_s

    def _cancel(self, host: Host, keys: list[Key]) -> None:
        now, books = self.driver.now, host.pool.books
        was_running = len(host.running)
        for key in keys:
            running = host.running.pop(key, None)
            if self.jobs[key[0]].bag.resources:
                # As a worker does, which keeps units of resources until it has ended the attempt.
                host.results.append(Result(*key, CANCEL, None, now, now))
            if running is not None:
                books.cancelled += 1
                books.discarded_s += running.worked_s(now)
                if self._watch:
                    self._watch(host.name, key, running.start_s, now, CAUSES.index("cancelled"))
            elif key in host.queue:
                host.queue.remove(key)
            elif key == host.part:
                host.part = None
        # As a worker does, which has a free slot now: it would be idle until another of its attempts ends.
        if host.results or len(host.running) < was_running:
            self.driver.at(now, self._retry, host, host.epoch)

    def _hand_back(self, host: Host, keys: Iterable[Key]) -> None:
        """Return what has not begun, at once: another host is idle."""
        now = self.driver.now
        for key in keys:
            if key in host.queue:
                host.queue.remove(key)
                host.results.append(Result(*key, PREEMPTED_CODE, None, now, now))
        if host.results:
            self.driver.at(now, self._retry, host, host.epoch)

    def _try_later(self, host: Host) -> None:
        if not host.retrying:
            host.retrying = True
            pause = host.pool.pause_s(host, host.retries, RETRY_S, RETRY_MAX_S)
            host.retries += 1
            self.driver.after(pause, self._retry, host, host.epoch)

    def _retry(self, host: Host, epoch: int) -> None:
        if host.epoch == epoch:
            host.retrying = False
            self.exchange(host)

    def _beat(self, host: Host, epoch: int) -> None:
        """Exchange if the host has been silent for a heartbeat."""
        if host.epoch != epoch:
            return
        heartbeat_s = host.pool.pool.heartbeat_s
        if self.driver.now >= host.last_s + heartbeat_s:
            self.exchange(host)
            if host.epoch != epoch:
                return
        self.driver.at(max(host.last_s, self.driver.now - heartbeat_s / 2) + heartbeat_s, self._beat, host, epoch)

    def _wait_for_work(self, host: Host) -> None:
        now, pool = self.driver.now, host.pool.pool
        if host.idle_since == inf:
            host.idle_since, host.polls = now, 0
        if now - host.idle_since >= pool.idle_s:
            self._leave(host, NO_WORK)
        elif not host.polling:
            host.polling = True
            pause = host.pool.pause_s(host, host.polls, pool.poll_s, pool.poll_max_s)
            host.polls += 1
            self.driver.after(min(pause, max(1.0, host.idle_since + pool.idle_s - now)), self._poll, host, host.epoch)

    def _poll(self, host: Host, epoch: int) -> None:
        if host.epoch == epoch:
            host.polling = False
            if not host.running:
                self.exchange(host)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _fill(self, host: Host) -> None:
        """Begin waiting tasks on all free slots."""
        queue, running, slots, at = host.queue, host.running, host.pool.slots, self.driver.at
        host.idle_since = inf
        while queue and len(running) < slots:
            key = queue.pop(0)
            running[key] = begun = begin(self, host, key)
            at(begun.end_s, self._ends, host, host.epoch, key)
            if begun.saves is not None:
                self.saver.plan(host, key, begun)

    def _end(self, host: Host, epoch: int, key: Key) -> None:
        if host.epoch != epoch:
            return
        running = host.running.pop(key, None)
        if running is None:
            return
        now, cause = self.driver.now, running.cause
        if host.pool.bundles:
            host.durations.add(now - running.start_s - running.slept_s)
        exit_code, start_s = 0 if cause == DONE_CODE else 1, running.start_s + running.slept_s
        job, task, attempt = key
        host.results.append(Result(job, task, attempt, cause, exit_code, start_s, now, running.cpu_s))
        if self._watch:
            self._watch(host.name, key, running.start_s, now, cause)
        if host.queue:
            self._fill(host)
        ground = host.pool
        if ground.reports_each or not host.running:
            # `exchange` without its call: this runs for every attempt of millions.
            if ground.round_trip_s:
                self.exchange(host)
            else:
                self._exchange(host)
