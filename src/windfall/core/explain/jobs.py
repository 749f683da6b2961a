"""Why a task waits, and the story of one that does not: told by the code that decides, from the same state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from windfall import resources
from windfall.core.explain import kept, memory, sharing
from windfall.core.explain import plan as explain_plan
from windfall.core.explain.story import story
from windfall.core.liveness import timeouts
from windfall.core.matching import gangs, lifetimes, units
from windfall.core.matching.ads import bag_ad, class_ad, host_ad, pool_ad, queue_ad
from windfall.core.matching.matcher import Matcher, needs_failover
from windfall.core.matching.policy import BagPolicy, Clause
from windfall.core.records import Record
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import CANCELLED, DONE, FAILED, HELD, STATE_NAMES, WAITING
from windfall.core.state.renting.fleet import machine_of
from windfall.core.state.state import State
from windfall.core.supply import modes
from windfall.core.supply.pools import Outlook, outlook
from windfall.units import show_bytes, show_duration

if TYPE_CHECKING:
    from windfall.api.explained import Blocked, Explained, PoolOutlook, Timeout, Waiting, WhyNot
    from windfall.core.engine import Policies

Json = dict[str, Any]
Kind = tuple[str, str]
"""The subject of a reason, and its clause."""
PASSING = frozenset({"busy", "rank", "concurrency", "blame", "kept"})
"""Reasons that go away by themselves; if a host has no other, the task is not stuck."""
MOST_HOSTS = 2000
"""Hosts that one explanation looks at: it is made while others wait for their answers."""


MOST_PARENTS = 100


class Reason(Struct):
    """One thing that keeps hosts from a task. `missing`: by how much the nearest of them falls short."""

    what: str
    text: str
    detail: str = ""
    hosts: int = 0
    example: str = ""
    missing: float | None = None
    try_: str = ""
    change: str = ""
    """Options of `windfall change` that would let the host run it, as far as this reason goes."""
    together: int = 1
    """Reasons that keep the same host away, this one included: `try_` is against all of them."""


NameOf = Callable[[int], str]
"""What a task is called."""


def why_waiting(
    state: State, policies: Policies, bag: Bag, task: int | None, t: float, name_of: NameOf = str
) -> Waiting:
    """Which hosts there are, what keeps each from the bag's next task (or from `task`), and what to change."""
    if task is not None and bag.shape is not None and bag.queues.parents_left[task]:
        return _parents_left(state, bag, task, name_of)
    held_up = _job_reason(bag, task)
    if held_up:
        return _without_hosts(state, False, held_up[0], [], held_up[1])
    if task is not None and (reserved := explain_plan.why_reserved(state, bag, task, t)):
        return reserved
    rented = explain_plan.coming(state, bag, t)
    if task is None and rented is not None and not bag.waiting:
        return _without_hosts(state, rented.stuck, rented.because, rented.pools, rented.tries)
    look = Look(state, policies, bag, task, t)
    pools = outlook(state, policies, bag, ceil(bag.classes[_class_of(bag, task)].cpus), t)
    help_comes = any(pool.hopeful for pool in pools) or (rented is not None and not rented.stuck)
    ordered = sorted(look.reasons.values(), key=lambda reason: -reason.hosts)
    tries = [reason.try_ for reason in ordered if reason.try_]
    if rented is not None:
        tries += rented.tries
    elif not state.hosts.live and not help_comes:
        tries.append("windfall worker --server URL --token-file FILE   on any host")
    return {
        "waits": look.willing == 0,
        "stuck": look.possible == 0 and look.is_complete and not help_comes,
        "because": look.summary() if rented is None or look.possible else rented.because,
        "hosts": len(state.hosts.live),
        "willing": look.willing,
        "reasons": [_shown(reason) for reason in ordered],
        "nearest": _nearest(list(look.alone.values())),
        "pools": [*map(_hope, pools), *(rented.pools if rented else [])],
        "try": list(dict.fromkeys(tries)),
    }


