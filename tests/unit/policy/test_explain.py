"""Why a host may not run a bag: the clause, the actual value, and by how much it misses."""

from __future__ import annotations

import pytest

from windfall.core.matching.policy import DefaultPolicy
from windfall.policy import compile_policies

HOST = {"Name": "spot-3", "Cpus": 4, "Memory": 4096, "ErrorRate": 0.22, "Pool": "cloud", "Blocked": False}
BAG = {"Name": "fit", "Tail": True, "Priority": 1.0}


def explain(text: str, **job: object):
    return compile_policies({"JobRequirements": text}).explain(HOST, BAG, job=job or None)


@pytest.mark.parametrize(
    ("text", "detail", "missing"),
    [
        ("Host.Memory >= 8192", "Host.Memory is 4096, 4096 short of 8192", 4096.0),
        ("8192 <= Host.Memory", "Host.Memory is 4096, 4096 short of 8192", 4096.0),
        ("Host.ErrorRate < 0.1", "Host.ErrorRate is 0.22, 0.12 above 0.1", pytest.approx(0.12)),
        ("Host.Cpus > 4", "Host.Cpus is 4, which must be more than that", 0.0),
        ('Host.Pool == "local"', 'Host.Pool is "cloud", not "local"', None),
        ('Host.Pool != "cloud"', 'Host.Pool is "cloud", which is excluded', None),
        ("Host.gpu >= 1", "Host.gpu is undefined", None),
        ("Host.Memory >= Job.Memory", "Host.Memory is 4096, and the other side is undefined", None),
        ("Host.Name > 3", 'Host.Name is "spot-3", which cannot be compared with 3', None),
        ("!BOT.Tail", "BOT.Tail is true", None),
        ('regexp("^node", Host.Name)', 'Host.Name is "spot-3"', None),
        ("BOT.Tail ? Host.Cpus > 8 : true", "Host.Cpus is 4, 4 short of 8", 4.0),
        ('Host.Pool == "local" || Host.Cpus >= 8', "nearest: Host.Cpus is 4, 4 short of 8", 4.0),
        (
            'Host.Pool == "local" && Host.gpu > 1 || Host.Cpus >= 8 && Host.Memory < 5000',
            "nearest: Host.Cpus is 4, 4 short of 8",
            4.0,
        ),
    ],
)
def test_a_clause_that_fails_says_what_it_saw_and_by_how_much_it_misses(text, detail, missing):
    failing = [clause for clause in explain(text) if not clause.ok]
    assert [clause.detail for clause in failing] == [detail]
    assert failing[0].missing == missing


def test_each_clause_of_a_conjunction_is_judged_by_itself():
    clauses = explain("Host.Cpus >= 2 && (Host.Memory >= 8192 && !Host.Blocked) && Host.gpu =?= undefined")
    assert [(clause.text, clause.ok) for clause in clauses] == [
        ("Host.Cpus >= 2", True),
        ("Host.Memory >= 8192", False),
        ("!Host.Blocked", True),
        ("Host.gpu =?= undefined", True),
    ]
    assert (clauses[1].attribute, clauses[1].actual, clauses[1].wanted) == ("Host.Memory", 4096, 8192)


def test_a_condition_chooses_the_side_that_is_explained():
    clauses = explain("!BOT.Tail ? true : Host.ErrorRate < 0.1 && Host.Cpus > 1")
    assert [(clause.text, clause.ok) for clause in clauses] == [
        ("!BOT.Tail", True),
        ("Host.ErrorRate < 0.1", False),
        ("Host.Cpus > 1", True),
    ]
    assert explain("Host.gpu ? true : true")[0].ok is False


def test_with_a_task_the_replication_policy_is_explained_too():
    policy = compile_policies({"JobRequirements": "true", "ReplicationRequirements": "Job.NumberOfReplicas < 2"})
    clauses = policy.explain(HOST, BAG, job={"NumberOfReplicas": 2})
    assert [(clause.policy, clause.ok) for clause in clauses] == [
        ("JobRequirements", True),
        ("ReplicationRequirements", False),
    ]


@pytest.mark.parametrize("policy", [DefaultPolicy(), compile_policies({"Rank": "1"})], ids=["default", "compiled"])
def test_the_default_replication_policy_is_explained_like_any_other(policy):
    assert policy.explain(HOST, BAG) == []
    (clause,) = policy.explain(HOST, {**BAG, "Tail": False}, job={"NumberOfReplicas": 1})
    assert (clause.policy, clause.ok, clause.attribute) == ("ReplicationRequirements", False, "BOT.Tail")
