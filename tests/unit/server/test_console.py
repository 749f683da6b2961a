"""The console: who gets in and what that allows, its files, its news, and the pictures that it shows."""

from __future__ import annotations

import asyncio
import json
import re
from importlib.resources import files
from types import SimpleNamespace

import pytest

from tests.support.server.asgi import InProcess
from windfall.client.results import cause_text
from windfall.server.http.console import pages as console
from windfall.server.http.console import sessions
from windfall.wire.messages import CAUSES

OWN = {"x-windfall-console": "1"}


@pytest.fixture
def server(tmp_path):
    with InProcess(tmp_path) as made:
        yield made


def test_causes_have_the_words_of_the_command_line():
    script = (files("windfall.console") / "static" / "core.js").read_text()
    table = re.search(r"const CAUSES = \{(.*?)\};", script, re.DOTALL)[1]
    shown = dict(re.findall(r'"([\w-]+)": "([^"]+)"', table))
    assert shown == {cause: text for cause in CAUSES if cause != (text := cause_text(cause, 0)) and cause in shown}
    assert {cause for cause in CAUSES if cause_text(cause, 0) != cause} <= {*shown, "exit", "signal"}
    signals = re.search(r"const SIGNALS = \{(.*?)\};", script)[1]
    for number, name in re.findall(r'(\d+): "(\w+)"', signals):
        assert cause_text("signal", -int(number)) == f"killed by SIG{name}"


def ask(server, method, path, body=None, token=None, **headers):
    """One request without the owner's token; status, headers, body."""
    sent = {"authorization": f"Bearer {token}"} if token else {}
    return server.run(
        server.full(method, path, b"" if body is None else json.dumps(body).encode(), {**sent, **headers})
    )


def signed_in(server, role="read"):
    """The cookie of somebody who signed in with a new token, and the id of that token."""
    token = server.service.tokens.create(role, "tester", 0.0)
    status, headers, _ = ask(server, "POST", "/v1/console/session", {"token": token}, **OWN)
    assert status == 200
    return headers["set-cookie"].partition(";")[0], token.split("_")[1]


def test_a_token_becomes_a_cookie_that_no_script_and_no_other_site_can_use(server):
    token = server.service.tokens.create("read", "tester", 0.0)
    status, headers, body = ask(server, "POST", "/v1/console/session", {"token": token}, **OWN)
    assert status == 200 and json.loads(body)["may"] == {"jobs": False, "hosts": False}
    said = headers["set-cookie"].lower()
    assert "httponly" in said and "samesite=strict" in said and token not in headers["set-cookie"]
    cookie = headers["set-cookie"].partition(";")[0]
    assert ask(server, "GET", "/v1/jobs", cookie=cookie)[0] == 200
    assert ask(server, "GET", "/v1/jobs", cookie=cookie[:-1] + "x")[0] == 401
    assert ask(server, "GET", "/v1/jobs")[0] == 401
    assert json.loads(ask(server, "GET", "/v1/console/session")[2])["role"] == ""


@pytest.mark.timeout(20)
def test_a_cookie_is_read_in_one_go_whatever_is_in_it(server):
    """60 kB of backslashes in quotes kept the whole server busy for a minute, and its watchdog ended it."""
    cookie, _ = signed_in(server)
    hostile = 'windfall_console="' + "\\" * 60_000 + '"'
    assert ask(server, "GET", "/v1/console/session", cookie=hostile)[0] == 401
    assert ask(server, "GET", "/v1/jobs", cookie=hostile)[0] == 401
    assert ask(server, "GET", "/v1/jobs", cookie=f"a=b; {cookie}; c")[0] == 200


def test_a_role_allows_the_same_with_a_cookie_as_with_its_token(server):
    job = server.submit()
    read, _ = signed_in(server, "read")
    submit, _ = signed_in(server, "submit")
    path = f"/v1/jobs/{job}/cancel"
    assert ask(server, "POST", path, {}, cookie=read, **OWN)[0] == 403
    assert ask(server, "POST", path, {}, cookie=submit, **OWN)[0] == 200
    assert ask(server, "POST", "/v1/hosts/h/block", {}, cookie=submit, **OWN)[0] == 403


