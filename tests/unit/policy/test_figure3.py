"""GridBot's figure 3, evaluated as printed."""

from __future__ import annotations

import pytest

from windfall.errors import BadInput
from windfall.policy import compile_policies
from windfall.policy.reading import read_policies

# As the text of the paper has it, with its typographic quotes and its spacing. The pattern lost its shape in print:
# `regexp` takes a string pattern first, so that one call is repaired where the figure is evaluated.
FIGURE_3 = """
[ Job= [ Name=”job1”;
Executable=”/bin/hostname”;
NumberOfReplicas=2;
Replica1= [ Name=”job1_1”;

Host=[ Name=”is3.myhost”;
SentTime=242525;
ErrorRate=0.08;]

];
Replica2= [ Name=”job1_2”;

Host=[ Name=”is2.myhost”;
SentTime=242525;
ErrorRate=0.08;]

];
];

BOT= [JobRequirements = !Tail? True:
regexp(Host.Name,/ * myhost * /)
&& Host.ErrorRate<0.1;

Rank= !Tail?1: Host.JobsToday;
ReplicationRequirements=

(NumberOfReplicas<3&&
Job.Replica1.Host.ErrorRate>0.1);

Concurrency=2* Host.NumCpus;
Deadline=Concurrency * 2000;
JobsLeft=10;
JobsDone=5;
Tail=true;

];
Queue= [BOTsInQueue=1;]

]
"""
REPAIRED = FIGURE_3.replace("regexp(Host.Name,/ * myhost * /)", "regexp(”.*myhost.*”, Host.Name)")
GOOD = {"Name": "is9.myhost", "Cpus": 4, "JobsToday": 7, "ErrorRate": 0.02}


@pytest.fixture
def figure():
    return read_policies(REPAIRED, "figure 3")


def answers(figure, host, tail=True, job=None):
    policy = compile_policies(figure.policies)
    bag = {**figure.ads["BOT"], "Tail": tail}
    job = job or figure.ads["Job"]
    queue, pool = figure.ads["Queue"], {}
    return (
        policy.match(host, bag, queue, pool, 0.0),
        policy.match_replica(host, job, bag, queue, pool, 0.0),
        policy.deadline_s(host, job, bag, pool, 0.0),
    )


def test_the_printed_pattern_is_refused_with_its_place_and_the_right_form():
    with pytest.raises(BadInput, match=r"line 22, column 18: a pattern between slashes is no value") as caught:
        read_policies(FIGURE_3, "figure 3")
    assert caught.value.hint == 'write regexp("pattern", Host.Name)'


def test_the_ads_of_the_figure_come_with_its_policies(figure):
    assert sorted(figure.policies) == [
        "Concurrency",
        "Deadline",
        "JobRequirements",
        "Rank",
        "ReplicationRequirements",
    ]
    assert figure.ads["BOT"] == {"JobsLeft": 10, "JobsDone": 5, "Tail": True}
    assert figure.ads["Job"]["Replica2"]["Host"]["Name"] == "is2.myhost"
    assert figure.ads["Queue"] == {"BOTsInQueue": 1}


def test_in_the_tail_only_a_reliable_host_of_that_name_matches(figure):
    assert answers(figure, GOOD)[0].matches
    assert not answers(figure, {**GOOD, "Name": "elsewhere"})[0].matches
    assert not answers(figure, {**GOOD, "ErrorRate": 0.1})[0].matches
    assert answers(figure, {**GOOD, "Name": "elsewhere", "ErrorRate": 0.9}, tail=False)[0].matches


def test_hosts_that_produced_results_rank_higher_but_only_in_the_tail(figure):
    assert answers(figure, GOOD)[0].rank == 7.0
    assert answers(figure, GOOD, tail=False)[0].rank == 1.0


def test_a_host_prefetches_two_jobs_for_each_core_and_the_deadline_follows(figure):
    verdict, _, deadline_s = answers(figure, GOOD)
    assert verdict.concurrency == 8
    assert deadline_s == 16_000.0


def test_a_job_is_replicated_only_below_three_replicas_with_the_first_on_a_host_that_fails(figure):
    job = figure.ads["Job"]
    failing = {**job, "Replica1": {**job["Replica1"], "Host": {"Name": "is3.myhost", "ErrorRate": 0.3}}}
    assert not answers(figure, GOOD)[1]  # The figure's own numbers: 0.08 is not above 0.1.
    assert answers(figure, GOOD, job=failing)[1]
    assert not answers(figure, GOOD, job={**failing, "NumberOfReplicas": 3})[1]
