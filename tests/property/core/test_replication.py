"""Both kinds of replication against a reference of GridBot's algorithm 2, written down task by task."""

from __future__ import annotations

from math import ceil

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.support.engine.hand import Hand
from windfall.core.decisions import TimeJudged
from windfall.core.events import IDLE_SLOTS, QUEUED
from windfall.core.state.jobs.columns import HELD
from windfall.core.wishes import due
from windfall.policy import compile_policies

CYCLE_S = 60.0
NEVER_S = 100_000
conditions = st.sampled_from(
    [
        ("true", lambda n, age_s, errors: True),
        ("Job.NumberOfReplicas < 2", lambda n, age_s, errors: n < 2),
        ("Now - Job.Replica1.SentTime > 90", lambda n, age_s, errors: age_s > 90),
        ("Job.Replica1.Host.ErrorRate > 0.2", lambda n, age_s, errors: errors > 0.2),
        ("false", lambda n, age_s, errors: False),
    ]
)
bags = st.tuples(st.integers(1, 6), conditions, st.integers(0, 2), st.integers(0, 3))
"""Tasks, ReplicationRequirements, priority, the job's own cap (0: the server's)."""
steps = st.lists(
    st.tuples(st.sampled_from(["ask", "wait", "done", "fail"]), st.integers(0, 3), st.integers(1, 3)), max_size=30
)


def replicas_by_the_book(hand: Hand, holds: dict[int, object]) -> list[tuple[int, list[int]]]:
    """Algorithm 2: for each running job, if few unsent jobs of its bag are in the queue and ReplicationRequirements is
    true, enqueue a new replica. Fewest replicas first, and no more than the cap (section 6.2)."""
    state, t = hand.state, hand.t
    few = ceil(state.settings.tail_enter * max(1, state.hosts.live_slots))
    found = []
    for bag in state.bags.values():
        running = {task: attempts for task, attempts in bag.attempts.live.items() if attempts}
        if not bag.tail or not running or bag.rules.replication != QUEUED:
            continue
        if bag.queues.replicated_t + CYCLE_S > t:
            continue
        queue = dict(bag.queues.replicas)
        unsent = bag.waiting + sum(queue.values())
        most = bag.rules.max_replicas or state.settings.max_replicas
        made = []
        for task in sorted(running, key=lambda task: len(running[task]) + queue.get(task, 0)):
            first = running[task][0]
            replicas = len(running[task]) + queue.get(task, 0)
            host = state.hosts[first.host]
            if (
                unsent <= few
                and replicas < most
                and holds[bag.number](replicas, t - first.sent, host.record.error_rate)
            ):
                made.append(task)
                unsent += 1
        found.append((bag.number, made))
    return found


class Eligible(Struct):
    """A running task of which an asking host may get a replica."""

    job: int
    task: int
    replicas: int


def comes_back(state, bag, task: int) -> bool:
    """Whether its one host has not begun it, because it holds more than it has slots: then the task itself is asked
    back, once, and no replica is made of it. A silent host is not asked."""
    attempts = bag.attempts.live[task]
    host, key = state.hosts[attempts[0].host], (bag.number, task, attempts[0].number)
    if host.state != "live":
        return False
    return len(attempts) == 1 and key in list(host.held)[host.slots :] and key not in host.session.asked_back


def eligible_for_idle_slots(hand: Hand, holds: dict[int, object], name: str) -> list[Eligible]:
    """Algorithm 2 where the queue is empty: for each running job of a bag of which nothing is unsent, if fewer than the
    cap run, none of them here, and ReplicationRequirements is true. A task that has not begun does not run."""
    state, t = hand.state, hand.t
    found = []
    for bag in state.bags.values():
        if bag.waiting or not bag.tail or bag.rules.replication != IDLE_SLOTS:
            continue
        most = bag.rules.max_replicas or state.settings.max_replicas
        for task, attempts in bag.attempts.live.items():
            first = attempts[0]
            runs_here = any(state.hosts[attempt.host].name == name for attempt in attempts)
            errors = state.hosts[first.host].record.error_rate
            if runs_here or comes_back(state, bag, task):
                continue
            if len(attempts) < most and holds[bag.number](len(attempts), t - first.sent, errors):
                found.append(Eligible(bag.number, task, len(attempts)))
    return found


