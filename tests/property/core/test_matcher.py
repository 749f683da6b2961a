"""The matcher against one that tries everything: algorithm 1 as printed, over every task, nothing remembered."""

from __future__ import annotations

from math import ceil
from unittest.mock import patch

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.engine.hand import Hand
from windfall.core.events import JobChanged, JobRules, TaskClass
from windfall.core.matching import ranking
from windfall.core.matching.ads import bag_ad, class_ad, host_ad, job_ad, pool_ad, queue_ad
from windfall.core.matching.matcher import Matcher
from windfall.core.matching.policy import Verdict
from windfall.core.matching.ranking import UNLIMITED
from windfall.policy.compiled import ClassAdPolicy, compile_policies

SITES = ("haifa", "madison", "rio")
hosts = st.fixed_dictionaries(
    {
        "memory_mb": st.sampled_from([0, 512, 1024, 4096]),
        "speed": st.sampled_from([0.5, 1.0, 1.5]),
        "pool": st.sampled_from(["campus", "cloud"]),
        "tags": st.fixed_dictionaries({"site": st.sampled_from(SITES)}),
    }
)
of_host = st.sampled_from(
    [
        "Host.Memory >= 1024",
        "Host.Speed > 0.7",
        'Host.site == "haifa"',
        'Host.Pool != "cloud"',
        "Host.Running < 3",
        "Host.unknown > 3",
        "Queue.BOTsInQueue < 3",
        "Pool.Running < 2",
    ]
)
of_bag = st.sampled_from(
    ["BOT.JobsQueued > 2", "BOT.Priority > 1", "Host.Memory >= 2 * Job.Memory", "Job.Cpus < 2 || Host.Speed > 1"]
)
conditions = st.lists(st.one_of(of_host, of_host, of_bag), min_size=1, max_size=3).map(" && ".join)
ranks = st.sampled_from(["Host.Speed * 3", "BOT.Priority + Host.Speed", "7", "Job.Memory / 100", "-Host.Memory"])
amounts = st.sampled_from(["Host.Cpus", "2", "1 + BOT.JobsDone", "3 * Host.Speed"])
replications = st.sampled_from(
    ["true", "Job.NumberOfReplicas < 2", "Job.Replica1.Host.Pool != Host.Pool", "BOT.Tail && Host.Speed > 0.7"]
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "JobRequirements": conditions,
        "Rank": ranks,
        "Concurrency": amounts,
        "Deadline": amounts,
        "ReplicationRequirements": replications,
    },
)
classes = st.builds(TaskClass, cpus=st.sampled_from([1.0, 2.0]), memory_bytes=st.sampled_from([0, 256 << 20, 1 << 30]))
bags = st.tuples(st.integers(1, 8), st.lists(classes, min_size=1, max_size=2), policies, st.integers(0, 3))

ending = st.tuples(
    st.integers(1, 2),
    st.lists(classes, min_size=1, max_size=2),
    st.builds(lambda more, replication: more | {"ReplicationRequirements": replication}, policies, replications),
    st.integers(0, 3),
)
"""Bags that soon have nothing but replicas to give."""


def by_trying_everything(hand: Hand, host_name: str, want: int) -> list[tuple[int, int, float | None]]:
    """(job, task, deadline) of every task that the host should get, by algorithm 1.

    Every task of every bag is looked at, and every policy is compiled and evaluated anew for it. The running tasks of a
    bag that has nothing unsent, in its tail, are in the queue as well, with their bag's rank (algorithm 2).
    """
    state, t = hand.state, hand.t
    host = state.host(host_name)
    candidates = []
    for bag in state.bags.values():
        policy = ClassAdPolicy(bag.rules.policies)
        ads = (host_ad(host, t), bag_ad(bag, t), queue_ad(state), pool_ad(state, host.pool))
        found = []
        for index, queue in enumerate(bag.queues.by_class):
            for task in queue if bag.dispatchable else ():
                job = job_ad(state, bag, task, [], t)
                verdict = policy.match(*ads, t, job)
                if verdict.matches:
                    found.append((index, task, job, verdict, False))
        replicated = bag.tail and not bag.waiting and "ReplicationRequirements" in bag.rules.policies
        # The order of sending, as the engine has it: the fewest replicas first.
        for task in (
            [task for _, level in sorted(bag.attempts.levels.saved().items()) for task in level] if replicated else ()
        ):
            running = bag.attempts.live[task]
            job = job_ad(state, bag, task, running, t)
            elsewhere = len(running) < state.settings.max_replicas and all(a.host != host.number for a in running)
            if elsewhere and policy.match_replica(ads[0], job, ads[1], *ads[2:], t):
                shared = class_ad(bag.classes[0]) if len(bag.classes) == 1 else {"NumberOfReplicas": 0}
                scopes = (ads[0], shared, ads[1], ads[2], ads[3], t)
                verdict = Verdict(True, policy.rank(scopes), policy.concurrency(scopes))
                found.append((bag.class_of(task), task, job, verdict, True))
        for place, (index, task, job, verdict, replica) in enumerate(found):
            said = "Concurrency" in bag.rules.policies
            seconds = policy.deadline_s(ads[0], job, ads[1], ads[3], t, ads[2])
            deadline = t + seconds if seconds is not None else None
            concurrency = verdict.concurrency if said else UNLIMITED
            turn = place if replica else index
            candidates.append((-verdict.rank, bag, index, task, concurrency, deadline, turn, replica))
    ranks = {(rank, bag.number) for rank, bag, *_ in candidates}
    assume(len({rank for rank, _ in ranks}) == len(ranks))  # Equal ranks are shared out: a test of its own.
    given_out = []
    running, free_mb, cap = len(host.held), host.memory_bytes - host.memory_held, UNLIMITED
    in_turn = sorted(candidates, key=lambda c: (c[0], c[1].number, c[6]))
    for _, bag, index, task, concurrency, deadline, _, replica in in_turn:
        rules = bag.classes[index]
        width, memory = ceil(rules.cpus), rules.memory_bytes
        if not replica:
            cap = min(cap, concurrency)
        fits = width <= want and width <= host.slots and (memory <= free_mb or not host.memory_bytes)
        # A replica that is not made caps nobody.
        if fits and running + len(given_out) < min(cap, concurrency):
            cap = min(cap, concurrency)
            given_out.append((bag.number, task, deadline))
            want -= width
            free_mb -= memory
    return given_out


