"""The order in which bags of equal rank are served is kept, and is the one that a look at all of them would give."""

import random

import pytest

from windfall.core.engine import Engine
from windfall.core.events import (
    HostAsked,
    JobCancelled,
    JobChanged,
    JobRetried,
    JobRules,
    JobSealed,
    JobSubmitted,
    Result,
    ResultsReported,
    ServerStarted,
    Settings,
    TaskClass,
    TasksAdded,
    TimerFired,
)
from windfall.core.matching import matcher, ranking, served
from windfall.core.records import encode_record
from windfall.core.state.invariants import problems
from windfall.core.state.jobs import bags
from windfall.core.state.snapshot import load, save
from windfall.core.state.state import State
from windfall.core.wishes import due
from windfall.wire.messages import CAUSES

CAUSE_OF_END = [CAUSES.index(cause) for cause in ("done", "done", "done", "exit", "preempted", "cancelled")]


class Twins:
    """The same events for two engines: one keeps the order if there are two bags, the other looks at all of them."""

    def __init__(self, patch, settings):
        self._patch = patch
        self.states = [State(), State()]
        self._engines = [Engine(), Engine()]
        self.kept = 0
        self.step(ServerStarted(0.0, settings))

    def step(self, event):
        made = []
        for place, crowd in enumerate((1, 10**9)):
            for module in (bags, matcher, ranking):
                self._patch.setattr(module, "CROWD", crowd)
            made.append(encode_record(self._engines[place].step(self.states[place], event)))
        assert made[0] == made[1], event
        known = self._engines[0].policies._ranking
        self.kept += known is not None and bool(known[2]._least_served)

    def restart(self):
        """From a snapshot: nothing of the order is in it."""
        self.states = [load(save(state)) for state in self.states]
        self._engines = [Engine(), Engine()]


def play(twins, random_, steps, kinds):
    state, t = twins.states[0], 1.0
    sessions = {f"h{number}": 0 for number in range(random_.choice((3, 8, 20)))}
    slots = {name: random_.choice((1, 2, 4)) for name in sessions}
    for _ in range(steps):
        t += random_.expovariate(1.0)
        state = twins.states[0]
        for event in due(state, t):
            twins.step(event)
        choice = random_.random()
        if choice < 0.06 or len(state.bags) < 4:
            rules = JobRules("job", priority=random_.choice((0.0, 0.0, 0.0, 1.0)),
                             replication=random_.choice(kinds))  # fmt: skip
            classes = [TaskClass(cpus=random_.choice((1.0, 1.0, 2.0)))]
            job = state.bags.next
            twins.step(JobSubmitted(t, rules, classes))
            twins.step(TasksAdded(t, job, random_.randint(1, 20)))
            twins.step(JobSealed(t, job))
        elif choice < 0.07:
            job = random_.choice(list(state.bags))
            twins.step(random_.choice((JobCancelled(t, job), JobRetried(t, job, cancelled=True))))
        elif choice < 0.12:
            bag = random_.choice(list(state.bags.values()))
            twins.step(JobCancelled(t, bag.number, list(bag.attempts.live)[:2]))
        elif choice < 0.13:
            bag = random_.choice(list(state.bags.values()))
            twins.step(JobChanged(t, bag.number, JobRules("job", paused=random_.random() < 0.5)))
        elif choice < 0.14:
            twins.step(TimerFired(t))
        elif choice < 0.15:
            twins.restart()
        else:
            exchange(twins, random_, random_.choice(list(sessions)), sessions, slots, t)


def exchange(twins, random_, name, sessions, slots, t):
    host = twins.states[0].hosts.by_name.get(name)
    held = [] if host is None else list(host.held)
    ended = {key[:2]: key for key in held if random_.random() < 0.6}
    if ended:
        results = [Result(*key, random_.choice(CAUSE_OF_END), 0, t - 0.5, t) for key in ended.values()]
        twins.step(ResultsReported(t, name, results))
    sessions[name] += 1
    boot, n = f"boot{sessions[name] // 6}", sessions[name] % 6 + 1
    leaving = "idle" if random_.random() < 0.02 else None
    ad = {"pool": "p"} if host is None or n == 1 or random_.random() < 0.05 else None
    twins.step(HostAsked(t, name, boot, n, random_.choice((0, 1, 1, 2, 6)), slots[name], ad, leaving))


@pytest.mark.parametrize("seed", range(12))
def test_the_kept_order_decides_as_a_look_at_all_bags_would(seed, monkeypatch):
    random_ = random.Random(seed)
    monkeypatch.setattr(bags, "MOVES_KEPT", random_.choice((1, 7, 10_000)))
    monkeypatch.setattr(served, "_STALE", random_.choice((1, 4)))
    leave = random_.choice((None, 2.0))
    twins = Twins(monkeypatch, Settings(lease_s=random_.choice((20.0, 500.0)), tail_leave=leave))
    play(twins, random_, 400, ("idle-slots",) * 9 + ("queued",) if seed % 4 == 0 else ("idle-slots",))
    assert twins.kept > 40
    assert problems(twins.states[0]) == []
    assert save(twins.states[0]) == save(twins.states[1])
