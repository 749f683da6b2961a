"""Compiled policies answer the core: conditions, numbers, defaults, sharing."""

from __future__ import annotations

import pytest

from windfall.core.matching.policy import NOTHING, BagPolicy, DefaultPolicy, Verdict
from windfall.errors import BadInput
from windfall.policy import ClassAdPolicy, compile_policies
from windfall.policy import evaluate as evaluation
from windfall.policy.evaluate import MATCH_LIMIT, Special, _flattened, expression

HOST = {"Name": "node1", "Cpus": 4, "Memory": 16_384, "Slots": 4, "ErrorRate": 0.05, "Pool": "local", "Speed": 1.5}
BAG = {"Name": "fit", "Priority": 3.0, "Tail": False, "JobsLeft": 10}
QUEUE = {"BOTsInQueue": 2}
POOL = {"Name": "local", "Kind": "local", "Price": 0.0}


def match(texts: dict[str, object], host=HOST, bag=BAG, now: float = 0.0, **job: object) -> Verdict:
    policy: BagPolicy = compile_policies(texts)
    return policy.match(host, bag, QUEUE, POOL, now, {"NumberOfReplicas": 0, **job})


def test_a_bag_without_policies_takes_any_host_by_priority_up_to_its_slots():
    assert match({}) == Verdict(True, 3.0, 4)
    assert isinstance(compile_policies({}), DefaultPolicy)


def test_a_policy_that_is_not_given_has_the_default_of_a_bag_without_any():
    assert match({"JobRequirements": "Host.Memory > 1"}) == match({})


@pytest.mark.parametrize(
    ("requirements", "matches"),
    [
        ("Host.Memory >= 8192", True),
        ("Host.Memory >= 8192 && Host.ErrorRate < 0.01", False),
        ("host.memory >= 8192", True),
        ("Host.NumCpus == 4", True),
        ("!Tail", True),
        ("BOT.Tail", False),
        ("Queue.BOTsInQueue == 2 && Grid.Name == Pool.Name", True),
        ('member(Host.Pool, {"local", "cloud"})', True),
        ("NumberOfReplicas == 0 && Job.NumberOfReplicas == 0", True),
        ("Now >= 100", False),
    ],
)
def test_conditions_see_host_job_bag_queue_pool_and_now(requirements, matches):
    assert match({"JobRequirements": requirements}).matches is matches


@pytest.mark.parametrize("condition", ["Host.gpu", "!Host.gpu", "Host.gpu == 1", "Host.gpu < 1 || false", "Host.Name"])
def test_undefined_error_and_texts_are_never_true(condition):
    policy = compile_policies({"JobRequirements": condition, "GridPolicy": "Pool.Limit == 1"})
    assert policy.match(HOST, BAG, QUEUE, POOL, 0.0).matches is False
    assert policy.wants_pool(BAG, POOL, 0.0) is False


def test_a_number_is_no_condition():
    assert match({"JobRequirements": "Host.Cpus"}).matches is False


def test_a_missing_attribute_is_not_looked_for_in_an_enclosing_ad():
    # ClassAds would find the asking host's memory here: the replica says nothing about its own.
    replica = {"NumberOfReplicas": 1, "Replica1": {"SentTime": 5.0}}
    policy = compile_policies({"ReplicationRequirements": "Job.Replica1.Host.Memory > 0"})
    assert policy.match_replica(HOST, replica, BAG, QUEUE, POOL, 0.0) is False


def test_a_replica_needs_both_requirements():
    job = {"NumberOfReplicas": 1, "Replica1": {"SentTime": 100.0, "Host": {"Name": "old", "ErrorRate": 0.3}}}
    texts = {
        "JobRequirements": "Host.Memory >= 8192",
        "ReplicationRequirements": "Job.Replica1.Host.ErrorRate > 0.1 && Now - Job.Replica1.SentTime > 60",
    }
    policy = compile_policies(texts)
    assert policy.match_replica(HOST, job, BAG, QUEUE, POOL, 200.0)
    assert not policy.match_replica(HOST, job, BAG, QUEUE, POOL, 130.0)
    assert not policy.match_replica({**HOST, "Memory": 1}, job, BAG, QUEUE, POOL, 200.0)


