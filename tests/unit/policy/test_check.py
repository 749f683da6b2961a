"""What `check` refuses, what it warns about, and where it points."""

from __future__ import annotations

import re

import pytest
from classad2 import ExprTree, Value

from windfall.core.matching.policy import POLICIES
from windfall.policy import check_policies
from windfall.policy.check import check_one
from windfall.policy.names import ATTRIBUTES, FUNCTIONS, REFUSED, REPLICA_ATTRIBUTES, resolve


def findings(text: str, policy: str = "JobRequirements", **extra: list[str]):
    return check_policies({policy: text}, extra)


@pytest.mark.parametrize(
    ("text", "where", "message", "hint"),
    [
        ("Host.Memory >=", "column 15", "a value is missing after '>='", ""),
        ("Host.Memory >= 8 GB", "column 18", "an operator is missing before 'GB'", "numbers have no units"),
        ("Host.Memory = 8", "column 13", "an operator is missing before '='", "equality is written =="),
        ("true and false", "column 6", "an operator is missing before 'and'", "&& for and"),
        ("(Host.Memory > 1", "column 17", "')' is missing", ""),
        ("true ? 1", "column 9", "':' is missing", ""),
        ('Host.Name == "x', "column 14", "never closed", ""),
        ("Host.Memory > 1 #", "column 17", "'#' means nothing here", ""),
        ("Host. > 1", "column 7", "a name is missing after '.'", ""),
        ("regexp(Host.Name, / * myhost * /)", "column 19", "between slashes", 'regexp("pattern", Host.Name)'),
        ("Host.Memory >\n  0100", "line 2, column 3", "begins with a zero", ""),
        ("Host.Memory >= 819. ", "column 16", "no digit behind its point", "5.0"),
        ("", "column 1", "a value is missing", ""),
        ("(" * 400 + "true" + ")" * 400, "column", "too many parentheses", ""),
        (" && ".join(["true"] * 600), "column 1", "more than 500", "member("),
    ],
)
def test_a_text_that_is_no_expression_is_an_error_at_its_column(text, where, message, hint):
    (finding,) = findings(text)
    assert finding.level == "error"
    assert finding.where.startswith(where)
    assert message in finding.message
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("Host.Memry > 1", "Host.Memory"),
        ("Host.ErorRate > 1", "Host.ErrorRate"),
        ("BOT.JobLeft > 1", "BOT.JobsLeft"),
        ("JobLeft > 1", "BOT.JobsLeft"),
        ("Memory > 1", "Host.Memory"),
        ("Hots.Memory > 1", "Host.Memory"),
        ("TARGET.Memory > 1", "Host.Memory"),
        ("MY.Tail", "BOT.Tail"),
        ("Job.Replica1.Host.ErorRate > 1", "Job.Replica1.Host.ErrorRate"),
        ("Job.Replica1.Hst.ErrorRate > 1", "Job.Replica1.Host.ErrorRate"),
        ("Job.Replica2.Hst.ErorRate > 1", "Job.Replica2.Host.ErrorRate"),
        ("Job.Repl3.Name == 1", "Job.Replica3.Name"),
        ("Host.Memory.Size == 1", "Host.Memory"),
        ("Grid.Nmae == 1", "Grid.Name"),
        ("Pool.Nmae == 1", "Pool.Name"),
        ("Host.Nmae == 1", "Host.Name"),
        ("MY.Memory > 1", "Job.Memory"),
        ("TARGET.JobsDone > 1", "BOT.JobsDone"),
        ("Replica1.Nme == 1", "Job.Replica1.Name"),
        ("Hots.Memry > 1", "Host.Memory"),
        ("Gird.Nme == 1", "Grid.Name"),
        ("Job.NumberOfReplica == 1", "Job.NumberOfReplicas"),
        ("Concurency > 1", "Concurrency"),
        ("BOT.Dedline > 1", "Deadline"),
        ("Replica1.Host.ErrorRate > 1", "Job.Replica1.Host.ErrorRate"),
    ],
)
def test_a_name_close_to_a_known_one_is_an_error_with_that_name(text, near):
    error = next(finding for finding in findings(text) if finding.level == "error")
    assert f"did you mean {near}?" in error.hint
    assert error.offset == 0


def test_a_tag_is_offered_only_where_one_could_stand():
    (finding,) = findings("Host.Memory.Size == 1")
    assert finding.hint == "did you mean Host.Memory?"


def test_a_name_close_to_no_known_one_is_a_warning_because_it_may_be_a_tag():
    (finding,) = findings("true && Host.gpu > 1")
    assert (finding.level, finding.where) == ("warning", "column 9")
    assert "does not set Host.gpu" in finding.message