def driven(kind: str, made: list, moves: list, check, ask=Hand.tasks, deadline_s=NEVER_S, **settings) -> Hand:
    hand = Hand(compile_policies, replication_cycle_s=CYCLE_S, max_replicas=3, **settings)
    holds = {}
    for tasks, (text, holds_if), priority, cap in made:
        bag = hand.submit(
            tasks, priority=float(priority), replication=kind, max_replicas=cap,
            policies={"ReplicationRequirements": text, "Deadline": str(deadline_s)},
        )  # fmt: skip
        holds[bag.number] = holds_if
    held: list[list] = [[], [], [], []]
    for move, host, count in moves:
        name = f"h{host}"
        if move == "wait":
            hand.t += 37.0 * count
            check(hand, holds)
        elif move == "ask":
            held[host] += ask(hand, name, count, 3)
        elif held[host]:
            key = held[host].pop(0)
            hand.report(name, key, cause="done" if move == "done" else "exit")
    return hand


@settings(deadline=None, max_examples=80)
@given(st.lists(bags, min_size=1, max_size=3), steps)
def test_a_replication_cycle_queues_what_algorithm_2_queues(made, moves):
    def check(hand, holds):
        expected = replicas_by_the_book(hand, holds)
        before = len(hand.log)
        for event in due(hand.state, hand.t):
            hand.step(event)
        decided = [record.decided for record in hand.log[before:] if isinstance(record.decided, TimeJudged)]
        found = [entry for judged in decided for entry in judged.replicated]
        if not any(judged.lost or judged.expired for judged in decided):
            assert found == expected

    driven(QUEUED, made, moves, check)


HELD_AHEAD = [("ask", 0, 1)] * 4 + [("ask", 1, 1), ("ask", 2, 3)]
"""The first host holds four tasks and has three slots."""
GIVEN_UP = [("ask", 0, 1), ("ask", 2, 1), ("ask", 2, 1), ("wait", 0, 3), ("ask", 0, 1), ("wait", 0, 1), ("ask", 2, 2)]
"""The third host was silent: its attempts were given up, and still take its slots."""
ALWAYS = ("true", lambda n, age_s, errors: True)


@settings(deadline=None, max_examples=150)
@given(st.lists(bags, min_size=1, max_size=3), steps)
@example([(4, ALWAYS, 0, 0)], HELD_AHEAD)
@example([(2, ALWAYS, 0, 0)], GIVEN_UP)
def test_a_host_with_idle_slots_gets_the_replicas_that_algorithm_2_makes(made, moves):
    ranked = [(tasks, condition, place, cap) for place, (tasks, condition, _, cap) in enumerate(made)]
    holds = {place + 1: holds_if for place, (_, (_, holds_if), _, _) in enumerate(ranked)}

    def ask(hand, name, want, slots):
        running = {(bag.number, task) for bag in hand.state.bags.values() for task in bag.attempts.live}
        expected = eligible_for_idle_slots(hand, holds, name)
        known = hand.state.hosts.by_name.get(name)
        held = 0 if known is None else len(known.held)  # what was given up may still run there
        answer = hand.ask(name, want, slots)
        keys = [(p.job, task, p.attempt) for p in answer.assigned for task in range(p.first, p.first + p.count)]
        replicas = [key[:2] for key in keys if key[:2] in running]
        if answer.refused or answer.probation is not None or answer.test:
            return keys
        left = min(want, slots - held)  # replicas are for slots that are idle, whatever the host asks for
        for job in sorted(holds, reverse=True):  # the highest rank first, unsent tasks before replicas
            left -= sum(key[0] == job and key[:2] not in running for key in keys)
            may = [one for one in expected if one.job == job]
            got = [task for of_job, task in replicas if of_job == job]
            assert set(got) <= {one.task for one in may} and len(set(got)) == len(got)
            assert len(got) == min(max(0, left), len(may)), (want, left, may, got)
            skipped = [one.replicas for one in may if one.task not in got]
            taken = [one.replicas for one in may if one.task in got]
            assert max(taken, default=0) <= min(skipped, default=99), "fewest replicas first"
            left -= len(got)
        return keys

    driven(IDLE_SLOTS, ranked, moves, lambda hand, holds: hand.wait(0), ask)


