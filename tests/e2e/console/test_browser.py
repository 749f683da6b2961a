"""The console in a real browser, at a real server with a worker and an emulated cloud."""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from tests.support.clouds import cloud_server
from tests.support.clouds.cloud_server import until
from tests.support.pools import boinc
from tests.support.pools.boinc_front import World
from tests.support.server.cluster import cluster
from windfall.wire import OLDEST, frames

pytestmark = pytest.mark.slow

PAGES = ("overview", "pools", "hosts", "machines", "fleets", "money", "decisions", "policies", "plan", "system")
SHARED = ("fleet/night", "site/lab")
MARKUP = "<img src=x onerror=document.title='hacked'>&amp;"
NASTY = MARKUP + "\"'" + "W" * 120
"""Markup, quotes, and a word that no line has room for."""
FAILS = "printf '\\033[31mred\\033[0m\\342\\200\\256gnp.exe\\n'; echo '<b>bold</b>' >&2; exit 3"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A job that failed, one that runs, one of a million tasks that waits, one that rented machines."""
    folder = tmp_path_factory.mktemp("console")
    with cloud_server.served(folder, cloud_server.pool()) as made:
        client = made.client()
        made.start_worker("desk", slots=4)
        failed = client.submit(["sh", "-c", FAILS], range(4), name=NASTY, max_failures=1)
        rented = cloud_server.submit(made, 4, 0.2, name="rented")
        until(lambda: failed.status()["state"] == "failed" and rented.status()["state"] == "done")
        running = client.submit(["sh", "-c", "echo begun; sleep 600"], range(2), name="running")
        client.submit(["true"], range(1_000_000), name="million", policies={"JobRequirements": "Host.Slots > 99"})
        client.create_fleet("night", ["cloud"])
        client._transport.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1.0}})
        report = {"site": "lab", "host": "rack", "boot": "b", "n": 1, "capacity": {"vcpu": 4.0, "ram_mb": 100.0}}
        header = json.dumps({"v": OLDEST, "tags": ["disk=ssd"], **report}).encode()
        client._transport.request("POST", "/v1/site/exchange", body=frames.join(header, []))
        until(lambda: running.status()["tasks"]["running"])
        yield made
        for job in client.jobs():
            client.job(job["job"]).cancel()


def test_every_page_of_an_empty_server_is_shown(tmp_path, visit):
    with cluster(tmp_path) as made:
        made.start_server()
        visitor = visit(made, "read")
        for name in PAGES:
            assert visitor.open(name)
        assert visitor.judged() == []
        assert visitor.wrong == []
        assert "Not found" in visitor.open("job/1")
        visitor.close()  # before the server: an answer 404 and a stream that ends are none of its complaints
        visitor.wrong.clear()


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_is_shown_and_fits_a_phone_and_a_screen_reader(served, visit, dark):
    width = 390 if dark else 1280
    visitor = visit(served, "admin", dark=dark, width=width)
    for where in (*PAGES, "job/1", "job/2", "job/3", "job/4", "tasks/1", "tasks/4", "task/1/0", "task/3/0", *SHARED):
        text = visitor.open(where)
        assert not visitor.page.title().startswith("hacked") and "\x1b" not in text
        assert "\u202e" not in text
        assert not re.search(r"\b1[6-9]\d{8}\b", text), f"{where} shows seconds since 1970"
        assert visitor.judged() == [], where
        assert not visitor.sideways(), where


def test_a_cell_of_several_parts_stands_beside_its_name_on_a_phone(served, visit):
    visitor = visit(served, "read", width=390)
    assert "disk=ssd" in visitor.open("site/lab").splitlines()
    cell = visitor.page.locator("td[data-name=used]")
    name_ends_px = cell.bounding_box()["x"] + 100
    parts = cell.locator("meter").all()
    assert len(parts) == 2 and all(part.bounding_box()["x"] > name_ends_px for part in parts)


def test_what_users_named_is_text(served, visit):
    visitor = visit(served, "read")
    visitor.open("task/1/0")
    visitor.sees("<b>bold</b>")
    visitor.sees("\u241b[31mred")
    visitor.sees("\\u{202e}gnp.exe")  # what would turn the direction of writing
    assert "<img src=x onerror=" in visitor.open("job/1")
    assert visitor.page.locator("main img").count() == 0


def test_credit_of_volunteers_and_names_of_those_who_agreed_are_shown_as_text(tmp_path, visit):
    boinc.require()
    world = World(tmp_path)
    try:
        hidden, shown = world.volunteer("Hidden Name"), world.volunteer(MARKUP, shows_name=True)
        hidden.claims_s = shown.claims_s = 1e6
        job = world.submit(1, quorum=2)
        assert hidden.work() == shown.work() == 1
        job.wait(30)
        visitor = visit(world.cluster, "read")
        for page in ("fleets", "hosts"):
            text = visitor.open(page)
            assert MARKUP in text and "Hidden Name" not in text, text
            assert visitor.page.locator("main img").count() == 0 and visitor.page.title() != "hacked"
        assert text.count("1 result confirmed in a row, 0 contradicted") == 2
        rows = visitor.open("fleets").split("volunteer 1")[1]
        assert "boinc" in rows and visitor.judged() == []
        visitor.close()
    finally:
        world.cluster.close()


def test_a_million_tasks_come_in_pages(served, visit):
    visitor = visit(served, "read")
    assert "1,000,000" in visitor.open("overview")
    assert "0 of 1,000,000" in visitor.open("job/4")
    visitor.open("tasks/4?after=999950")
    assert visitor.page.locator("tbody tr").count() == 50
    assert visitor.page.get_by_text("next page").count() == 0


def test_tasks_are_filtered_by_cause_and_host(served, visit):
    visitor = visit(served, "read")
    page = visitor.page
    visitor.open("job/1")
    page.get_by_role("link", name="all that ended by exit").first.click()
    page.wait_for_url("**cause=exit**")
    page.get_by_text("all tasks that ended by exit").wait_for()
    assert page.locator("tbody tr").count() == 4
    page.locator("tbody").get_by_role("link", name="desk", exact=True).first.click()
    page.wait_for_url("**host=desk**")
    page.get_by_text("on host desk from number").wait_for()
    assert page.input_value("input[name=host]") == "desk" and visitor.judged() == []
    page.get_by_label("Cause").select_option("done")
    visitor.sees("There is no such task.")
    page.fill("input[name=host]", MARKUP)
    page.keyboard.press("Enter")
    visitor.sees("there is no host")
    assert "<img" in page.inner_text("main") and page.locator("main img").count() == 0
    visitor.wrong = [line for line in visitor.wrong if "404" not in line]


def test_pages_change_by_themselves_and_focus_stays(served, visit):
    visitor = visit(served, "read")
    visitor.open("overview")
    visitor.page.get_by_role("link", name="running", exact=True).focus()
    job = served.client().submit(["true"], range(1), name="came later")
    visitor.sees("came later")
    assert visitor.page.evaluate("document.activeElement.textContent") == "running"
    visitor.open(f"task/{job.id}/0")
    visitor.page.locator("h1 .badge.done").wait_for()


def test_actions_are_asked_for_once_more(served, visit):
    client = served.client()
    job = client.submit(["sh", "-c", "sleep 600"], range(3), name="mine")
    visitor = visit(served, "admin")
    page = visitor.page
    visitor.open(f"job/{job.id}")
    page.get_by_role("button", name="Cancel…").click()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="hidden")
    assert job.status()["state"] == "running"
    for button, answer in (("Pause…", "Pause"), ("Continue…", "Continue"), ("Cancel…", "Cancel the job")):
        page.get_by_role("button", name=button).click()
        page.locator("dialog").get_by_role("button", name=answer, exact=True).click()
    until(lambda: job.status()["state"] == "cancelled")

    visitor.open("job/1")
    page.get_by_role("button", name="Retry failed…").click()
    page.locator("dialog").get_by_role("button", name="Retry").click()
    visitor.sees("4 tasks of job 1 run again.")
    visitor.open("hosts")
    page.get_by_role("button", name="block host desk", exact=True).click()
    page.fill("dialog input", "smokes")
    page.keyboard.press("Enter")
    visitor.sees("blocked: smokes")
    page.get_by_role("button", name="unblock host desk").click()
    page.locator("dialog").get_by_role("button", name="unblock").click()
    page.get_by_role("button", name="block host desk", exact=True).wait_for()
    visitor.open("pools")
    page.get_by_role("button", name="pause pool cloud").click()
    page.locator("dialog").get_by_role("button", name="pause").click()
    page.get_by_role("button", name="resume pool cloud").wait_for()
    visitor.open("fleets")
    page.get_by_role("button", name="pause fleet night").click()
    page.locator("dialog").get_by_role("button", name="pause").click()
    page.get_by_role("button", name="resume fleet night").wait_for()


def test_a_budget_that_is_no_number_is_said_and_changes_nothing(served, visit):
    client = served.client()
    job = client.submit(
        ["sleep", "600"], range(1), name="dear", deadline=7200, pools=["cloud"], estimate=600, budget=2.0
    )
    visitor = visit(served, "admin")
    page = visitor.page
    for typed in ("2,5", "a lot"):
        visitor.open(f"job/{job.id}")
        page.get_by_role("button", name="Change…").click()
        page.fill("dialog input[name=budget]", typed)
        page.keyboard.press("Enter")
        visitor.sees(f"'{typed}' is no number")
        assert client.job(job.id).status()["money"]["budget_usd"] == 2.0
    visitor.open(f"job/{job.id}")
    page.get_by_role("button", name="Change…").click()
    page.fill("dialog input[name=budget]", "$2.5")
    page.keyboard.press("Enter")
    visitor.sees(f"Job {job.id} is changed.")
    assert client.job(job.id).status()["money"]["budget_usd"] == 2.5
    job.cancel()


def test_output_of_a_task_is_followed_from_waiting_through_all_attempts(served, visit, tmp_path):
    script = f"echo attempt $(cat {tmp_path}/n); sleep 2; echo more >> {tmp_path}/n; exit 1"
    (tmp_path / "n").write_text("first\n")
    rules = {"policies": {"JobRequirements": 'Host.Name == "late"'}, "max_failures": 2}
    job = served.client().submit(["sh", "-c", script], range(1), name="again", **rules)
    visitor = visit(served, "read")
    visitor.open(f"task/{job.id}/0")
    visitor.sees("Nothing.")
    served.start_worker("late", slots=1)
    visitor.sees("attempt first")
    visitor.sees("attempt first more")
    job.cancel()


def test_links_of_an_old_job_are_about_that_job(served, visit):
    client = served.client()
    old = client.submit(["true"], range(1), name="old", policies={"JobRequirements": "Host.Slots > 77"})
    newer = [client.submit(["true"], range(1), name=f"newer-{number}") for number in range(51)]
    visitor = visit(served, "read")
    assert "Host.Slots > 77" in visitor.open(f"policies?job={old.id}")
    for job in (old, *newer):
        job.cancel()


def test_somebody_who_only_looks_is_offered_no_action(served, visit):
    visitor = visit(served, "read")
    for where in ("job/3", "hosts", "pools"):
        visitor.open(where)
        assert [text.strip() for text in visitor.page.locator("button").all_inner_texts()] == ["Sign out"], where


def test_an_expression_is_tried_and_a_wrong_one_is_said(served, visit):
    visitor = visit(served, "read")
    visitor.open("policies")
    visitor.page.fill("textarea", "Host.Slots == 2")
    visitor.page.get_by_role("button", name="Try").click()
    visitor.sees("hosts match.")
    visitor.page.fill("textarea", "Host.Slots ==")
    visitor.page.get_by_role("button", name="Try").click()
    visitor.page.locator("section[aria-label=Outcome] .bad").first.wait_for()
    assert visitor.page.input_value("textarea") == "Host.Slots =="


def test_other_deadlines_are_simulated_with_the_offers_of_the_server(served, visit):
    visitor = visit(served, "read")
    visitor.open("plan")
    visitor.page.fill("input[name=tasks]", "5")
    visitor.page.fill("input[name=deadlines]", "1h")
    visitor.page.get_by_role("button", name="Simulate").click()
    visitor.page.locator("section[aria-label=Forecast] svg").wait_for()
    assert visitor.page.locator("section[aria-label=Forecast] tbody tr").count() == 1


def test_the_keyboard_reaches_the_content_and_the_pages(served, visit):
    visitor = visit(served, "read")
    page = visitor.page
    visitor.open("overview")
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("html[data-page=overview]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_selector("main:focus")
    page.locator("nav a", has_text="Money").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Money", exact=True).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_wrong_token_is_refused_and_a_revoked_one_signs_out(served, visit):
    visitor = visit(served)
    visitor.page.fill("input[name=token]", "wf_00000000_wrong")
    visitor.page.keyboard.press("Enter")
    visitor.sees("the server does not know this token")
    visitor.sign_in(served.client().create_token("read", "short")["token"])
    visitor.open("overview")
    client = served.client()
    client.revoke_token(next(row["id"] for row in client.tokens() if row["name"] == "short"))
    client.submit(["true"], range(1), name="news")
    visitor.sees("You are signed out")
    assert visitor.page.locator("input[name=token]").is_visible()
    visitor.wrong = [line for line in visitor.wrong if "401" not in line]


def test_a_token_that_expires_while_a_page_is_open_signs_out(served, visit):
    token = served.client().create_token("read", "brief", life_s=4.0)["token"]
    visitor = visit(served)
    visitor.sign_in(token)
    visitor.open("overview")
    until(
        lambda: (
            served.client().submit(["true"], range(1), name="news")
            and visitor.page.locator("form input[name=token]").count()
        )
    )
    assert "signed out" in visitor.page.inner_text("#banner")
    visitor.wrong = [line for line in visitor.wrong if "401" not in line]


def test_everything_that_acts_is_reached_and_used_by_keyboard(served, visit):
    job = served.client().submit(["sh", "-c", "sleep 600"], range(1), name="by keyboard")
    visitor = visit(served, "admin")
    page = visitor.page
    visitor.open(f"job/{job.id}")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent"))
        if "Cancel…" in reached:
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] input:focus")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    page.locator("h1 .badge.cancelled").wait_for()
    assert job.status()["stopped"] == "typed"
    visitor.open("tasks/1")
    page.get_by_label("State").focus()
    page.keyboard.press("End")
    page.wait_for_url("**state=cancelled**")


def test_a_server_that_goes_away_and_returns_is_shown_again(tmp_path, visit):
    with cluster(tmp_path) as made, contextlib.ExitStack() as later:
        made.start_server()
        made.client().submit(["true"], range(2), name="before")
        visitor = visit(made, "read")
        later.callback(visitor.wrong.clear)  # connections that failed
        later.callback(visitor.close)
        visitor.open("overview")
        made.kill_server()
        visitor.sees("The server does not answer")
        assert "before" in visitor.page.inner_text("main")
        made.start_server()
        visitor.sees("The server is back")
        made.client().submit(["true"], range(2), name="after")
        visitor.sees("after")