def _hope(pool: Outlook) -> PoolOutlook:
    return {"pool": pool.pool, "what": pool.what}


def _without_hosts(state: State, stuck: bool, because: str, pools: list[PoolOutlook], tries: list[str]) -> Waiting:
    """Of what waits for something other than a host."""
    return {
        "waits": True, "stuck": stuck, "because": because, "hosts": len(state.hosts.live), "reasons": [],
        "pools": pools, "try": tries,
    }  # fmt: skip


def _parents_left(state: State, bag: Bag, task: int, name_of: NameOf) -> Waiting:
    """Which parents a task waits for, and whether one of them, or of theirs, will never be done."""
    assert bag.shape is not None
    parents = bag.shape.parents_of(task)
    missing = [parent for parent in parents if bag.columns.state[parent] != DONE]
    blockers = ended_before(bag, task)
    because = f"it waits for {len(missing)} of {_parents(len(parents))}: {_listed(missing, name_of)}"
    if blockers:
        states = sorted({bag.columns.state[blocker] for blocker in blockers})
        how = " or ".join("was cancelled" if value == CANCELLED else "failed" for value in states)
        because += f"; blocked by {_listed(blockers, name_of)}, which {how}"
    failed = any(bag.columns.state[blocker] == FAILED for blocker in blockers)
    options = ["--failed"] * failed + ["--cancelled"] * (len(blockers) > 0 and not failed)
    return {
        "waits": True,
        "stuck": bool(blockers),
        "because": because,
        "hosts": len(state.hosts.live),
        "reasons": [],
        "pools": [],
        "parents": [{"task": parent, "name": name_of(parent)} for parent in missing[:MOST_PARENTS]],
        "blocked_by": [{"task": blocker, "name": name_of(blocker)} for blocker in blockers[:MOST_PARENTS]],
        "try": [f"windfall retry {bag.number} {option}" for option in options],
    }


def ended_before(bag: Bag, task: int) -> list[int]:
    """What a task of a workflow depends on, directly or not, that failed or was cancelled, the nearest first."""
    if bag.shape is None:
        return []
    state = bag.columns.state
    above = bag.shape.walk_up(task, lambda at: state[at] == WAITING)
    return [at for at in above if state[at] in (FAILED, CANCELLED)]


def _blocked(bag: Bag, name_of: NameOf) -> Blocked:
    """Of a workflow that has ended: how many tasks never could start, and what they waited for in the end."""
    over = [task for task, value in enumerate(bag.columns.state) if value in (FAILED, CANCELLED)]
    first = [task for task in over if bag.shape is not None and not bag.queues.parents_left[task]]
    return {
        "tasks": bag.queues.held,
        "by": _listed(first or over, name_of),
        "try": f"windfall retry {bag.number} --failed",
    }


def _parents(count: int) -> str:
    return "1 parent" if count == 1 else f"{count} parents"


def _listed(tasks: list[int], name_of: NameOf) -> str:
    shown = ", ".join(name_of(task) for task in tasks[:3])
    return shown + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")


class Look:
    """What keeps each of the connected hosts from a task; at most `MOST_HOSTS` of them are looked at."""

    def __init__(self, state: State, policies: Policies, bag: Bag, task: int | None, t: float) -> None:
        step = ceil(len(state.hosts.live) / MOST_HOSTS) or 1
        self.hosts = list(state.hosts.live)[::step]
        self.is_complete = step == 1
        self.reasons: dict[Kind, Reason] = {}
        self.alone: dict[Kind, Reason] = {}
        """Reasons that are all that keeps a host away."""
        self.willing = self.possible = 0
        self.counts = _counts(bag, sum(state.hosts[number].slots for number in state.hosts.live))
        of_pools: dict[str, Reason | None] = {}
        for number in self.hosts:
            found = host_reasons(state, policies, bag, task, state.hosts[number], t, of_pools)
            self.willing += not found
            self.possible += all(reason.what in PASSING for reason in found)
            if len(found) == 1:
                _count(self.alone, found[0])
            for reason in found:
                _count(self.reasons, reason)

    def summary(self) -> str:
        count = len(self.hosts)
        hosts = _hosts(count) if self.is_complete else f"{count} hosts that were looked at"
        if not count:
            return "no host is connected"
        if self.willing:
            return f"{self.willing} of {hosts} may run it and will get it when they ask next"
        if {what for what, _ in self.reasons} == {"busy"}:
            return f"{self.counts}: all slots are busy"
        if self.possible:
            return f"{self.possible} of {hosts} may run it later"
        if not self.is_complete:
            return f"none of {hosts} may run it"
        return (
            "the one connected host may not run it" if count == 1 else f"none of the {count} connected hosts may run it"
        )