def test_without_a_replication_policy_replicas_wait_for_the_tail():
    policy = compile_policies({"Rank": "1"})
    job = {"NumberOfReplicas": 1}
    assert not policy.match_replica(HOST, job, BAG, QUEUE, POOL, 0.0)
    assert policy.match_replica(HOST, job, {**BAG, "Tail": True}, QUEUE, POOL, 0.0)


@pytest.mark.parametrize(
    ("rank", "value"),
    [("7", 7.0), ("BOT.Priority * Host.Speed", 4.5), ('Host.Pool == "local"', 1.0), ("Host.gpu", 0.0), ("1.0/0", 0.0)],
)
def test_a_rank_is_a_number_and_nothing_where_it_is_undefined(rank, value):
    policy = ClassAdPolicy({"Rank": rank})
    assert policy.match(HOST, BAG, QUEUE, POOL, 0.0).rank == value


@pytest.mark.parametrize(
    ("concurrency", "value"), [("2 * Host.Cpus", 8), ("2.9", 2), ("Host.gpu", 4), ("Host.Cpus - 9", 0)]
)
def test_a_concurrency_is_a_whole_number_and_the_default_where_it_is_undefined(concurrency, value):
    assert match({"Concurrency": concurrency}).concurrency == value


@pytest.mark.parametrize(
    ("deadline", "seconds"),
    [("600", 600.0), ("Concurrency * 2000", 16_000.0), ("Host.gpu", None), ("Host.Cpus - 4", None), ("Rank", 3.0)],
)
def test_a_deadline_may_use_other_policies_and_is_none_where_it_is_not_positive(deadline, seconds):
    policy = compile_policies({"Deadline": deadline, "Concurrency": "2 * Host.NumCpus"})
    assert policy.deadline_s(HOST, NOTHING, BAG, POOL, 0.0) == seconds


def test_grid_policy_chooses_pools():
    policy = compile_policies({"GridPolicy": 'Grid.Kind != "boinc" && Pool.Price < 0.1'})
    assert policy.wants_pool(BAG, POOL, 0.0)
    assert not policy.wants_pool(BAG, {"Name": "spot", "Kind": "ec2", "Price": 0.2}, 0.0)


def test_tags_are_seen_in_any_case_and_under_their_tag_name():
    host = {**HOST, "GPU": "a100", "Tag_name": "mine"}
    for text in ('Host.gpu == "a100"', 'Host.Tag_GPU == "a100"', 'Host.tag_name == "mine" && Host.Name == "node1"'):
        assert match({"JobRequirements": text}, host=host).matches, text
    # A tag that is not there is not the attribute of the same name.
    assert not match({"JobRequirements": "Host.Tag_Memory > 0"}).matches


def test_attributes_of_the_bag_are_seen_bare_or_under_bot():
    bag = {**BAG, "project": "x", "limits": {"low": 3}}
    text = 'project == "x" && BOT.Project == "x" && BOT.limits.low == 3'
    policy = compile_policies({"JobRequirements": text}, {"BOT": ["project", "limits"]})
    assert policy.match(HOST, bag, QUEUE, POOL, 0.0).matches


def test_lists_are_seen_although_they_cannot_be_remembered():
    assert match({"JobRequirements": 'member("gpu", Host.features)'}, host={**HOST, "features": ["gpu"]}).matches
    assert not match({"JobRequirements": 'member("gpu", Host.features)'}, host={**HOST, "features": []}).matches


def test_values_that_are_equal_in_python_and_different_in_classads_are_kept_apart():
    # 1 == 1.0 == True is one key of a dict; 1/2 is 0, 1.0/2 is 0.5, and true is a condition where 1 is none.
    half = compile_policies({"Rank": "Host.Speed / 2"})
    ranks = [half.match({**HOST, "Speed": speed}, BAG, QUEUE, POOL, 0.0).rank for speed in (1, 1.0, 1)]
    assert ranks == [0.0, 0.5, 0.0]
    flag = compile_policies({"JobRequirements": "Host.flag"})
    flags = [flag.match({**HOST, "flag": value}, BAG, QUEUE, POOL, 0.0).matches for value in (1, True, 1.0, True)]
    assert flags == [False, True, False, True]


