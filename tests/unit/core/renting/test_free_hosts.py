"""Free hosts and rented machines on one job: how much is left to free hosts, and until when."""

from __future__ import annotations

from typing import Any

from tests.support.clouds.rented_cloud import SPOT, SURE, Cloud
from tests.support.engine.wishes import plans_wanted
from windfall.core.events import OffersConfigured, OverlayDue, PoolsConfigured, TimerFired
from windfall.core.renting import views
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.jobs.bags import Bag
from windfall.core.wishes import wake_at
from windfall.planning.contract import Snapshot


class Mixed(Cloud):
    """A free host of ten slots is there before the job is. Tasks take 300 s, the deadline is an hour."""

    def __init__(self) -> None:
        super().__init__()
        self.own()

    def own(self, want: int = 10) -> list[Any]:
        return self.tasks("own", want, 10)

    def shown(self, bag: Bag, names_up_to: float = 1000) -> Snapshot:
        return views.view(self.state, bag.number, self.t, names_up_to)

    def at(self, share: float, bag: Bag) -> None:
        """Time passes; the host goes on to hold what it has."""
        self.t = bag.submitted_t + share * 3600.0
        self.tasks("own", 0, 10)


def test_hosts_that_cost_nothing_have_their_chance_before_anything_is_rented() -> None:
    mixed = Mixed()
    bag = mixed.rent(100)
    assert plans_wanted(mixed.state) == []
    look_t = wake_at(mixed.state)
    assert bag.submitted_t < look_t <= bag.submitted_t + 30
    mixed.t = look_t
    mixed.step(TimerFired(mixed.t))
    assert plans_wanted(mixed.state) == [bag.number]


def test_where_all_hosts_are_rented_nothing_is_left_to_free_hosts() -> None:
    cloud = Cloud()
    first = cloud.rent(4)
    cloud.plan(first, start=[SPOT], assign={"new-0": [0, 1]})
    cloud.boot(1)
    second = cloud.rent(40)
    assert second.number in plans_wanted(cloud.state)
    assert len(views.view(cloud.state, second.number, cloud.t, 1000).tasks) == 40


def test_a_planner_is_not_shown_what_they_run_and_what_they_will_do_at_their_pace() -> None:
    mixed = Mixed()
    bag = mixed.rent(200)
    running = {task for _, task, _ in mixed.own()}
    shown = mixed.shown(bag)
    assert len(running) == 10 and not running & shown.tasks.keys()
    # At ten tasks in 300 s, some fifty minutes of them: less for safety, and less for what could be rented at once.
    left = 190 - len(shown.tasks)
    assert 10 < left < 30
    assert sum(group.count for group in mixed.shown(bag, names_up_to=0).groups) == len(shown.tasks)


def test_less_is_left_to_free_hosts_the_nearer_the_deadline_and_nothing_at_the_end() -> None:
    counts = []
    for share in (0.0, 0.3, 0.6, 0.86):
        mixed = Mixed()
        bag = mixed.rent(200)
        mixed.at(share, bag)
        assert len(mixed.own()) == 10
        counts.append(len(mixed.shown(bag).tasks))
    assert counts[0] < counts[1] < counts[2] < counts[3] == 190
    mixed.at(0.91, bag)
    assert len(mixed.shown(bag).tasks) == 200, "what they still run as well"


def test_a_slot_that_has_had_its_task_for_long_is_thought_to_be_slow() -> None:
    quick, slow = Mixed(), Mixed()
    counts = []
    for mixed, since in ((quick, 1190.0), (slow, 0.0)):
        bag = mixed.rent(200)
        mixed.t = bag.submitted_t + since
        mixed.own()
        mixed.t = bag.submitted_t + 1200.0
        counts.append(len(mixed.shown(bag).tasks))
    assert counts[1] > counts[0]


def test_reserved_tasks_are_given_to_free_hosts_when_more_of_these_work() -> None:
    mixed = Mixed()
    bag = mixed.rent(40)
    mixed.plan(bag, start=[SPOT, SURE], assign={"new-0": list(range(20)), "new-1": list(range(20, 39))})
    assert [task for _, task, _ in mixed.own()] == [39]
    assert plans_wanted(mixed.state) == [bag.number], "the last that was left to them is taken"
    hidden = set(range(39)) - mixed.shown(bag).tasks.keys()
    assert hidden and hidden <= {*range(10, 20), *range(30, 39)}, "from the ends of the queues"
    assert all(not hidden & set(machine.waiting) for machine in mixed.shown(bag).machines)
    mixed.plan(bag)
    assert {task for _, task, _ in mixed.own()} == hidden


