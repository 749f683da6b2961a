"""Plans of the log: the newest first, in pages, with what the planner was shown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support.clouds.rented_cloud import SURE, Cloud
from windfall.core.events import PlanProposed
from windfall.core.explain.plan import told
from windfall.core.records import decode_record, encode_record
from windfall.core.renting import views
from windfall.drivers import thinking
from windfall.planning.contract import Plan
from windfall.server.queries.renting import past_plans
from windfall.server.queries.renting.past_plans import newest_plans
from windfall.store.contract import Batch, Record
from windfall.store.memory import MemoryStore


def logged(cloud: Cloud) -> SimpleNamespace:
    store = MemoryStore()
    for record in cloud.log:
        event = record.event
        row = Record(record.seq, event.t, getattr(event, "job", None), type(event).__name__, encode_record(record))
        store.append(Batch(records=[row]))
    return SimpleNamespace(state=cloud.state, store=store)


@pytest.fixture
def planned() -> tuple[Cloud, SimpleNamespace]:
    cloud = Cloud()
    bag, other = cloud.rent(4), cloud.rent(4)
    cloud.plan(bag, start=[SURE], because=["first"])
    for place in range(6):
        cloud.wait(1)
        cloud.plan(other if place % 2 else bag, because=[f"look {place}"])
    return cloud, logged(cloud)


@pytest.mark.parametrize("window", [1, 2, 7, 5000])
def test_pages_of_plans_hold_each_plan_once_the_newest_first(planned, window, monkeypatch):
    _, service = planned
    monkeypatch.setattr(past_plans, "FIRST_WINDOW", window)
    seen, before = [], float("inf")
    while before is not None:
        page, before = newest_plans(service, None, 2, False, before)
        assert len(page) <= 2
        seen += [row["because"][0] for row in page]
    assert seen == [*(f"look {place}" for place in reversed(range(6))), "first"]


def test_plans_of_one_job_and_those_that_did_something(planned):
    _, service = planned
    assert [row["because"] for row in newest_plans(service, 1, 9, True)[0]] == [["first"]]
    assert [row["because"][0] for row in newest_plans(service, 2, 9, False)[0]] == ["look 5", "look 3", "look 1"]


def test_a_page_is_searched_in_a_bounded_number_of_records(planned):
    _, service = planned
    page, before = newest_plans(service, 1, 9, True, most=3)
    assert page == [] and before is not None
    assert newest_plans(service, 1, 9, True, before)[0]


def test_a_plan_keeps_what_its_planner_was_shown():
    cloud = Cloud()
    bag = cloud.rent(4, budget_microusd=5_000_000)
    cloud.plan(bag, start=[SURE])
    asked = views.view(cloud.state, bag.number, cloud.t, 1000)
    wish = SimpleNamespace(fleet=bag.number)
    event = thinking.proposal(wish, cloud.state.seq, cloud.t, asked, (Plan(), ""))
    record = decode_record(encode_record(cloud.step(event)))
    inputs = told(record.event, record.decided)["inputs"]
    assert (inputs["unfinished"], inputs["total"], inputs["machines"]) == (4, 4, {"pending": 1})
    assert inputs["core_s"] == pytest.approx(1200) and inputs["longest_s"] == pytest.approx(300)
    assert inputs["budget_usd"] == 5.0 and inputs["deadline_s"] == pytest.approx(bag.submitted_t + 3600)
    assert [row["offer"] for row in inputs["offers"]] == ["cloud/small", "cloud/sure"]


def test_a_plan_of_an_older_log_has_no_inputs():
    cloud = Cloud()
    bag = cloud.rent(1)
    record = cloud.step(PlanProposed(cloud.t, bag.number, cloud.state.seq, Plan()))
    assert told(record.event, record.decided)["inputs"] is None
