"""A log by hand in which every kind of event happens, and has consequences. For tests of replay."""

from __future__ import annotations

from array import array

from tests.support.engine.hand import Hand
from windfall import graph
from windfall.core import events as ev
from windfall.core.decisions import PlanTaken
from windfall.core.events import Key, TaskClass
from windfall.core.records import Record
from windfall.core.sites.instances import InstanceEnd, SiteRules, Wish
from windfall.core.state.hosts.pools import DRAINING, ENDING, OPEN, PAUSED, PoolRules
from windfall.core.state.jobs.bags import Bag
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer

SPOT = Offer(name="spot", price_usd=0.03, cores=2, market="spot", pool="cloud", when_taken="hibernate", limit=6)
STEADY = Offer(name="steady", price_usd=0.1, cores=2, pool="cloud")


def every_event() -> list[Record]:
    hand = Hand(lease_s=30.0)
    for part in (_pools, _jobs, _hosts, _site, _machines, _modes_of_pools):
        part(hand)
    return hand.log


def _pools(hand: Hand) -> None:
    """Pools are asked, refuse, are counted; workers end before they come."""
    hand.step(ev.PoolsConfigured(hand.t, [PoolRules("cheap", "simulated", 5, 2), PoolRules("dear", "simulated", 5)]))
    bag = hand.submit(40, name="bag")
    for turn in range(6):
        for ask in hand.step(ev.OverlayDue(hand.t)).decided.asks:
            hand.step(ev.PoolAnswered(hand.t, ask.pool, ask.count, "no" if turn % 3 else "", ask.number))
        hand.step(ev.PoolCounted(hand.t, "cheap", turn % 3))
        keys = hand.tasks(f"h{turn}", want=2, slots=2, pool="cheap")
        hand.wait(7.0)
        hand.report(f"h{turn}", *keys, cause="exit" if turn == 1 else "done")
    hand.step(ev.PoolAnswered(hand.t, "dear", 1, "it ended", said=[("dear-1-1", "held for ever")]))
    hand.ask("idle", want=0, pool="cheap")
    hand.ask("idle", want=0, leaving="idle")
    hand.step(ev.JobCancelled(hand.t, bag.number, reason="enough"))


