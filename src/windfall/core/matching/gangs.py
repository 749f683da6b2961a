"""Tasks that take whole hosts, one or several of one pool at once: which hosts, and when all of them begin. Pure.

All start or none. A task takes its hosts in one decision, when enough of one pool are idle. Each host is then given its
part when it asks, and holds it. When the last one holds its part, all are told to begin. What ends one of the parts
before all have succeeded ends the attempt on every host.

Until enough are idle, the hosts that would be free soonest get nothing of a lower rank. No host is promised to a task
before it starts, so two tasks cannot wait for each other's hosts.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from windfall.core.decisions import GangFormed, HostAnswered, Units
from windfall.core.events import TaskClass
from windfall.core.matching import lifetimes
from windfall.core.matching.ads import bag_ad, class_ad, host_ad, pool_ad, queue_ad
from windfall.core.matching.policy import BagPolicy
from windfall.core.matching.units import FreeUnits, lacking
from windfall.core.renting.machines import deadline_first
from windfall.core.state.hosts.hosts import OF_SERVER, Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting.fleet import HIBERNATED, PENDING, MachineState, machine_of, queue_of
from windfall.core.state.state import State
from windfall.planning.contract import SPOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windfall.core.engine import Policies


def suitable(
    state: State, bag: Bag, index: int, policy: BagPolicy, pool: str, t: float, asking: Host | None = None
) -> list[Host]:
    """Hosts of a pool that could be one of the next task's, idle or not, those that are free soonest first.

    `asking`: a host as it describes itself now; it may be new.
    """
    task = next(iter(bag.queues.by_class[index]))
    hosts = [host for number in state.hosts.live if (host := state.hosts[number]).pool == pool]
    if asking is not None:
        hosts = [asking, *(host for host in hosts if host.number != asking.number)]
    found = [host for host in hosts if may_serve(state, bag, index, task, policy, host, t)]
    return sorted(found, key=lambda host: (len(host.held), host.number))


def may_serve(state: State, bag: Bag, index: int, task: int, policy: BagPolicy, host: Host, t: float) -> bool:
    """Whether a host that is wholly free could run a part of the task."""
    rules, access = bag.classes[index], host.access
    if host.owner or access.draining or host.record.probation_until is not None:
        return False
    if access.blocked and (access.blocked_until is None or t < access.blocked_until):
        return False
    machine = machine_of(state, host) if state.fleet.machines else None
    if machine is not None and not _is_rented_for(state, bag, machine, t):
        return False
    if not _is_large_enough(state, bag, rules, task, host) or not lifetimes.finishes(state, bag, rules, host, t):
        return False
    if not policy.expressions:
        return True
    ads = (host_ad(host, t), bag_ad(bag, t), queue_ad(state), pool_ad(state, host.pool))
    verdict = policy.match(*ads, t, class_ad(rules))
    return verdict.matches and verdict.concurrency > 0


def _is_rented_for(state: State, bag: Bag, machine: MachineState, t: float) -> bool:
    """Whether a rented machine may be one of a task's: it is its fleet's, nothing waits for it, and it stays.

    A plan says until when tasks may begin on spot machines.
    """
    if machine.fleet != state.fleet.serving(bag.number) or not machine.there or machine.stopping:
        return False
    if machine.noticed_t is not None or machine.phase == HIBERNATED or queue_of(state, machine):
        return False
    followed = state.fleet.plans.get(machine.fleet)
    planned = None if followed is None else followed.plan
    return planned is None or machine.offer.market != SPOT or t <= planned.spot_until_t


def for_machine(
    state: State, machine: MachineState, host: Host, t: float, policies: Policies
) -> tuple[GangFormed | None, bool]:
    """The task of its fleet that starts now with a rented machine; else whether the machine is kept for one.

    Jobs with the earliest deadline first. While further machines of the fleet are on their way, it waits for them.
    """
    for bag in _of_fleet(state, machine.fleet):
        for index, rules in enumerate(bag.classes):
            if not rules.nodes or not bag.queues.by_class[index].size:
                continue
            policy, task = policies.of(bag.rules.policies), next(iter(bag.queues.by_class[index]))
            formed, waits = gather(state, bag, index, policy, host, t)
            if formed is not None or waits:
                return formed, waits
            if may_serve(state, bag, index, task, policy, host, t):
                there = state.fleet.there_of.get(machine.fleet, {}).values()
                coming = sum(each.phase == PENDING and each.offer.pool == machine.offer.pool for each in there)
                known = len(suitable(state, bag, index, policy, host.pool, t, host))
                if known < rules.nodes <= known + coming:
                    return None, True
    return None, False


def _of_fleet(state: State, fleet: int) -> list[Bag]:
    """Jobs of a fleet with waiting tasks that take whole hosts, the earliest deadline first."""
    own = state.bags.get(fleet)
    jobs = [own] if own is not None else [state.bags[job] for job in state.fleet.book.active[fleet]]
    wide = [bag for bag in jobs if bag.number in state.bags.ready and any(rules.nodes for rules in bag.classes)]
    return sorted(wide, key=deadline_first)


def _is_large_enough(state: State, bag: Bag, rules: TaskClass, task: int, host: Host) -> bool:
    need = bag.memory_for(task, bag.columns.attempts[task] + 1)
    if ceil(rules.cpus) > host.slots or (host.memory_bytes and need > host.memory_bytes):
        return False
    if rules.container and not host.has_containers:
        return False
    return not rules.needs or lacking(state, host, rules.needs) is None


def is_idle(host: Host) -> bool:
    """Nothing runs there, and nothing that was cancelled still has a unit of it."""
    return not host.held and host.gang is None and not host.units


def gather(
    state: State, bag: Bag, index: int, policy: BagPolicy, host: Host, t: float
) -> tuple[GangFormed | None, bool]:
    """The task of this class that starts now with the asking host, if one does; else whether the host waits for it."""
    rules, task = bag.classes[index], next(iter(bag.queues.by_class[index]))
    hosts = suitable(state, bag, index, policy, host.pool, t, host)
    if len(hosts) < rules.nodes:
        return None, False
    soonest = hosts[: rules.nodes]
    idle = [other for other in hosts if is_idle(other)]
    if len(idle) < rules.nodes or not any(other.number == host.number for other in idle):
        return None, any(other.number == host.number for other in soonest)
    # The host that asks leads; the others hear of it at once, because they wait for an answer.
    members = [host, *[other for other in idle if other.number != host.number][: rules.nodes - 1]]
    units = _units(state, members, rules)
    if units is None:
        return None, False  # licences of the server are in use: hosts need not wait for these
    first = bag.columns.attempts[task] + 1
    return GangFormed(bag.number, task, first, [member.number for member in members], units), False


def _units(state: State, members: Iterable[Host], rules: TaskClass) -> list[Units] | None:
    """Units of resources for each host; None if the server has not enough of what it counts."""
    if not rules.needs:
        return []
    found: list[Units] = []
    for member in members:
        free = FreeUnits(state, member)
        free.reserve(unit for units in found for unit in units if unit[1] == OF_SERVER)
        taken = free.take(rules.needs)
        if taken is None:
            return None
        found.append(taken)
    return found


def lead(answer: HostAnswered, gang: GangFormed) -> None:
    """The asking host starts a task that takes whole hosts: it holds its part, and begins it if it is the only one."""
    answer.gang, answer.assigned = gang, [gang.part(0)]
    if len(gang.hosts) == 1:
        answer.begin = ((gang.job, gang.task, gang.first),)


def deliver(state: State, host: Host, answer: HostAnswered) -> None:
    """What a host hears that belongs to such a task: its part, and later that all hosts have theirs."""
    session, key = host.session, host.gang
    assert key is not None
    answer.begin = session.to_begin
    if session.to_join:
        answer.assigned = list(session.to_join)
        gang = state.bags[key[0]].attempts.gangs[key[1]]
        if len(gang.joined) + 1 == len(gang.hosts):
            answer.all_joined, answer.begin = key, (key,)