def _counts(bag: Bag, slots: int) -> str:
    """How many tasks run and how many wait: no more run than there are slots; hosts hold the next ones as well."""
    held_by_hosts = len(bag.attempts.live)
    running = min(held_by_hosts, slots)
    waiting = bag.counts[WAITING] + held_by_hosts - running
    reserved, held = bag.queues.reserved_ready, bag.queues.held
    parts = [f"{reserved:,} for rented machines"] * (reserved > 0) + [f"{held:,} for other tasks"] * (held > 0)
    said = f"{_tasks(running)} run{'s' * (running == 1)}, {waiting:,} wait{'s' * (waiting == 1)}"
    return f"{said} ({', '.join(parts)})" if parts else said


def _job_reason(bag: Bag, task: int | None) -> tuple[str, list[str]] | None:
    number = bag.number
    if bag.finished_t is not None:
        return f"the job has ended ({bag.state})", []
    if bag.stopped:
        return f"the job was stopped: {bag.stopped}", [f"windfall retry {number} --failed"]
    if bag.rules.paused:
        return "the job is paused", [f"windfall change {number} --unpause"]
    if not (bag.sealed or bag.rules.streaming):
        return "the job is still being submitted", []
    if task is None and bag.queues.held and not bag.waiting:
        return f"every task that could run has been handed out; {bag.queues.held} wait for others to be done", []
    if task is None and not bag.waiting and not bag.queues.reserved:
        return "every task of the job has been handed out", []
    return None


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


def host_reasons(
    state: State, policies: Policies, bag: Bag, task: int | None, host: Host, t: float,
    known: dict[str, Reason | None] | None = None,
) -> list[Reason]:  # fmt: skip
    """What keeps this host from the task; empty if nothing does. `known`: by pool, what was found for its other hosts
    of a task that takes several."""
    standing = _standing(state, host, t)
    if standing is not None:
        return [standing]
    machine = machine_of(state, host) if state.fleet.machines else None
    if machine is not None and machine.fleet != state.fleet.serving(bag.number):
        return [Reason("rented", "the host is rented for other jobs", "", 1, host.name)]
    if host.gang is not None and bag.number != host.gang[0]:
        return [Reason("busy", "the host is busy", "a task has the whole host", 1, host.name)]
    needs = [*_needs(state, bag, task, host), *_lifetime(state, bag, task, host, t)]
    policy = policies.of(bag.rules.policies)
    unmet = [*needs, *_clauses(state, policy, bag, task, host, t)]
    if needs:
        return _tried_together(bag, unmet)
    failover = state.settings.failover_pool
    if failover and task is not None and host.pool != failover and needs_failover(bag, task):
        detail = f"it failed {bag.columns.failures[task]} times and was lost {bag.columns.losses[task]} times elsewhere"
        return [Reason("failover", f'Host.Pool == "{failover}"', detail, 1, host.name)]
    if unmet:
        return _tried_together(bag, unmet)
    if bag.classes[_class_of(bag, task)].nodes:
        known = {} if known is None else known
        if host.pool not in known:
            known[host.pool] = _other_hosts(state, policy, bag, task, host.pool, t)
        if (short := known[host.pool]) is not None:
            return [msgspec.structs.replace(short, example=host.name)]
    return _competition(state, policies, bag, task, host, t)


