"""Resources as people write them: names, amounts, tasks that differ from their job."""

from __future__ import annotations

import pytest

from windfall.bags.settings import Needs, Settings, class_of, spec_fields
from windfall.bags.spec import JobSpec, TaskClass, check
from windfall.errors import BadInput
from windfall.resources import check_whole, needs_of, read_pairs, show
from windfall.workflows.offers import offer_from


def test_pairs_are_read_and_gpus_are_one_of_them():
    assert read_pairs(["licence=1", "fpga=0.5"]) == {"licence": 1.0, "fpga": 0.5}
    fields = spec_fields(Settings(gpus=1.5, resources={"fpga": 0.5}))
    assert needs_of(fields["resources"]) == (("fpga", 500), ("gpus", 1500))


@pytest.mark.parametrize("text", ["licence", "licence=", "licence=many"])
def test_a_pair_without_a_number_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match="a name and an amount") as refused:
        read_pairs([text])
    assert "--resource fpga=0.5" in refused.value.hint


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"gpus": -1.0}, "gpus must be 0.001 to 1,000"), ({"gpus": 0.0005}, "steps of 0.001"),
        ({"gpus": float("nan")}, "gpus must be"), ({"a b": 1.0}, "'a b' is no name"), ({"cpus": 2.0}, "no resource"),
        ({"gpu": 1.0}, "no resource of its own"), ({f"r{n}": 1.0 for n in range(40)}, "40 resources"),
    ],
)  # fmt: skip
def test_amounts_that_cannot_be_counted_are_refused_with_their_place(resources, why):
    with pytest.raises(BadInput, match=why) as refused:
        check(JobSpec(name="fit", command=["true"], resources=resources), "job.toml")
    assert str(refused.value).startswith("job.toml: resources") and refused.value.hint


def test_a_task_has_the_resources_of_its_job_unless_it_says_otherwise():
    job = TaskClass(resources=(("gpus", 1.0), ("licence", 1.0)))
    assert class_of(Needs(), job, "task 1").resources == job.resources
    assert class_of(Needs(gpus=0), job, "task 1").resources == (("licence", 1.0),)
    assert class_of(Needs(resources={"fpga": 0.5}), job, "task 1").resources == (
        ("fpga", 0.5), ("gpus", 1.0), ("licence", 1.0),
    )  # fmt: skip


def test_an_offer_has_whole_gpus():
    offer = offer_from({"name": "g", "price_usd": 1.0, "gpus": 2, "resources": {"fpga": 1}}, "offers.toml")
    assert offer.units == {"gpus": 2, "fpga": 1}
    with pytest.raises(BadInput, match=r"'g': resources: fpga = 0.5: a host has whole units"):
        offer_from({"name": "g", "price_usd": 1.0, "resources": {"fpga": 0.5}}, "offers.toml")
    with pytest.raises(BadInput, match="a field of their own"):
        offer_from({"name": "g", "price_usd": 1.0, "resources": {"gpus": 1}}, "offers.toml")
    check_whole({"gpus": 0}, "a host that has none")


def test_amounts_are_shown_as_people_say_them():
    assert [show(1000, "gpus"), show(2000, "gpus"), show(500, "fpga")] == ["1 GPU", "2 GPUs", "0.5 fpga"]