def test_nothing_is_changed_for_a_page_of_another_site(server):
    job = server.submit()
    cookie, _ = signed_in(server, "admin")
    path = f"/v1/jobs/{job}/cancel"
    assert ask(server, "POST", path, {}, cookie=cookie)[0] == 403
    assert ask(server, "POST", path, {}, cookie=cookie, **OWN, **{"sec-fetch-site": "cross-site"})[0] == 403
    assert server.get(f"/v1/jobs/{job}")[1]["tasks"]["cancelled"] == 0


def test_a_sign_in_ends_with_its_token_and_with_its_time(server):
    cookie, ident = signed_in(server)
    value = cookie.partition("=")[2]
    late = server.driver.clock() + sessions.LIFE_S + 1
    with pytest.raises(sessions.BadCredentials, match="ended"):
        sessions.read_cookie(server.service.tokens, value, late)
    server.service.tokens.revoke(ident)
    assert ask(server, "GET", "/v1/console/session", cookie=cookie)[0] == 401


def test_a_link_signs_in_once(server):
    token = server.service.tokens.create("submit", "tester", 0.0)
    status, _, body = ask(server, "POST", "/v1/console/links", {}, token)
    code = json.loads(body)["code"]
    assert status == 201 and token not in body.decode()
    assert ask(server, "POST", "/v1/console/session", {"code": code}, **OWN)[0] == 200
    assert ask(server, "POST", "/v1/console/session", {"code": code}, **OWN)[0] == 401


def test_a_worker_does_not_get_in(server):
    token = server.service.tokens.create("worker", "w", 0.0)
    assert ask(server, "POST", "/v1/console/session", {"token": token}, **OWN)[0] == 403
    assert ask(server, "POST", "/v1/console/links", {}, token)[0] == 403


def test_the_pages_come_from_this_server_alone_and_run_no_script_but_their_own(server):
    status, headers, body = ask(server, "GET", "/")
    policy = headers["content-security-policy"]
    assert status == 200 and "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert b"http://" not in body and b"https://" not in body
    for name, (data, _, tag) in server.service.pages.items():
        assert b"innerHTML" not in data and b"eval(" not in data
        assert ask(server, "GET", f"/console/{name}")[0] == 200
        assert ask(server, "GET", f"/console/{name}", **{"if-none-match": tag})[0] == 304
    assert ask(server, "GET", "/console/..%2fapp.py")[0] == 404


def test_pictures_of_a_job_whose_policy_says_its_deadlines_are_drawn(server):
    job = server.submit(3, policies={"Deadline": "60"})
    assert server.get(f"/v1/jobs/{job}/pictures")[0] == 200


def test_pictures_of_an_empty_a_running_and_a_finished_job_are_drawn(server):
    job = server.submit(2)
    status, told = server.get(f"/v1/jobs/{job}/pictures")
    assert status == 200 and [each["name"] for each in told["pictures"]] == ["Incomplete tasks over time"]
    _, answer = server.exchange(ad={"slots": 1})
    assert answer["tasks"]
    assert server.get(f"/v1/jobs/{job}/pictures")[0] == 200
    server.post(f"/v1/jobs/{job}/cancel", {})
    status, told = server.get(f"/v1/jobs/{job}/pictures")
    assert status == 200 and told["series"]["incomplete"][-1][1] == 0


def test_a_page_hears_which_jobs_have_changed(server, monkeypatch):
    monkeypatch.setattr(console, "PAUSE_S", 0.0)

    asked = SimpleNamespace(method="GET", headers={"authorization": f"Bearer {server.token}"})

    async def heard():
        news = console._news(server.service, asked)
        first = await anext(news)
        waiting = asyncio.create_task(anext(news))
        await server.acall("POST", "/v1/jobs", json.dumps({
            "spec": {"name": "bag", "command": ["echo", "{}"], "source": {"kind": "range", "first": 1, "last": 2}},
            "count": 2, "seal": True,
        }).encode())  # fmt: skip
        second = await waiting
        assert server.service.listeners == 1
        await news.aclose()
        return first, second

    first, second = server.run(heard())
    assert b"event: hello" in first and b"event: change" in second and b'"jobs":[1]' in second
    assert server.service.listeners == 0


def test_only_so_many_pages_are_told_news(server):
    server.service.listeners = console.MOST_LISTENERS
    status, headers, _ = server.run(server.full("GET", "/v1/stream"))
    assert status == 503 and headers["retry-after"]