def _other_hosts(state: State, policy: BagPolicy, bag: Bag, task: int | None, pool: str, t: float) -> Reason | None:
    """Hosts of this pool would do, but a task needs more of them than it has, or than are idle."""
    index = _class_of(bag, task)
    nodes = bag.classes[index].nodes
    if not bag.queues.by_class[index].size:
        return None
    hosts = gangs.suitable(state, bag, index, policy, pool, t)
    idle = sum(gangs.is_idle(other) for other in hosts)
    if len(hosts) < nodes:
        detail = f"pool {pool} has {_hosts(len(hosts))} for it; asked for: {nodes} at once"
        return Reason("nodes", f"{_hosts(nodes)} of one pool", detail, 1, "", float(nodes - len(hosts)))
    if idle < nodes:
        detail = f"{idle} of {_hosts(nodes)} of pool {pool} are idle; they start together"
        return Reason("busy", f"{_hosts(nodes)} of one pool, idle at once", detail, 1)
    return None


def _tried_together(bag: Bag, reasons: list[Reason]) -> list[Reason]:
    """The reasons of one host with one command against all of them: against one alone it would help nothing."""
    changes = list(dict.fromkeys(reason.change for reason in reasons))
    for reason in reasons:
        reason.together = len(reasons)
        reason.try_ = f"windfall change {bag.number} {' '.join(changes)}" if all(changes) else ""
    return reasons


def _standing(state: State, host: Host, t: float) -> Reason | None:
    name = host.name
    if host.access.is_blocked(t):
        return Reason(
            "blocked", "Host.Blocked", f"{name}: {host.access.blocked}", 1, name, None, f"windfall host unblock {name}"
        )
    if host.access.draining:
        return Reason("draining", "the host is draining", f"{name} takes nothing more", 1, name)
    if modes.gives_nothing(state, host.pool):
        detail = f"{name}: {modes.starts_nothing(state, host.pool)}"
        return Reason("draining", "the pool is draining", detail, 1, name, None, f"windfall pool resume {host.pool}")
    until = host.record.probation_until
    if until is not None and t < until:
        detail = f"{name}: {host.record.suspicion} (black hole suspected, next test in {show_duration(until - t)})"
        return Reason("probation", "Host.ErrorRate", detail, 1, name, None, f"windfall host unblock {name}")
    return None


def _class_of(bag: Bag, task: int | None) -> int:
    """The class of a task, or of the bag's next one."""
    if task is not None:
        return bag.class_of(task)
    return next((index for index, queue in enumerate(bag.queues.by_class) if queue.size), 0)


def _needs(state: State, bag: Bag, task: int | None, host: Host) -> list[Reason]:
    rules = bag.classes[_class_of(bag, task)]
    attempt = 1 if task is None else bag.columns.attempts[task] + 1
    found = []
    width = ceil(rules.cpus)
    if width > host.slots:
        short = float(width - host.slots)
        found.append(
            Reason(
                "cpus",
                f"Host.Slots >= {width}",
                f"largest host: {host.slots} slots; asked for: {width}",
                1,
                host.name,
                short,
            )
        )
    need = rules.memory_for(attempt) if task is None else bag.memory_for(task, attempt)
    if need and host.memory_bytes and need > host.memory_bytes:
        need_mb, has_mb = need >> 20, host.memory_bytes >> 20
        found.append(
            Reason(
                "memory", f"Host.Memory >= {need_mb}",
                f"largest host: {show_bytes(host.memory_bytes)}; asked for: {show_bytes(need)}", 1, host.name,
                float(need_mb - has_mb), change=f"--memory {max(1, has_mb)}M",
            )
        )  # fmt: skip
    if rules.container and not host.has_containers:
        detail = f"{host.name} has neither Apptainer, Podman nor Docker, and the job runs in a container"
        found.append(Reason("container", "the host has an engine for containers", detail, 1, host.name))
    if rules.needs and (lacks := units.lacking(state, host, rules.needs)) is not None:
        found.append(_lacking(state, host, *lacks))
    return found