@settings(deadline=None, max_examples=80)
@given(st.lists(bags, min_size=1, max_size=3), steps, st.sampled_from([QUEUED, IDLE_SLOTS]), st.sampled_from([40, 100]))
def test_an_attempt_beyond_its_deadline_has_failed_and_its_task_is_queued_again(made, moves, kind, deadline_s):
    """The first half of algorithm 2: for each running job, if t > deadline, a new replica is enqueued and it failed."""

    def check(hand, holds):
        running = {
            (bag.number, task): {attempt.number: hand.t - attempt.sent >= deadline_s for attempt in attempts}
            for bag in hand.state.bags.values()
            for task, attempts in bag.attempts.live.items()
        }
        late = {(*key, number) for key, attempts in running.items() for number in attempts if attempts[number]}
        before = len(hand.log)
        for event in due(hand.state, hand.t):
            hand.step(event)
        decided = [record.decided for record in hand.log[before:] if isinstance(record.decided, TimeJudged)]
        assert {entry[:3] for judged in decided for entry in judged.expired} == late
        for (job, task), attempts in running.items():
            bag = hand.state.bags[job]
            still = [attempt.number for attempt in bag.attempts.live.get(task, ())]
            assert still == [number for number, is_late in attempts.items() if not is_late]
            waits = task in [waiting for queue in bag.queues.by_class for waiting in queue]
            assert waits == (not still), "queued again exactly if no other replica of it runs"

    driven(kind, made, moves, check, deadline_s=deadline_s, lease_s=float(NEVER_S))


@settings(deadline=None, max_examples=80)
@given(st.lists(bags, min_size=1, max_size=3), steps, st.sampled_from([QUEUED, IDLE_SLOTS]))
def test_no_host_gets_a_task_twice_and_no_task_more_replicas_than_its_cap(made, moves, kind):
    hand = driven(kind, made, moves, lambda hand, holds: hand.wait(0))
    for bag in hand.state.bags.values():
        most = bag.rules.max_replicas or 3
        for task, attempts in bag.attempts.live.items():
            assert len({attempt.host for attempt in attempts}) == len(attempts) <= max(1, most)
            assert bag.columns.state[task] == HELD
            assert len(attempts) + bag.queues.replicas.get(task, 0) <= max(1, most)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2), st.integers(0, 2))
def test_a_queued_replica_competes_by_rank_and_one_for_idle_slots_is_last_among_equals(mine, others, rank, other_rank):
    for kind in (QUEUED, IDLE_SLOTS):
        hand = Hand(compile_policies, replication_cycle_s=CYCLE_S)
        policies = {"ReplicationRequirements": "true", "Deadline": "100000"}
        hand.submit(mine, priority=float(rank), replication=kind, policies=policies)
        assert len(hand.tasks("a", want=mine, slots=mine)) == mine
        hand.ask("a", 0, slots=mine)
        hand.wait(CYCLE_S)
        hand.submit(others, priority=float(other_rank))
        jobs = [key[0] for key in hand.tasks("b", want=1)]
        if rank > other_rank:
            assert jobs == [1]
        elif rank < other_rank or kind == IDLE_SLOTS:
            assert jobs == [2]
        else:
            # Equals take turns: the bag with fewer tasks out.
            assert jobs == [2]
