"""What a job says about renting machines: in a job.toml, on the command line, and what a server makes of it."""

from __future__ import annotations

import pytest

from windfall.bags.settings import Settings
from windfall.bags.submission import Request, read_job
from windfall.client import Client
from windfall.errors import BadInput
from windfall.server.http.submission import classes_of, rules_of

JOB = """
[job]
command = "./sim {}"
range = "1-3"
deadline = "35m"
pools = ["cloud"]
planner = "hads"
confidence = 0.99
estimate = "90s"
"""


def read(tmp_path, text: str = JOB, **said):
    (tmp_path / "job.toml").write_text(text)
    return read_job(Request(job_file=str(tmp_path / "job.toml"), settings=Settings(**said))).spec


def test_a_job_file_says_where_to_rent_and_the_engine_hears_it(tmp_path):
    spec = read(tmp_path)
    rules = rules_of(spec)
    assert (rules.rent_from, rules.planner, rules.confidence, rules.deadline_s) == (["cloud"], "hads", 0.99, 2100.0)
    assert classes_of(spec)[0].estimate_s == 90.0


def test_the_command_line_goes_before_the_file_and_pools_add_up(tmp_path):
    spec = read(tmp_path, pools=["other"], planner="windfall", estimate="2m")
    assert (spec.pools, spec.planner, spec.estimate_s, spec.confidence) == (["cloud", "other"], "windfall", 120.0, 0.99)


def test_a_job_that_says_nothing_rents_nothing(tmp_path):
    rules = rules_of(read(tmp_path, '[job]\ncommand = "true {}"\nrange = "1-3"\n'))
    assert (rules.rent_from, rules.planner, rules.confidence) == ([], "", 0.95)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("0.99", "1.5", "confidence"),
        ('"90s"', '"soon"', "estimate"),
        ('"90s"', "0", "estimate"),
        ('["cloud"]', "3", "pools"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(tmp_path, old, new, word):
    with pytest.raises(BadInput, match=word):
        read(tmp_path, JOB.replace(old, new))


def test_a_server_without_such_a_pool_refuses_the_job(tmp_path):
    with Client(state=tmp_path) as client, pytest.raises(BadInput, match="no pool 'cloud'") as caught:
        client.submit(["true", "{}"], [1], pools=["cloud"])
    assert "--pools" in caught.value.hint


def test_an_unknown_planner_is_refused_and_the_known_ones_are_named(tmp_path):
    with Client(state=tmp_path) as client, pytest.raises(BadInput, match="no planner 'oracle'") as caught:
        client.submit(["true", "{}"], [1], planner="oracle")
    assert "windfall" in caught.value.hint