def test_a_tag_of_a_replicas_host_may_be_named_like_one_of_the_asking_host():
    text = "Job.Replica1.Host.rack != Host.rack"
    found = findings(text, policy="ReplicationRequirements")
    assert [(finding.level, finding.offset) for finding in found] == [("warning", 0), ("warning", 26)]
    assert findings(text, policy="ReplicationRequirements", Host=["rack"]) == []


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("Queue.Load > 1", "Queue.BOTsInQueue"),
        ("Job.Duration > 1", "Job."),
        ("Pool.zzz == 1", "Pool."),
        ("BOT.colour == 1", "BOT.Owner"),
        ("wanted == 1", "BOT.Owner"),
        ("Job.Replica1.Owner == 1", "Job.Replica1.Name"),
        ("BOT.Host.Memory > 1", "Host.Memory"),
        ("Job.Host.Memory > 1", "Host.Memory"),
        ("Host.load.short > 1", "Host."),
    ],
)
def test_an_attribute_that_never_exists_is_refused_with_the_nearest_that_does(text, nearest):
    (finding,) = findings(text, policy="Deadline")
    assert (finding.level, finding.offset) == ("error", 0)
    assert "there is no attribute" in finding.message
    assert f"the nearest is {nearest}" in finding.hint


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('Host.Tags.disk == "ssd"', "Host.Tag_disk"),
        ("Host.tag.Disk =?= 1", "Host.Tag_Disk"),
        ("Job.Replica1.Host.Tags.rack == 2", "Job.Replica1.Host.Tag_rack"),
    ],
)
def test_tags_written_as_an_ad_of_their_own_are_refused_with_the_attribute_that_is_meant(text, meant):
    (finding,) = findings(text, policy="Deadline")
    assert (finding.level, finding.hint) == ("error", f"did you mean {meant}?")


def test_a_policy_that_is_asked_before_there_is_a_host_is_not_told_to_name_one():
    (finding,) = findings("Grid.Host.Memory > 1", policy="GridPolicy")
    assert finding.level == "error" and finding.hint.startswith("the nearest is Grid.")


def slips(name):
    """The name with a letter left out, doubled, and changed over with the next, at each place but the ends."""
    for at in range(1, len(name) - 1):
        yield name[:at] + name[at + 1 :]
        yield name[: at + 1] + name[at:]
        yield name[:at] + name[at + 1] + name[at] + name[at + 2 :]


LONG = [a for a in (*ATTRIBUTES, *REPLICA_ATTRIBUTES) if len(a.name) >= 5]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("attribute", LONG, ids=lambda a: f"{a.ad}.{a.name}")
def test_a_slip_of_the_pen_in_a_longer_name_is_refused_in_every_policy_with_a_name_that_exists(attribute, policy):
    for wrong in slips(attribute.name):
        path = (*attribute.ad.split("."), wrong)
        if resolve(path).known:
            continue
        errors = [f for f in findings(f"{'.'.join(path)} == 1", policy=policy) if f.level == "error"]
        assert errors, f"{'.'.join(path)} is taken for a tag"
        named = re.match(r"(?:did you mean|the nearest is) ([\w.]+)", errors[0].hint)
        assert named and resolve(tuple(named[1].split("."))).known, errors[0].hint


def test_a_declared_attribute_is_known_and_so_is_anything_that_says_tag():
    assert findings("Host.memry > 1 && Host.gpu > 1", Host=["memry", "GPU"]) == []
    assert findings("Host.Tag_memry > 1") == []
    assert findings("project == 1 && BOT.project == 1 && limits.low == 1", BOT=["project", "limits"]) == []


@pytest.mark.parametrize("function", sorted(REFUSED))
def test_functions_that_would_not_give_the_same_answer_again_are_refused_with_an_alternative(function):
    (finding,) = findings(f"1 < {function}()", policy="JobRequirements")
    assert finding.level == "error"
    assert "is refused" in finding.message
    assert finding.offset == 4
    assert finding.hint


def test_the_clock_and_chance_are_refused_in_any_case_with_now_and_hash():
    assert "Now" in findings("TIME() > 3")[0].hint
    assert "Job.Hash" in findings("Random(3) > 3")[0].hint


def test_an_unknown_function_is_an_error_with_the_nearest_one():
    assert "did you mean regexp()?" in findings('regex("a", Host.Name)')[0].hint


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_allowed_function_exists_in_the_library(function):
    arguments = ["1", "1, 2", '"a", "b"', '"a", "b", "c"', '"a", 1', "{1, 2}", "1, {1}", '"a", {"a"}', '"<", {1}, 2']
    values = [ExprTree(f"{function}({given})").eval() for given in [*arguments, "true, 1, 2"]]
    assert any(value is not Value.Error for value in values)
    assert function.lower() not in REFUSED