def _lacking(state: State, host: Host, name: str, need: int, has: int) -> Reason:
    """A resource of which the host, or the whole server, has too little."""
    asked = resources.show(need, name)
    if name in state.settings.resources:
        detail = f"the server has {resources.show(has, name)} in all; asked for: {asked}"
        return Reason("resource", f"{name} of the server >= {need / 1000:g}", detail, 1, host.name, (need - has) / 1000)
    most = max((state.hosts[number].resources.get(name, 0) for number in state.hosts.live), default=0)
    detail = f"no host has {asked}; the largest has {most}" if most * 1000 < need else f"{host.name} has {has // 1000}"
    return Reason("resource", f"{name} of the host >= {need / 1000:g}", detail, 1, host.name, (need - has) / 1000)


def _busy_units(state: State, bag: Bag, task: int | None, host: Host) -> list[Reason]:
    """Other tasks have the units that this one needs."""
    needs = bag.classes[_class_of(bag, task)].needs
    if not needs or units.FreeUnits(state, host).take(needs) is not None:
        return []
    asked = ", ".join(resources.show(amount, name) for name, amount in needs)
    detail = f"{asked}: other tasks have what there is; it will ask when they are done"
    return [Reason("busy", "the resources are in use", detail, 1, host.name)]


def _lifetime(state: State, bag: Bag, task: int | None, host: Host, t: float) -> list[Reason]:
    """The host ends before the task would."""
    rules = bag.classes[_class_of(bag, task)]
    if lifetimes.finishes(state, bag, rules, host, t):
        return []
    left_s, needed_s = lifetimes.left_s(host, t) or 0.0, lifetimes.needed_s(state, bag, rules) or 0.0
    detail = f"{host.name} ends in {show_duration(left_s)}; a task of this job takes up to {show_duration(needed_s)}"
    text = f"Host.RemainingLifetime >= {ceil(needed_s)}"
    return [Reason("lifetime", text, detail, 1, host.name, needed_s - left_s)]


def _clauses(state: State, policy: BagPolicy, bag: Bag, task: int | None, host: Host, t: float) -> list[Reason]:
    if not policy.expressions:
        return []
    ads = (host_ad(host, t), bag_ad(bag, t), queue_ad(state), pool_ad(state, host.pool))
    clauses = policy.explain(*ads, t, shared=class_ad(bag.classes[_class_of(bag, task)]))
    failing = [clause for clause in clauses if not clause.ok]
    change = f"--require {_without(failing, clauses, policy.expressions.get('JobRequirements', ''))}"
    return [
        Reason("policy", clause.text, clause.detail, 1, host.name, clause.missing, change=change) for clause in failing
    ]


def _without(dropped: list[Clause], clauses: list[Clause], text: str) -> str:
    """The condition without some of its clauses, as it would be typed."""
    rest, kept = " ".join(text.split()), []
    for each in clauses:
        plain = " ".join(each.text.split())
        part = next((part for part in (plain, f"({plain})") if rest.startswith(part)), None)
        if part is None:
            break
        rest = rest.removeprefix(part).removeprefix(" && ")
        kept += [] if each in dropped else [part]
    if rest or "'" in text:
        return f"'...'   without, or with weaker: {', '.join(clause.text for clause in dropped)}"
    return f"'{' && '.join(kept)}'"


def _competition(state: State, policies: Policies, bag: Bag, task: int | None, host: Host, t: float) -> list[Reason]:
    matcher = Matcher(state, host, t, policies)
    for group in matcher.by_rank():
        # Bags of which only replicas are left may have none for this host.
        group = [entry for entry in group if entry[0].waiting]
        if not group:
            continue
        for other, _, concurrency, _ in group:
            if other is bag:
                if len(host.held) >= concurrency:
                    return [
                        Reason("concurrency", f"Concurrency = {concurrency}", "the host holds that many", 1, host.name)
                    ]
                break
        if any(other is bag for other, *_ in group):
            break
        names = ", ".join(other.rules.name for other, *_ in group)
        return [Reason("rank", "Rank", f"higher-ranked jobs go first: {names}", 1, host.name)]
    if len(host.held) >= host.slots:
        return [Reason("busy", "the host is busy", "it will ask when a slot is free", 1, host.name)]
    if busy := _busy_units(state, bag, task, host):
        return busy
    if task is not None and matcher.avoids(bag, task):
        return [Reason("blame", "the task failed here before", "another host is tried first", 1, host.name)]
    if why := kept.why_kept(matcher, bag):
        return [Reason("kept", "the host is kept for another job", why, 1, host.name)]
    return []