def test_a_changed_ad_changes_the_answer():
    policy = compile_policies({"JobRequirements": "BOT.JobsLeft > 5"})
    bag = dict(BAG)
    assert policy.match(HOST, bag, QUEUE, POOL, 0.0).matches
    bag["JobsLeft"] = 5
    assert not policy.match(HOST, bag, QUEUE, POOL, 0.0).matches


def test_bags_with_the_same_text_and_hosts_that_look_the_same_share_one_evaluation(monkeypatch):
    evaluated = []
    evaluate = evaluation.Expression._evaluate

    def counting(self, values):
        evaluated.append(self.text)
        return evaluate(self, values)

    monkeypatch.setattr(evaluation.Expression, "_evaluate", counting)
    policies = [compile_policies({"JobRequirements": "Host.Memory >= 4242", "Rank": str(i)}) for i in range(100)]
    evaluated.clear()
    for name in ("a", "b", "c"):
        for i, policy in enumerate(policies):
            assert policy.match({**HOST, "Name": name}, BAG, QUEUE, POOL, 0.0).rank == i
    assert evaluated == ["Host.Memory >= 4242"]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_CACHED_VALUES", 10)
    policy = compile_policies({"JobRequirements": "Host.Memory % 2 == 0"})
    for memory in range(100):
        assert policy.match({**HOST, "Memory": memory}, BAG, QUEUE, POOL, 0.0).matches is (memory % 2 == 0)
        assert len(evaluation._remembered) <= max(10, 1) or memory == 0


def test_a_number_too_large_for_classads_does_not_stop_a_match():
    assert match({"JobRequirements": "Host.Memory > 1"}, host={**HOST, "Memory": 2**80}).matches


def test_policies_are_named_as_files_and_options_name_them():
    policy = compile_policies({"require": "true", "rank": 2, "replication-requirements": False, "grid_policy": True})
    assert policy.expressions == {
        "JobRequirements": "true",
        "Rank": "2",
        "ReplicationRequirements": "false",
        "GridPolicy": "true",
    }


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        ({"Rnk": "1"}, "there is no policy 'Rnk'", "did you mean Rank?"),
        ({"Rank": ["1"]}, "the policy Rank is no text", "Rank ="),
        ({"require": "true", "JobRequirements": "true"}, "JobRequirements is given twice", "keep one"),
        ({"Rank": "1 +"}, "Rank, column 4: a value is missing", ""),
    ],
)
def test_texts_that_do_not_compile_are_bad_input(texts, message, hint):
    with pytest.raises(BadInput) as caught:
        compile_policies(texts)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.code == "bad-policy"


@pytest.mark.parametrize(
    "text",
    [
        'regexp("(a+)+$", Job.x)', 'regexp(Job.p, Job.x)', 'regexp(strcat("(a+", ")+$"), Job.x)',
        'regexpMember("(a+)+$", {Job.x, Job.x})', 'isError(regexps("(a+)+$", Job.x, "y"))',
        'regexp("(*LIMIT_MATCH=99999999)(a+)+$", Job.x)', 'isError(replaceAll((Job.p), Job.x, "y"))',
    ],
)  # fmt: skip
def test_a_pattern_that_backtracks_without_end_gives_up_early(text):
    """Processor time of a hundred evaluations is that of one without the limit: 130 ms."""
    flat = _flattened(text)
    assert flat.count(MATCH_LIMIT) == 1
    made = expression(text, {})
    for length in range(100):
        job = {"x": "a" * (40 + length) + "b", "p": "(a+)+$"}
        assert made.value(({}, job, {}, {}, {}, 0.0)) in (Special.ERROR, True, False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('regexp("^node", Host.Name)', True), ('regexp("^NODE", Host.Name, "i")', True),
        ('regexps("([a-z]+)([0-9]+)", Host.Name, "\\\\2-\\\\1") == "12-node"', True),
        ('replaceAll("[0-9]", Host.Name, "") == "node"', True), ('regexpMember("e1", {"x", Host.Name})', True),
        ('regexp(Host.Missing, Host.Name) is undefined', True), ('regexp(strcat("^", "no"), (Host.Name))', True),
    ],
)  # fmt: skip
def test_patterns_match_as_they_are_written(text, value):
    assert expression(text, {}).value(({"Name": "node12"}, {}, {}, {}, {}, 0.0)) is value