def expanded(hand: Hand, assigned) -> list[tuple[int, int, float | None]]:
    """Task by task. A bag without the policy Deadline has one that is learned: no matter of matching."""
    found = []
    for piece in assigned:
        said = "Deadline" in hand.state.bags[piece.job].rules.policies
        found += [(piece.job, piece.first + i, piece.deadline if said else None) for i in range(piece.count)]
    return found


def submitted(made_bags, made_hosts) -> Hand:
    hand = Hand(compile_policies)
    for number, (count, classes, texts, priority) in enumerate(made_bags):
        if "Rank" in texts:
            texts = {**texts, "Rank": f"({texts['Rank']}) + {number} * 0.001"}
        hand.submit_mixed(count, classes, policies=texts, priority=priority + number / 100)
    for number, ad in enumerate(made_hosts):
        hand.ask(f"h{number}", want=0, slots=4, **ad)
    return hand


@settings(deadline=None, max_examples=150)
@given(
    st.lists(bags, min_size=1, max_size=6), st.lists(hosts, min_size=1, max_size=4), st.sampled_from([0, 16]), st.data()
)
def test_the_matcher_gives_what_trying_everything_gives(made_bags, made_hosts, few, data):
    with patch.object(ranking, "FEW", few):  # Bags as a crowd, and one by one.
        ask_and_compare(submitted(made_bags, made_hosts), made_bags, made_hosts, data)


def ask_and_compare(hand, made_bags, made_hosts, data):
    for _ in range(6):
        name = f"h{data.draw(st.integers(0, len(made_hosts) - 1))}"
        host = hand.state.host(name)
        # No more than fits into the slots: what is held ready beyond them depends on how many hosts there are.
        want = data.draw(st.integers(0, max(0, host.slots - len(host.held))))
        expected = by_trying_everything(hand, name, want)
        chosen = Matcher(hand.state, host, hand.t, hand.engine.policies).choose(want) if want else []
        assert sorted(expanded(hand, chosen), key=str) == sorted(expected, key=str)
        if keys := hand.tasks(name, want=want, slots=4):
            hand.report(name, *keys[: data.draw(st.integers(0, len(keys)))])
        if data.draw(st.booleans()):
            bag = hand.state.bags[data.draw(st.integers(1, len(made_bags)))]
            changed = JobRules("bag", policies=data.draw(policies), priority=bag.rules.priority)
            if "Rank" not in changed.policies:
                hand.step(JobChanged(hand.t, bag.number, changed))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(ending, ending, bags), min_size=2, max_size=5), st.lists(hosts, min_size=3, max_size=5))
def test_replicas_are_handed_out_in_the_order_of_their_bags_ranks(made_bags, made_hosts):
    hand = submitted(made_bags, made_hosts)
    for want in (4, 4, 2):
        for number in range(len(made_hosts)):
            host = hand.state.host(f"h{number}")
            want = min(want, host.slots - len(host.held))
            expected = by_trying_everything(hand, host.name, want)
            chosen = Matcher(hand.state, host, hand.t, hand.engine.policies).choose(want) if want else []
            assert sorted(expanded(hand, chosen), key=str) == sorted(expected, key=str)
            hand.tasks(host.name, want=want, slots=4)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 30))
def test_bags_of_equal_rank_share_what_a_host_wants_as_evenly_as_their_tasks_allow(counts, want):
    hand = Hand()
    for count in counts:
        hand.submit(count)
    jobs = [key[0] for key in hand.tasks("h", want=want, slots=40)]
    got = [jobs.count(number) for number in range(1, len(counts) + 1)]
    assert sum(got) == min(want, sum(counts))
    for mine, count in zip(got, counts, strict=True):
        assert mine == count or mine >= max(got) - 1