def _jobs(hand: Hand) -> None:
    """Jobs that fail too often, are retried and changed; a workflow; estimates."""
    once = [TaskClass(max_failures=1)]
    stops = hand.submit(12, once, name="stops", max_failed_tasks=1)
    hand.report("r1", *hand.tasks("r1", want=3, slots=3), cause="exit")
    assert stops.stopped
    hand.step(ev.JobRetried(hand.t, stops.number, [0]))
    assert stops.stopped, "two tasks have failed still"
    changed = hand.submit(8, once, name="changed")
    hand.report("r1", *hand.tasks("r1", want=3, slots=3), cause="exit")
    hand.step(ev.JobChanged(hand.t, changed.number, ev.JobRules("changed", max_failed_tasks=1)))
    assert changed.stopped
    shape = graph.from_edges(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    job = hand.step(ev.JobSubmitted(hand.t, ev.JobRules("flow"), [TaskClass()])).decided.job
    packed = (shape.key, shape.offsets.tobytes(), shape.children.tobytes())
    hand.step(ev.JobShaped(hand.t, job, *packed))
    hand.step(ev.TasksAdded(hand.t, job, 4))
    hand.step(ev.JobSealed(hand.t, job))
    while keys := hand.tasks("r1", want=2, slots=3):
        hand.report("r1", *keys)
    assert hand.state.bags[job].finished_t is not None


def _doomed(hand: Hand, name: str, host: str, **ad: object) -> Bag:
    """A job that its first lost attempt stops, and this attempt on a host."""
    bag = hand.submit(4, [TaskClass(max_losses=1)], name=name, max_failed_tasks=0)
    assert [key[0] for key in hand.tasks(host, **ad)] == [bag.number]
    return bag


def _hosts(hand: Hand) -> None:
    """Hosts that fall silent, start anew, are shown as ended by their pool, and are blocked and drained."""
    silent = _doomed(hand, "silent", "s1")
    hand.wait(70.0)
    rebooted = _doomed(hand, "rebooted", "s2")
    hand.ask("s2", want=0, boot="another")
    ended = _doomed(hand, "ended", "cheap-1-1", pool="cheap")
    hand.step(ev.HostsEnded(hand.t, "cheap", [("cheap-1-1", "killed by its owner")]))
    assert silent.stopped and rebooted.stopped and ended.stopped
    hand.step(ev.HostBlocked(hand.t, "h1", "noisy", hand.t + 1000))
    hand.step(ev.HostBlocked(hand.t, "h2", "broken"))
    hand.step(ev.HostUnblocked(hand.t, "h2"))
    hand.step(ev.HostDrained(hand.t, "h3"))


def _site(hand: Hand) -> None:
    """Agents that report, end instances and fall silent; requests that wait, evict, are refused and cancelled."""
    hand.step(ev.SiteCreated(hand.t, SiteRules("lab", {"vcpu": 1.0})))
    hand.step(ev.SiteHostReported(hand.t, "lab", "x", "b", 1, {"vcpu": 4.0}, []))
    first, _ = hand.step(ev.InstancesWanted(hand.t, "lab", 2)).decided.placed
    hand.step(ev.SiteHostReported(hand.t, "lab", "x", "b", 2, None, None, [(first.number, hand.t)]))
    reported = _doomed(hand, "reported", f"lab-{first.number}", pool="lab")
    end = InstanceEnd(first.number, "exit", 1, hand.t - 4, hand.t, "it died")
    hand.step(ev.SiteHostReported(hand.t, "lab", "x", "b", 3, None, None, [], [end]))
    hand.step(ev.InstanceRequested(hand.t, "lab", Wish({"vcpu": 4.0}, ["true"])))
    hand.step(ev.InstanceRequested(hand.t, "lab", Wish({"vcpu": 9.0}, ["true"], queue=False)))
    waits = hand.step(ev.InstanceRequested(hand.t, "lab", Wish({"vcpu": 4.0}, ["true"]))).decided.number
    hand.step(ev.InstanceCancelled(hand.t, "lab", waits, "not needed"))
    hand.step(ev.SiteHostReported(hand.t, "lab", "y", "b", 1, {"vcpu": 1.0}, []))
    (on_y,) = hand.step(ev.InstancesWanted(hand.t, "lab", 2)).decided.placed
    hand.step(ev.SiteHostReported(hand.t, "lab", "y", "b", 2, None, None, [(on_y.number, hand.t)]))
    silent = _doomed(hand, "agent silent", f"lab-{on_y.number}", pool="lab")
    for n in range(4, 11):
        hand.t += 10.0
        hand.ask(f"lab-{on_y.number}", want=0)
        hand.step(ev.SiteHostReported(hand.t, "lab", "x", "b", n))
        hand.step(ev.SiteLooked(hand.t, "lab"))
    assert reported.stopped and silent.stopped


def _propose(hand: Hand, bag: Bag, plan: Plan, error: str = "") -> list[int]:
    """The machines that a plan starts."""
    taken = hand.step(ev.PlanProposed(hand.t, bag.number, hand.state.seq, plan, error)).decided
    assert isinstance(taken, PlanTaken)
    return [number for number, _, _ in taken.started]


def _booted(hand: Hand, machine: int) -> list[Key]:
    """What the worker of a machine is given when it comes."""
    hand.step(ev.MachineStarted(hand.t, machine, f"i-{machine}", hand.t))
    hand.t += 30.0
    return hand.tasks(f"cloud-m{machine}", want=2, slots=2, pool="cloud", machine=machine)


def _machines(hand: Hand) -> None:
    """Machines that are refused, hibernate, resume, are reclaimed; checkpoints, prices, plans that are reviewed."""
    hand.step(ev.OffersConfigured(hand.t, "cloud", [SPOT, STEADY]))
    classes = [TaskClass(max_losses=1, estimate_s=600.0)]
    rented = hand.submit(6, classes, name="rented", deadline_s=7200.0, rent_from=["cloud"], max_failed_tasks=0)
    hand.step(ev.TasksEstimated(hand.t, rented.number, array("f", [600.0] * 6).tobytes()))
    starts = [Start(label, SPOT) for label in "abc"]
    a, b, c = _propose(hand, rented, Plan(start=starts, assign={"a": [0, 1], "b": [2, 3], "c": [4]}))
    hand.step(ev.MachineRefused(hand.t + 1.0, c, "no capacity"))
    on_a, on_b = _booted(hand, a), _booted(hand, b)
    hand.step(ev.CheckpointSaved(hand.t, *on_a[0], 0.0, "blob", 20.0))
    hand.step(ev.PricesReported(hand.t, "cloud", [("spot", 0.05)]))
    hand.step(ev.PricesReported(hand.t, "cloud", [("steady", 0.2)], hand.t - 30.0))
    hand.step(ev.StrangersSeen(hand.t, "cloud", [("i-zzz", "running")]))
    hand.step(ev.MachineNoticed(hand.t, b, hand.t + 120.0))
    hand.step(ev.MachineHibernated(hand.t, b, hand.t))
    hand.t += 200.0
    hand.ask(f"cloud-m{a}", want=0)
    moved = Plan(start=[Start("d", STEADY)], assign={"d": [on_b[0][1]]}, replan_t=hand.t + 9000.0)
    (d,) = _propose(hand, rented, moved, "planner hads: it failed; on-demand stepped in")
    assert _booted(hand, d)
    hand.step(ev.MachineResumed(hand.t, b, hand.t))
    hand.ask(f"cloud-m{b}", want=0)
    hand.step(ev.MachineEnded(hand.t, a, hand.t, "taken", "reclaimed"))
    assert rented.stopped
    hand.step(ev.MachineEnded(hand.t, d, hand.t, ""))
    reviewed = hand.submit(3, [TaskClass(estimate_s=600.0)], deadline_s=72000.0, rent_from=["cloud"])
    _propose(hand, reviewed, Plan(start=[Start("e", STEADY)], replan_t=hand.t + 123.0))


def _modes_of_pools(hand: Hand) -> None:
    """Pools that are added, paused, opened, drained, ended and removed; tasks wait when the log ends."""
    hand.step(ev.PoolAdded(hand.t, "more", '{"name": "more", "kind": "local"}', "/srv"))
    hand.step(ev.PoolSwitched(hand.t, "dear", PAUSED, "too dear"))
    hand.step(ev.PoolSwitched(hand.t, "dear", OPEN))
    hand.step(ev.PoolSwitched(hand.t, "cloud", DRAINING))
    hand.step(ev.PoolSwitched(hand.t, "more", ENDING))
    hand.step(ev.PoolRemoved(hand.t, "more"))
    hand.step(ev.PoolAdded(hand.t, "last", '{"name": "last", "kind": "local"}'))
    hand.submit(5, name="waits")
    hand.step(ev.OverlayDue(hand.t))