def test_jobs_and_hosts_come_in_pages(server):
    for _ in range(5):
        server.submit(1)
    _, first = server.get("/v1/jobs?limit=2")
    assert [row["job"] for row in first["jobs"]] == [5, 4] and first["next"] == 4 and first["total"] == 5
    _, rest = server.get("/v1/jobs?limit=9&before=4")
    assert [row["job"] for row in rest["jobs"]] == [3, 2, 1] and rest["next"] is None
    for name in "cab":
        server.exchange(name)
    _, first = server.get("/v1/hosts?limit=2")
    assert [row["host"] for row in first["hosts"]] == ["a", "b"] and first["next"] == "b"
    assert [row["host"] for row in server.get("/v1/hosts?limit=2&after=b")[1]["hosts"]] == ["c"]


def test_a_policy_is_tried_against_the_hosts_that_are_there(server):
    server.submit()
    server.exchange("h")
    _, told = server.post("/v1/policies/test", {"expression": "Host.Slots >= 1"})
    assert told["matching"] == 1 and not told["findings"]
    _, told = server.post("/v1/policies/test", {"expression": "Host.Slots >= 100"})
    assert told["matching"] == 0 and told["hosts"][0]["clauses"][0]["ok"] is False
    _, told = server.post("/v1/policies/test", {"expression": "Host.Slots >="})
    assert any(found["level"] == "error" for found in told["findings"])


def test_bills_and_decisions_of_a_server_that_rents_nothing_are_empty(server):
    assert server.get("/v1/bills")[1]["total_usd"] == 0
    assert server.get("/v1/decisions")[1] == {"decisions": [], "next": None, "jobs": {}}
    assert server.get("/v1/machines/pictures")[1]["pictures"] == []
    status, told = server.post("/v1/what-if", {"tasks": 10, "estimate_s": 60, "deadlines_s": [3600]})
    assert status == 400 and "rented" in told["error"]["message"]


def test_the_console_knows_whose_jobs_a_token_sees(server):
    token = server.service.tokens.create("read", "tester", 0.0, None, "ada")
    status, _, body = ask(server, "POST", "/v1/console/session", {"token": token}, **OWN)
    assert status == 200 and json.loads(body)["user"] == "ada"
    assert ask(server, "GET", "/v1/system", token=token)[0] == 403


def test_the_server_tells_about_itself(server):
    server.submit(3)
    server.exchange("h")
    server.service.loop_times.add(0.004)
    server.service.loop_times.add(99.0)
    _, told = server.get("/v1/system")
    assert told["jobs"] == 1 and told["tasks"] == 3 and told["hosts"] == 1 and told["illness"] == ""
    assert told["times"]["exchange"]["count"] == 1
    assert told["times"]["loop"] | {"what": ""} == {
        "what": "", "count": 2, "mean_s": 49.502, "half_s": 0.005, "most_s": None,
    }  # fmt: skip
    assert told["queues"]["hosts_waiting_for_work"] == 0 and told["memory_bytes"] > 1e6
    assert told["takes_snapshot"] is False
    assert "windfall_loop_seconds_count" in ask(server, "GET", "/metrics", token=server.token)[2].decode()


def test_a_volunteer_is_named_only_if_they_agreed(server):
    def volunteers():
        shown = {"hosts": 1, "done": 2, "credit": 3.5}
        return [{"account": 1, "name": "", **shown}, {"account": 2, "name": "<b>Ada</b>", **shown, "credit": 9.0}]

    assert server.get("/v1/volunteers")[1]["fronts"] == 0
    server.service.fronts["/grid/"] = SimpleNamespace(pool="boinc", volunteers=volunteers)
    _, told = server.get("/v1/volunteers")
    assert [row["name"] for row in told["volunteers"]] == ["<b>Ada</b>", ""] and told["sums"]["credit"] == 12.5


def test_every_file_of_the_console_is_in_the_package():
    import tomllib
    from fnmatch import fnmatch
    from pathlib import Path

    root = Path(__file__).parents[3]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["windfall"]
    static = [path.name for path in (root / "src/windfall/console/static").iterdir()]
    assert [name for name in static if not any(fnmatch(f"x/{name}", pattern) for pattern in patterns)] == []
