"""Hooks: who is told what, once, across restarts, whatever the receiver does."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.support.server.asgi import InProcess
from windfall.errors import BadInput
from windfall.server.hooks import follower, sending
from windfall.server.hooks.config import read_hooks
from windfall.server.hooks.follower import Follower


@pytest.fixture
def told(monkeypatch):
    """What was delivered; the answers to come are in `refuse`."""
    found: list[tuple[str, str]] = []

    async def deliver(hook, news, t):
        if found_refusals:
            raise found_refusals.pop(0)
        found.append((news["name"], news["state"]))

    found_refusals: list[Exception] = []
    monkeypatch.setattr(follower, "deliver", deliver)
    monkeypatch.setattr(follower, "LOOK_S", 0.0)
    return found, found_refusals


def hook(tmp_path, text='url = "http://127.0.0.1:1/in"\npause_s = 0'):
    (tmp_path / "hooks.toml").write_text(f'[[hook]]\nname = "h"\n{text}\n')
    return read_hooks(tmp_path / "hooks.toml")[0]


def followed(server, made, folder, until):
    """Run the follower until `until()` holds."""

    async def run():
        task = asyncio.create_task(Follower(server.service, made, folder).run())
        async with asyncio.timeout(30):
            while not until() and not task.done():
                await asyncio.sleep(0.001)
        task.cancel()

    server.run(run())


def test_the_end_of_a_job_is_told_once_and_what_was_before_is_not(tmp_path, told):
    found, _ = told
    with InProcess(tmp_path / "s") as server:
        server.post(f"/v1/jobs/{server.submit(name='old')}/cancel", {})
        job = server.submit(name="new")
        made = Follower(server.service, hook(tmp_path), tmp_path / "hooks")
        made._keep()
        server.post(f"/v1/jobs/{job}/cancel", {})
        followed(server, hook(tmp_path), tmp_path / "hooks", lambda: found)
        assert found == [("new", "cancelled")]
        server.submit(name="third")
    with InProcess(tmp_path / "s") as server:
        server.post("/v1/jobs/third/cancel", {})
        followed(server, hook(tmp_path), tmp_path / "hooks", lambda: len(found) > 1)
    assert found == [("new", "cancelled"), ("third", "cancelled")]


def test_a_delivery_is_tried_again_unless_the_refusal_is_final(tmp_path, told):
    found, refusals = told
    with InProcess(tmp_path / "s") as server:
        Follower(server.service, hook(tmp_path), tmp_path / "hooks")._keep()
        for name in ("first", "second"):
            server.post(f"/v1/jobs/{server.submit(name=name)}/cancel", {})
        refusals += [sending.Refused("it answered 410", final=True), *[sending.Refused("503")] * 3]
        followed(server, hook(tmp_path), tmp_path / "hooks", lambda: found)
        assert found == [("second", "cancelled")] and not refusals


def test_a_job_that_runs_again_is_news(tmp_path, told):
    found, _ = told
    made = hook(tmp_path, 'command = ["true"]\nstates = ["running", "cancelled"]')
    with InProcess(tmp_path / "s") as server:
        Follower(server.service, made, tmp_path / "hooks")._keep()
        job = server.submit(name="bag")
        followed(server, made, tmp_path / "hooks", lambda: len(found) == 1)
        server.post(f"/v1/jobs/{job}/cancel", {})
        followed(server, made, tmp_path / "hooks", lambda: len(found) == 2)
        assert server.post(f"/v1/jobs/{job}/retry", {"cancelled": True})[1]["retried"] == 3
        followed(server, made, tmp_path / "hooks", lambda: len(found) == 3)
    assert [state for _, state in found] == ["running", "cancelled", "running"]


def test_a_post_is_signed_and_a_command_reads_the_news(tmp_path):
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    made = hook(tmp_path, 'url = "http://127.0.0.1:{port}/in?x=1"\nsecret_file = "secret"'.replace("{port}", "1"))
    heard: list[bytes] = []

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(next(line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-length" in line))
        heard.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async def both():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        news = {"delivery": "1-done-7", "job": 1, "name": "bag", "state": "done"}
        at = hook(tmp_path, f'url = "http://127.0.0.1:{port}/in?x=1"\nsecret_file = "secret"')
        await sending.deliver(at, news, 1000.0)
        server.close()
        code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['WINDFALL_JOB_STATE'] + sys.stdin.read())"
        await sending.deliver(
            hook(tmp_path, f"command = {json.dumps([sys.executable, '-c', code, str(tmp_path / 'out')])}"), news, 0.0
        )
        with pytest.raises(sending.Refused, match="exit code 3"):
            await sending.deliver(hook(tmp_path, 'command = ["sh", "-c", "exit 3"]'), news, 0.0)
        with pytest.raises(sending.Refused):
            await sending.deliver(made, news, 0.0)
        return news

    news = asyncio.run(both())
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /in?x=1 ") and json.loads(body) == news
    assert f"sha256={sending.signature(b'0123456789abcdef', 1000, body)}".encode() in head
    assert (tmp_path / "out").read_text() == "done" + json.dumps(news, separators=(",", ":"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "either url or command"),
        ('url = "ftp://x/y"', "no address of http"),
        ('url = "http://x"\ncommand = ["y"]', "either url or command"),
        ('command = ["y"]\nstates = ["over"]', "no state 'over'"),
        ('command = ["y"]\ncolour = 1', "colour"),
        ('command = ["y"]\nsecret_file = "none"', "secret_file none"),
        ('command = ["y"]\ntries = 0', "tries"),
    ],
)
def test_a_wrong_hook_is_refused_with_its_place(tmp_path, text, said):
    with pytest.raises(BadInput, match=said) as caught:
        hook(tmp_path, text)
    assert "hook 1" in caught.value.message
