"""What policies see of tasks, replicas and the queue."""

from __future__ import annotations

from tests.support.engine.hand import Hand
from windfall.core.events import TaskClass
from windfall.core.matching.ads import class_ad, job_ad, queue_ad
from windfall.policy import compile_policies


def test_a_task_and_its_replicas_have_the_names_that_commands_take():
    hand = Hand()
    bag = hand.submit(2, [TaskClass(executable="/bin/hostname")], name="fit")
    (key,) = hand.tasks("h")
    ad = job_ad(hand.state, bag, key[1], bag.attempts.live[key[1]], hand.t)
    assert (ad["Name"], ad["Executable"], ad["Replica1"]["Name"]) == ("fit.0", "/bin/hostname", "fit.0_1")


def test_the_program_is_known_of_tasks_without_replicas_and_undefined_where_tasks_differ():
    assert class_ad(TaskClass(executable="blastp"))["Executable"] == "blastp"
    assert "Executable" not in class_ad(TaskClass())


def test_a_policy_sees_the_program():
    hand = Hand(compile_policies)
    hand.submit(3, [TaskClass(executable="blastp")], policies={"JobRequirements": 'Job.Executable == "blastp"'})
    assert len(hand.tasks("h")) == 1


def test_a_bag_is_in_the_queue_until_it_is_finished_even_if_all_its_tasks_run():
    hand = Hand()
    hand.submit(1)
    hand.submit(1)
    assert queue_ad(hand.state)["BOTsInQueue"] == 2
    (key,) = hand.tasks("h")
    assert queue_ad(hand.state)["BOTsInQueue"] == 2
    hand.report("h", key)
    assert queue_ad(hand.state)["BOTsInQueue"] == 1