def test_at_the_last_moment_what_they_still_run_may_begin_on_a_machine_as_well_and_not_before() -> None:
    mixed = Mixed()
    bag = mixed.rent(1)
    mixed.at(0.85, bag)
    assert len(mixed.own()) == 1
    mixed.at(0.88, bag)
    early = mixed.plan(bag, start=[SURE], assign={"new-0": [0]})
    assert (early.moved, early.queues, early.started) == ([], [], [])
    assert early.refused == ["start 1 sure: their tasks run elsewhere by now"]
    mixed.at(0.91, bag)
    late = mixed.plan(bag, start=[SURE], assign={"new-0": [0]})
    assert late.moved == [] and (late.queues, late.beside) == ([(1, [0])], [(1, [0])])
    assert [(task, attempt) for _, task, attempt in mixed.boot(1)] == [(0, 2)]
    assert [attempt.number for attempt in bag.attempts.live[0]] == [1, 2], "it goes on where it ran"


def test_what_runs_there_for_much_longer_than_it_should_is_shown_long_before_the_deadline() -> None:
    mixed = Mixed()
    bag = mixed.rent(1)
    mixed.own()
    mixed.at(0.1, bag)
    assert not mixed.shown(bag).tasks
    mixed.at(0.2, bag)
    assert list(mixed.shown(bag).tasks) == [0]
    assert mixed.plan(bag, start=[SPOT], assign={"new-0": [0]}).queues == [(1, [0])]


def test_a_job_whose_pools_offer_nothing_is_shown_as_it_is() -> None:
    mixed = Mixed()
    mixed.step(OffersConfigured(mixed.t, "cloud", []))
    bag = mixed.rent(30)
    mixed.own()
    assert len(mixed.shown(bag).tasks) == 30
    assert mixed.plan(bag).refused == []


def test_a_rented_machine_takes_what_is_left_to_hosts_only_in_time_that_is_paid_anyway() -> None:
    mixed = Mixed()
    bag = mixed.rent(20)
    mixed.plan(bag, start=[SURE], assign={"new-0": [0, 1]})
    running = mixed.boot(1)
    assert len(running) == 2
    mixed.t += 300.0
    mixed.report(mixed.state.fleet.machines[1].host_name, *running)
    assert len(mixed.boot(1)) == 2, "300 s of work, 600 s are left of 900 s that are paid"
    mixed.t += 400.0
    mixed.report(mixed.state.fleet.machines[1].host_name, *[(bag.number, task, 1) for task in bag.attempts.live])
    assert mixed.boot(1) == []


def test_a_pool_from_which_no_worker_has_come_yet_is_still_asked_when_all_else_is_reserved() -> None:
    cloud = Cloud()
    cloud.step(PoolsConfigured(cloud.t, [PoolRules("lab", "ssh", limit=1), PoolRules("cluster", "slurm", limit=1)]))
    bag = cloud.rent(40)
    shown = sorted(views.view(cloud.state, bag.number, cloud.t, 1000).tasks)
    assert len(shown) == 39
    cloud.plan(bag, start=[SPOT, SURE], assign={"new-0": shown[:20], "new-1": shown[20:]})
    assert bag.waiting == 1, "one is reserved for nobody"
    asked = cloud.step(OverlayDue(cloud.t)).decided.asks
    assert [(ask.pool, ask.count) for ask in asked] == [("cluster", 1)]
    assert [task for _, task, _ in cloud.tasks("cluster-1-1", 1, 1, pool="cluster")] == [0]
    assert plans_wanted(cloud.state) == [bag.number]
    cloud.plan(bag)
    asked = cloud.step(OverlayDue(cloud.t)).decided.asks
    assert [(ask.pool, ask.count) for ask in asked] == [("lab", 1)], "and the next pool, too"


def test_pools_that_can_give_nobody_leave_all_to_machines() -> None:
    cloud = Cloud()
    cloud.step(PoolsConfigured(cloud.t, [PoolRules("lab", "ssh", limit=0), PoolRules("home", joins_itself=True)]))
    bag = cloud.rent(40)
    assert len(views.view(cloud.state, bag.number, cloud.t, 1000).tasks) == 40