@pytest.mark.parametrize(
    ("policy", "text", "level"),
    [
        ("JobRequirements", "5", "error"),
        ("JobRequirements", '"yes"', "error"),
        ("JobRequirements", "false", "warning"),
        ("GridPolicy", "undefined", "error"),
        ("Rank", '"high"', "error"),
        ("Concurrency", "0", "error"),
        ("Deadline", "-1", "error"),
        ("GridPolicy", "Host.Memory > 1", "error"),
        ("GridPolicy", "Job.NumberOfReplicas > 1", "error"),
        ("JobRequirements", "Job.Index < 3 || Host.Speed > 1", "warning"),
        ("Deadline", "600 * Job.Attempts", "warning"),
        ("JobRequirements", "Host.Memory == undefined", "warning"),
        ("JobRequirements", "Host", "error"),
        ("JobRequirements", "Job", "error"),
        ("Rank", "[a = 1].a", "error"),
    ],
)
def test_what_parses_and_cannot_work_is_said(policy, text, level):
    assert [finding.level for finding in findings(text, policy=policy)] == [level]


@pytest.mark.parametrize(
    "text",
    [
        "Job.Losses < 3",
        "!(Job.Losses > 3)",
        "Job.Losses < 3 && Host.Memory > 5",
        "Host.Memory > 5 && (Job.Losses < 3 || false)",
        "Job.Losses > 3 ? Host.Speed > 1 : true",
        "(Job.Losses ?: Job.Failures) < 2",
    ],
)
def test_a_requirement_that_no_task_meets_before_it_has_replicas_is_refused(text):
    (finding,) = [finding for finding in findings(text) if finding.level == "error"]
    assert "Job.Losses does not exist before a replica" in finding.message
    assert finding.hint.startswith("write Job.Losses =?= undefined || ...")
    assert finding.hint.endswith("or name Host.LossRate instead")


@pytest.mark.parametrize(
    "text",
    [
        "Job.Losses =?= undefined || Job.Losses < 3",
        "isUndefined(Job.Losses) || Job.Losses < 3",
        "(Job.Losses ?: 0) < 3",
        "Job.Losses < 3 || Host.Speed > 1",
        "!(Job.Losses < 3 && Host.Speed > 1)",
        "NumberOfReplicas == 0 || Job.Replica1.Host.Name != Host.Name",
    ],
)
def test_a_requirement_that_allows_for_tasks_without_replicas_is_not_refused(text):
    assert {finding.level for finding in findings(text)} == {"warning"}


@pytest.mark.parametrize("policy", ["Rank", "Concurrency"])
@pytest.mark.parametrize(("name", "instead"), [("Losses", "Host.LossRate"), ("Hash", "Job.NumberOfReplicas, Job.Cpus")])
def test_a_tasks_own_attribute_is_refused_where_it_never_exists(policy, name, instead):
    (finding,) = findings(f"2 * Job.{name}", policy=policy)
    assert (finding.level, finding.offset) == ("error", 4)
    assert f"Job.{name} never exists here" in finding.message
    assert f"name {instead}" in finding.hint


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_may_not_depend_on_itself(policy):
    other = "Rank" if policy != "Rank" else "Deadline"
    found = check_policies({policy: f"{other} > 1", other: f"BOT.{policy} ? 1 : 2"})
    assert any(finding.policy == policy and "depends on itself" in finding.message for finding in found)


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda attribute: f"{attribute.ad}.{attribute.name}")
def test_the_example_of_every_attribute_is_a_policy_without_errors(attribute):
    policy = "GridPolicy" if attribute.ad == "Pool" else "ReplicationRequirements"
    assert [finding for finding in findings(attribute.example, policy=policy) if finding.level == "error"] == []
    assert resolve((attribute.ad, attribute.name.upper())).steps == (attribute.name,)


def nested(function: str, times: int) -> str:
    text = '"aaaaaaaaaa"'
    for _ in range(times):
        text = function.format(text)
    return f"size({text}) > 1"


@pytest.mark.parametrize(
    "text",
    [
        nested('replaceAll("a", {}, "aaaaaaaaaa")', 9),
        nested('regexps("(a*)", {}, "\\\\1\\\\1\\\\1\\\\1")', 30),
        nested("join({}, {{1,1,1,1,1,1,1,1,1,1}})", 9),
        f'size(replaceAll("a", Job.x, "{"y" * 10_000}")) > 1',
        "size(replaceAll(Job.p, Job.x, Job.y)) > 1",
        'size(replaceAll("a", string(Rank), "aaaa")) > 1',
    ],
)
def test_a_policy_that_could_fill_the_memory_is_refused_before_it_is_evaluated(text):
    """Nine nested replaceAll() made ten billion characters on the server's loop."""
    [finding] = [each for each in check_one("JobRequirements", text, {"Job": "xyp"}) if each.level == "error"]
    assert "could make a text of more than" in finding.message


@pytest.mark.parametrize(
    "text",
    ['replaceAll("-", replaceAll("_", Host.Name, ""), "") == "x"', 'join(",", {"a", Host.Name}) != ""',
     'regexps("^([a-z]+).*", Host.Name, "\\\\1") == "node"'],
)  # fmt: skip
def test_what_people_write_with_texts_is_not_refused(text):
    assert [each for each in check_one("JobRequirements", text, {"Job": "xyp"}) if each.level == "error"] == []
