"""Memory: a task that dies of too little gets more, and a request far beyond the peak is named."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import JobRetried, Key, Result, ResultsReported, TaskClass
from windfall.core.explain.memory import memory_of
from windfall.core.state.snapshot import load, save
from windfall.server.queries.status import recovered
from windfall.wire.messages import CAUSES

MIB = 1 << 20


def report(hand: Hand, host: str, key: Key, cause: str, rss_mb: int) -> None:
    result = Result(*key, CAUSES.index(cause), 0 if cause == "done" else None, hand.t - 1, hand.t, 1.0, rss_mb * MIB)
    hand.step(ResultsReported(hand.t, host, [result]))


def test_a_task_that_dies_of_memory_gets_twice_as_much_up_to_what_a_host_has():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB, max_failures=2)])
    got = []
    for _ in range(4):
        (key,) = hand.tasks("h", memory_mb=500)
        got.append(bag.memory_for(*key[1:]) // MIB)
        assert hand.state.host("h").memory_held == got[-1] * MIB
        report(hand, "h", key, "oom", rss_mb=got[-1])
    assert got == [100, 200, 400, 500]
    assert hand.state.host("h").memory_held == 0


def test_more_memory_is_not_charged_to_the_task_nor_to_the_host_until_the_largest_host_was_too_small():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB, max_failures=2)])
    for expected in (0, 0, 0, 1, 2):
        (key,) = hand.tasks("h", memory_mb=500)
        report(hand, "h", key, "oom", rss_mb=90)
        assert bag.columns.failures[0] == expected
        hand.t += 3600.0
    assert bag.state == "failed" and bag.progress.grown == [0]
    assert save(load(save(hand.state))) == save(hand.state)


def test_a_host_is_not_blamed_for_a_task_that_asked_for_too_little():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB)])
    (key,) = hand.tasks("a", memory_mb=4096)
    report(hand, "a", key, "oom", rss_mb=100)
    (again,) = hand.tasks("b", memory_mb=4096)
    report(hand, "b", again, "done", rss_mb=150)
    assert bag.state == "done"
    assert hand.state.host("a").record.failed == 0 and hand.state.host("a").record.error_rate == 0


def test_a_task_that_was_done_with_more_memory_is_among_those_that_failed_at_first():
    hand = Hand()
    bag = hand.submit(2, [TaskClass(memory_bytes=100 * MIB)])
    (key,) = hand.tasks("h", memory_mb=4096)
    report(hand, "h", key, "oom", rss_mb=100)
    while keys := hand.tasks("h", memory_mb=4096):
        report(hand, "h", keys[0], "done", rss_mb=50)
    assert bag.state == "done" and recovered(bag, 10) == [key[1]]


def test_where_no_host_says_how_much_memory_it_has_death_by_memory_is_charged():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB, max_failures=2)])
    for expected in (1, 2):
        (key,) = hand.tasks("h")
        report(hand, "h", key, "oom", rss_mb=100)
        assert bag.columns.failures[0] == expected
        hand.t += 3600.0
    assert bag.state == "failed"


def test_a_task_that_may_fail_once_is_not_tried_again_with_more_memory():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB, max_failures=1)])
    (key,) = hand.tasks("h", memory_mb=4096)
    report(hand, "h", key, "oom", rss_mb=100)
    assert bag.state == "failed" and bag.columns.failures[0] == 1


def test_what_the_class_has_taken_is_the_least_that_the_next_attempt_gets():
    hand = Hand()
    bag = hand.submit(2, [TaskClass(memory_bytes=100 * MIB)])
    large, small = hand.tasks("h", want=2, slots=2, memory_mb=4096)
    report(hand, "h", large, "done", rss_mb=800)
    report(hand, "h", small, "oom", rss_mb=100)
    (again,) = hand.tasks("h", slots=2)
    assert bag.memory_for(*again[1:]) == 1000 * MIB
    assert save(load(save(hand.state))) == save(hand.state)
    report(hand, "h", again, "done", rss_mb=700)
    assert bag.progress.memory == {}


def test_a_job_may_forbid_it_and_one_that_grows_by_attempt_grows_as_it_says():
    for rules, expected in ((TaskClass(memory_bytes=100 * MIB, fixed_memory=True), 100),
                            (TaskClass(memory_bytes=100 * MIB, memory_per_attempt=True), 200)):  # fmt: skip
        hand = Hand()
        bag = hand.submit(1, [rules])
        (key,) = hand.tasks("h", memory_mb=4096)
        report(hand, "h", key, "oom", rss_mb=100)
        (again,) = hand.tasks("h")
        assert bag.memory_for(*again[1:]) == expected * MIB


def test_a_retry_of_a_task_that_failed_for_want_of_memory_gets_more_than_was_too_little():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB, max_failures=1)])
    (key,) = hand.tasks("h", memory_mb=4096)
    report(hand, "h", key, "oom", rss_mb=100)
    assert bag.state == "failed"
    hand.step(JobRetried(hand.t, bag.number))
    (again,) = hand.tasks("h")
    assert bag.memory_for(*again[1:]) == 200 * MIB


def test_other_failures_get_no_more_memory():
    hand = Hand()
    bag = hand.submit(1, [TaskClass(memory_bytes=100 * MIB)])
    (key,) = hand.tasks("h", memory_mb=4096)
    report(hand, "h", key, "exit", rss_mb=100)
    (again,) = hand.tasks("h")
    assert bag.memory_for(*again[1:]) == 100 * MIB


def test_a_request_far_beyond_the_peak_is_named_with_what_would_do():
    hand = Hand()
    bag = hand.submit(20, [TaskClass(memory_bytes=4096 * MIB)])
    for _ in range(12):
        (key,) = hand.tasks("h")
        report(hand, "h", key, "done", rss_mb=200)
    (row,) = memory_of(bag)
    assert (row["asked_bytes"], row["peak_bytes"], row["attempts"]) == (4096 * MIB, 200 * MIB, 12)
    assert "far too large" in row["because"] and row["try"] == f"windfall change {bag.number} --memory 300M"


def test_attempts_that_only_fail_do_not_say_that_a_request_is_too_large():
    hand = Hand()
    bag = hand.submit(20, [TaskClass(memory_bytes=4096 * MIB)])
    for _ in range(12):
        (key,) = hand.tasks("h")
        report(hand, "h", key, "exit", rss_mb=2)
        hand.t += 3600.0  # a host on which all fails waits a while
    (row,) = memory_of(bag)
    assert row["attempts"] == 12 and (row["because"], row["try"]) == ("", "")
