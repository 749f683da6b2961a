"""A bag whose input lies in moto's S3: its plan counts moving it, and rents where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.commands.typed import Shell
from tests.support.stores.s3 import s3
from windfall.bags.settings import Settings
from windfall.bags.submission import Request, read_job
from windfall.errors import BadInput
from windfall.workflows.submission import read_workflow

MEGABYTES = 4
OFFERS = """
[[offer]]
name = "far"
price_usd = 0.08
region = "eu-west-1"
lag_s = 60
data_usd_per_gb = { default = 100.0 }
data_mb_per_s = 0.1

[[offer]]
name = "near"
price_usd = 0.10
region = "us-east-1"
lag_s = 60
data_usd_per_gb = 100.0
data_mb_per_s = 1.0
"""
JOB = """
[job]
command = "wc -c data.bin {}"
inputs = ["s3://lake/raw/data.bin"]
estimate = "10m"
deadline = "2h"
range = "1-24"
"""


@pytest.fixture(scope="module")
def lake():
    with s3("lake") as client:
        client.put_object(Bucket="lake", Key="raw/data.bin", Body=b"x" * (MEGABYTES * 1_000_000))
        yield client


@pytest.fixture
def shell(tmp_path: Path, lake):
    made = Shell(tmp_path)
    made.write("offers.toml", OFFERS)
    made.write("job.toml", JOB)
    yield made
    made.close()


def first_offers(planned) -> set[str]:
    return {start["offer"] for start in planned.document["first_plan"]["start"]}


def test_a_plan_rents_in_the_region_of_the_bucket_and_says_what_moving_costs(shell):
    planned = shell.windfall("plan", "job.toml", "--offers", "offers.toml")
    assert planned.code == 0, planned
    told = "each machine fetches 0.004 GB of us-east-1: $0.40 and 40.0 s on far; $0.00 and 4.00 s on near"
    assert told in " ".join(planned.out.split()), planned
    document = shell.windfall("plan", "job.toml", "--offers", "offers.toml", "--json")
    assert first_offers(document) == {"near"}
    shell.write("job.toml", JOB.replace('inputs = ["s3://lake/raw/data.bin"]', ""))
    assert first_offers(shell.windfall("plan", "job.toml", "--offers", "offers.toml", "--json")) == {"far"}


def test_where_all_machines_are_far_the_cost_has_the_egress_of_each_in_it(shell):
    far = OFFERS.partition('[[offer]]\nname = "near"')[0]
    shell.write("offers.toml", far)
    with_data = shell.windfall("plan", "job.toml", "--offers", "offers.toml", "--spread", "0", "--json").document
    shell.write("offers.toml", far.replace("100.0", "0.0"))
    without = shell.windfall("plan", "job.toml", "--offers", "offers.toml", "--spread", "0", "--json").document
    egress_usd = with_data["cost_usd"]["mean"] - with_data["machines"]["rented"] * 0.4
    cycles = egress_usd / 0.08
    assert cycles == pytest.approx(round(cycles)) and with_data["machines"]["rented"] <= without["machines"]["rented"]


def test_a_live_bag_rents_where_its_data_lies(shell):
    tables = OFFERS.replace("[[offer]]", "[[pool.offer]]")
    shell.write("pools.toml", f'[[pool]]\nname = "cloud"\nkind = "emulated"\nlimit = 4\ntime_scale = 60\n{tables}')
    counts = JOB.replace("1-24", "1-4").replace('"wc -c data.bin {}"', '["sh", "-c", "wc -c < data.bin"]')
    shell.write("job.toml", counts)
    ended = shell.windfall(
        "run", "-f", "job.toml", "--pools", "pools.toml", "--pool", "cloud", "--deadline", "3m", "--estimate", "5s",
        "--require", 'Host.Pool == "cloud"', "--yes",
    )  # fmt: skip
    assert ended.code == 0, ended
    bill = shell.windfall("cost", "last", "--json").document
    assert {machine["offer"] for machine in bill["machines"]} == {"near"}, bill
    assert {row["stdout"].split()[0] for row in shell.windfall("results", "last", "--json").lines} == {"4000000"}


def test_a_file_that_cannot_be_asked_for_is_said_and_not_counted(shell):
    shell.write("job.toml", JOB.replace('data.bin"]', 'none.bin"]'))
    planned = shell.windfall("plan", "job.toml", "--offers", "offers.toml")
    assert planned.code == 0 and "the size of s3://lake/raw/none.bin is not known" in planned.out + planned.err


def test_the_inputs_of_a_workflow_are_measured_too(shell):
    shell.write("flow.toml", '[[task]]\nname = "a"\ncommand = "wc -c data.bin"\nestimate = "10m"\n')
    settings = Settings(inputs=["s3://lake/raw/data.bin", "s3://lake/raw/none.bin"], pools=["cloud"], deadline="2h")
    read = read_workflow(Request(workflow=str(shell.directory / "flow.toml"), settings=settings))
    assert read.spec.data_gb == {"us-east-1": MEGABYTES / 1000}
    assert "the size of s3://lake/raw/none.bin is not known" in read.unmeasured[0]
    alone = replace(settings, pools=[], deadline=None)
    assert not read_workflow(Request(workflow=str(shell.directory / "flow.toml"), settings=alone)).spec.data_gb


TASKS = """
[job]
estimate = "10m"
deadline = "2h"
"""


def test_inputs_of_single_tasks_make_a_plan_prefer_the_region_where_they_lie(shell):
    def job(inputs: str) -> str:
        return TASKS + "".join(f'[[task]]\ncommand = "wc -c data.bin"\n{inputs}\n' for _ in range(12))

    shell.write("job.toml", job('inputs = ["s3://lake/raw/data.bin"]'))
    planned = shell.windfall("plan", "job.toml", "--offers", "offers.toml")
    told = (
        "a task fetches and writes 0.004 GB of us-east-1 on average: $0.40 and 40.0 s on far; $0.00 and 4.00 s on near"
    )
    assert planned.code == 0 and told in " ".join(planned.out.split()), planned
    assert first_offers(shell.windfall("plan", "job.toml", "--offers", "offers.toml", "--json")) == {"near"}
    shell.write("job.toml", job(""))
    assert first_offers(shell.windfall("plan", "job.toml", "--offers", "offers.toml", "--json")) == {"far"}


def test_what_tasks_write_makes_a_plan_prefer_the_region_of_the_bucket(shell):
    shell.write("job.toml", JOB.replace('inputs = ["s3://lake/raw/data.bin"]', 'outputs = ["o=s3://lake/out/{#}"]'))
    plan = ("plan", "job.toml", "--offers", "offers.toml")
    assert first_offers(shell.windfall(*plan, "--json")) == {"far"}, "what is not said is not counted"
    with_size = JOB.replace(
        'inputs = ["s3://lake/raw/data.bin"]', 'outputs = ["o=s3://lake/out/{#}"]\noutput_data = "4000000"'
    )
    shell.write("job.toml", with_size)
    planned = shell.windfall(*plan)
    told = (
        "a task fetches and writes 0.004 GB of us-east-1 on average: $0.40 and 40.0 s on far; $0.00 and 4.00 s on near"
    )
    assert planned.code == 0 and told in " ".join(planned.out.split()), planned
    assert first_offers(shell.windfall(*plan, "--json")) == {"near"}
    shell.write("job.toml", with_size.replace('"4000000"', '{ eu-west-1 = "4000000" }'))
    assert first_offers(shell.windfall(*plan, "--json")) == {"far"}, "it is written where the other machines are"


def test_what_a_task_writes_reaches_the_engine_beside_what_it_fetches(shell):
    settings = Settings(pools=["cloud"], deadline="2h", outputs=["o=s3://lake/out/{#}"], output_data="eu=3000000000")
    request = Request(range="1-3", command=["true", "{}"], settings=settings)
    assert read_job(request).spec.task_data_gb == {"eu": 3.0}
    near = replace(request, settings=replace(settings, output_data=3_000_000_000))
    assert read_job(near).spec.task_data_gb == {"us-east-1": 3.0}
    with pytest.raises(BadInput, match="'much' is no size"):
        read_job(replace(request, settings=replace(settings, output_data="much")))
