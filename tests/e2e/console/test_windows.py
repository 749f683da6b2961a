"""Many windows of one browser, which opens six connections to a server: all of them live on one stream of news."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.clouds.cloud_server import until
from tests.support.server.cluster import cluster

pytestmark = pytest.mark.slow

WINDOWS = 8
"""More than a browser opens connections."""
HIDE = """
    Object.defineProperty(document, "hidden", { value: true });
    document.dispatchEvent(new Event("visibilitychange"));
"""
SCRIPT = "echo begun; while [ ! -e {file} ]; do sleep 0.2; done; echo more; sleep 600"


@pytest.fixture
def served(tmp_path):
    with cluster(tmp_path) as made:
        made.start_server()
        yield made


def windows_of(visitor, where):
    """As many windows of the visitor's browser, each at this place, and each live."""
    pages = [visitor.window() for _ in range(WINDOWS)]
    for page in pages:
        page.goto(f"{visitor.url}/#/{where}", wait_until="domcontentloaded")
    for page in pages:
        page.wait_for_selector("html[data-live=yes] main h1")
    return pages


def streams(made):
    return made.client()._transport.get("/v1/system")["queues"]["pages_open"]


def see(pages, text):
    for page in pages:
        page.get_by_text(text).first.wait_for()


def test_eight_windows_share_one_stream_and_hear_all_news(served, visit):
    visitor = visit(served, "read")
    pages = windows_of(visitor, "overview")
    served.client().submit(["true"], range(1), name="came later")
    see(pages, "came later")
    assert streams(served) == 1
    for page in pages[1:]:
        page.close()
    served.client().submit(["true"], range(1), name="came last")
    see(pages[:1], "came last")
    visitor.close()
    until(lambda: streams(served) == 0)


def test_eight_windows_follow_a_running_task_and_another_one_opens(served, visit, tmp_path):
    served.start_worker("desk", slots=1)
    job = served.client().submit(["sh", "-c", SCRIPT.format(file=tmp_path / "go")], range(1), name="long")
    visitor = visit(served, "read")
    pages = windows_of(visitor, f"task/{job.id}/0")
    see(pages, "begun")
    assert "Overview" in visitor.open("overview")
    (tmp_path / "go").touch()
    see(pages, "begun more")
    job.cancel()


def test_all_windows_see_that_the_server_went_away_and_that_it_is_back(served, visit):
    with contextlib.ExitStack() as later:
        visitor = visit(served, "read")
        later.callback(visitor.wrong.clear)  # connections that failed
        later.callback(visitor.close)
        pages = windows_of(visitor, "overview")
        served.kill_server()
        see(pages, "The server does not answer")
        served.start_server()
        see(pages, "The server is back")
        served.client().submit(["true"], range(1), name="after")
        see(pages, "after")


def test_who_signs_out_in_one_window_and_in_again_hears_news_in_all(served, visit):
    visitor = visit(served, "read")
    other = windows_of(visitor, "overview")[0]
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.page.wait_for_selector("input[name=token]")
    visitor.sign_in(served.client().create_token("submit", "another")["token"])
    served.client().submit(["true"], range(1), name="for both")
    see([visitor.page, other], "for both")


def test_a_browser_without_shared_workers_has_a_stream_for_each_window(served, visit):
    visitor = visit(served, "read", script="delete globalThis.SharedWorker")
    visitor.open("overview")
    served.client().submit(["true"], range(1), name="came later")
    visitor.sees("came later")
    assert streams(served) == 1
    visitor.page.evaluate(HIDE)
    until(lambda: streams(served) == 0)


def test_a_link_that_signs_in_works_in_a_window_that_shows_the_console(served, visit):
    visitor = visit(served)
    visitor.sees("Sign in")
    code = served.client()._transport.post("/v1/console/links", {})["code"]
    visitor.page.evaluate("code => { location.hash = `#signin=${code}` }", code)
    visitor.page.wait_for_selector("html[data-live=yes] nav a")
    assert code not in visitor.page.url