def _count(reasons: dict[Kind, Reason], reason: Reason) -> None:
    """Merge reasons of the same kind; the nearest miss stays as the example."""
    key = (reason.what, reason.text)
    known = reasons.get(key)
    if known is None:
        reasons[key] = msgspec.structs.replace(reason)
        return
    known.hosts += 1
    nearer = reason.missing is not None and (known.missing is None or reason.missing < known.missing)
    if reason.together < known.together or (reason.together == known.together and nearer):
        known.try_, known.together = reason.try_, reason.together
    if nearer:
        known.missing, known.detail, known.example = reason.missing, reason.detail, reason.example


def _nearest(alone: list[Reason]) -> str:
    """The smallest change that would do: of a reason that is all that keeps some hosts away."""
    missed = [reason for reason in alone if reason.missing is not None]
    if not missed:
        return ""
    best = min(missed, key=lambda reason: (-reason.hosts, reason.missing))
    if best.what in ("memory", "cpus", "lifetime", "resource"):
        return f"{best.example}: {best.detail}"
    return f"{_hosts(best.hosts)} fail{'s' * (best.hosts == 1)} '{best.text}' alone, {best.example} by {best.missing:g}"


def _shown(reason: Reason) -> WhyNot:
    return {
        "what": reason.what,
        "clause": reason.text,
        "hosts": reason.hosts,
        "detail": reason.detail,
        "example": reason.example,
        "missing": reason.missing,
    }


def timeouts_of(state: State, bag: Bag) -> list[Timeout]:
    """When silence counts as a loss, pool by pool: which law, how many samples, what it expects."""
    if "Deadline" in bag.rules.policies:
        return [{"basis": "policy", "because": f"the policy Deadline: {bag.rules.policies['Deadline']}"}]
    return timeouts.all_shown(state, bag=bag.rules.name)


def explain(
    state: State, policies: Policies, bag: Bag, task: int | None, t: float, records: Iterable[Record] = (),
    name_of: NameOf = str,
) -> Explained:  # fmt: skip
    """Everything about why a job or a task is where it is."""
    document: Explained = {
        "job": bag.number, "name": bag.rules.name, "task": task, "state": bag.state,
        "timeouts": timeouts_of(state, bag),
    }  # fmt: skip
    if task is None:
        if bag.finished_t is None:
            document["waiting"] = why_waiting(state, policies, bag, None, t)
            document["running"] = len(bag.attempts.live)
        elif bag.queues.held:
            document["blocked"] = _blocked(bag, name_of)
        document["policies"] = policies.of(bag.rules.policies).expressions
        document["memory"] = memory.memory_of(bag)
        document["money"] = explain_plan.money_of(state, bag, t)
        document["plan"] = explain_plan.plan_of(state, bag)
        document["sharing"] = sharing.of_job(state, bag, t)
        return document
    value = bag.columns.state[task]
    document["state"] = STATE_NAMES[value]
    if bag.shape is not None:
        document["task_name"] = name_of(task)
    if value == WAITING:
        document["waiting"] = why_waiting(state, policies, bag, task, t, name_of)
    if value == CANCELLED and (before := ended_before(bag, task)):
        document["because"] = f"with {_listed(before, name_of)}, for which it waited"
    if value == HELD:
        document["running_on"] = [state.hosts[a.host].name for a in bag.attempts.live[task]]
        if also := explain_plan.second_attempt(state, bag, task, t):
            document["because"] = also
    document["story"] = story(state, records, bag, task)
    return document
