"""`windfall policy check` and `windfall policy test`, as a person and as a script use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windfall.bags.jobfile import read_job_file
from windfall.cli.policy import policy
from windfall.errors import BadInput

JOB = """
[job]
name = "fit"
command = "./fit {}"
range = "1-10"
priority = 2

[job.policies]
JobRequirements = '''
Host.Memory >= 8192
  && (!BOT.Tail || Host.ErrorRate < 0.01) && project == "x"'''
Rank = "BOT.Priority + Host.Speed"
Concurrency = "2 * Host.Cpus"
Deadline = "Concurrency * 2000"

[job.attributes]
project = "x"
"""
HOST = '{"name": "node7", "cpus": 4, "memory": 4096, "speed": 1.5}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "host.json").write_text(HOST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def windfall(*arguments: str) -> Result:
    return CliRunner().invoke(policy, arguments)


def refused(*arguments: str) -> BadInput:
    result = windfall(*arguments)
    assert isinstance(result.exception, BadInput), result.output
    return result.exception


def test_check_passes_a_job_file_and_knows_the_attributes_that_it_adds(folder):
    result = windfall("check", "job.toml")
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()] == [
        ["JobRequirements", "ok"],
        ["Rank", "ok"],
        ["Concurrency", "ok"],
        ["Deadline", "ok"],
    ]


def test_the_job_file_of_these_tests_is_a_job_file(folder):
    assert read_job_file(folder / "job.toml").job.policies["Concurrency"] == "2 * Host.Cpus"


def test_check_shows_every_error_under_its_column_and_ends_with_2():
    result = windfall("check", "Host.Memry >= 1 && time() > 3")
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert lines[2] == "    ^ error, column 1: Host.Memry is no known attribute"
    assert lines[5] == "                       ^ error, column 20: time() is refused in a policy"


def test_check_points_into_the_right_line_of_several():
    result = windfall("check", "Host.Memory > 1\n  && Host.Memry > 1")
    assert "      && Host.Memry > 1\n         ^ error, line 2, column 6" in result.output


def test_check_warns_of_an_unknown_name_unless_it_is_declared():
    assert "warning" in windfall("check", "Host.gpu > 1").output
    result = windfall("check", "Host.gpu > 1", "--attr", "Host.gpu")
    assert (result.exit_code, result.output) == (0, "JobRequirements  ok\n")


def test_check_takes_an_expression_as_the_policy_that_it_is_said_to_be():
    assert windfall("check", "2 * Host.Cpus", "--as", "concurrency").output == "Concurrency  ok\n"


def test_check_in_json_is_one_document():
    result = windfall("check", "Host.Memry > 1", "--json")
    document = json.loads(result.output)
    assert result.exit_code == 2
    assert document["ok"] is False
    assert document["policies"] == {"JobRequirements": "Host.Memry > 1"}
    (finding,) = document["findings"]
    assert finding.keys() == {"level", "policy", "offset", "where", "message", "hint"}


def test_test_shows_the_clause_that_decides(folder):
    result = windfall("test", "--bag", "job.toml", "--host", "host.json")
    assert result.exit_code == 0
    assert "JobRequirements          does not match" in result.output
    assert "no  Host.Memory >= 8192" in result.output
    assert "Host.Memory is 4096, 4096 short of 8192" in result.output
    assert "Deadline                 16000 s" in result.output
    assert "assumed: Host.ErrorRate = 0, BOT.Tail = false" in result.output


def test_test_in_json_has_the_verdict_and_each_clause(folder):
    result = windfall("test", "--bag", "job.toml", "--host", "host.json", "--set", "Host.Memory=9000", "--json")
    document = json.loads(result.output)
    assert {key: document[key] for key in ("matches", "rank", "concurrency", "deadline_s", "replica")} == {
        "matches": True,
        "rank": 3.5,
        "concurrency": 8,
        "deadline_s": 16_000.0,
        "replica": False,
    }
    requirements = document["policies"][0]
    assert [clause["ok"] for clause in requirements["clauses"]] == [True, True, True]
    assert document["assumed"] == {"Host.ErrorRate": 0.0, "BOT.Tail": False}


def test_test_takes_the_replicas_of_a_task_from_a_file_and_from_settings(folder):
    (folder / "rules.toml").write_text('ReplicationRequirements = "Job.Replica1.Host.ErrorRate > 0.1"')
    (folder / "job.json").write_text('{"Job": {"numberofreplicas": 1, "replica1": {"host": {"errorrate": 0.3}}}}')
    common = ("test", "--bag", "rules.toml", "--host", "host.json", "--json")
    assert json.loads(windfall(*common, "--job", "job.json").output)["replica"] is True
    assert json.loads(windfall(*common, "--set", "Job.Replica1.Host.ErrorRate=0.3").output)["replica"] is True
    assert json.loads(windfall(*common, "--set", "Job.Replica1.Host.ErrorRate=0.05").output)["replica"] is False


def test_a_job_file_without_policies_is_tested_with_the_defaults(folder):
    (folder / "plain.toml").write_text('[job]\ncommand = "x"\ndeadline = "2h"\n')
    document = json.loads(windfall("test", "--bag", "plain.toml", "--host", "host.json", "--json").output)
    assert document["matches"] is True
    assert all(outcome["is_default"] for outcome in document["policies"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "absent.toml"), "there is no file absent.toml"),
        (("check", "empty.toml"), "empty.toml is empty"),
        (("check", "plain.toml"), "plain.toml has no policies"),
        (("check", "broken.toml"), "broken.toml: "),
        (("check", "alone.toml"), "alone.toml: [policy] stands alone"),
        (("check", "typo.toml"), "there is no policy 'Rnk'"),
        (("check", "open.ad"), "open.ad, line 2, column 1"),
        (("check", "true", "--as", "Rnk"), "there is no policy 'Rnk'"),
        (("check", "true", "--attr", "gpu"), "--attr gpu: not an attribute"),
        (("test", "--bag", "job.toml"), "no host to test against"),
        (("test", "--bag", "job.toml", "--host", "absent.json"), "there is no file absent.json"),
        (("test", "--bag", "job.toml", "--host", "broken.json"), "broken.json, line 1, column 6"),
        (("test", "--bag", "job.toml", "--host", "list.json"), "list.json"),
        (("test", "--bag", "job.toml", "--host", "host.json", "--set", "Memory=1"), "--set Memory=1"),
        (("test", "--bag", "job.toml", "--host", "host.json", "--set", "Host.Name.x=1"), "--set Host.Name.x=1"),
    ],
)
def test_what_cannot_be_read_is_bad_input_with_its_place(folder, arguments, message):
    (folder / "empty.toml").write_text("\n")
    (folder / "plain.toml").write_text('[job]\ncommand = "x"\n')
    (folder / "broken.toml").write_text("Rank = Host.Speed\n")
    (folder / "alone.toml").write_text("[policy]\nRank = 1\n")
    (folder / "typo.toml").write_text("Rnk = 1\n")
    (folder / "open.ad").write_text("[ BOT = [ Rank = 1;\n")
    (folder / "broken.json").write_text('{"a":')
    (folder / "list.json").write_text("[1, 2]")
    assert message in refused(*arguments).message


@pytest.mark.parametrize("value", ['"never"', "null", "1e999", "NaN", "[]", "true"])
def test_a_host_whose_number_is_none_is_refused(folder, value):
    (folder / "host.json").write_text(f'{{"memory": 5, "cpus": {value}}}')
    said = refused("test", "--bag", "job.toml", "--host", "host.json").message
    assert "Host.Cpus = " in said and "not a number" in said
