"""Tokens of pools with a real server and real workers: renewed in time, good for nothing else, and shown nowhere."""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path

import pytest

from windfall.client import Client
from windfall.pools.config import read_pools
from windfall.server import embedded
from windfall.wire import OLDEST, frames

TOKEN = re.compile(rb"wfp_[A-Za-z0-9._-]+_[0-9a-f]+_[0-9a-f]+(~[A-Za-z0-9._-]+)?_[0-9a-f]{64}")


@pytest.fixture
def pools(tmp_path):
    file = tmp_path / "pools.toml"
    file.write_text(
        '[[pool]]\nname = "a"\ntoken_life = "6s"\nidle_exit = "5s"\n\n[[pool]]\nname = "b"\nkind = "self"\n'
    )
    return read_pools(file)


def token_of(state: Path, pool: str = "a") -> str:
    return (state / "pool-tokens" / pool).read_text()


def command_lines() -> bytes:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:
            continue
    return b"\n".join(lines)


def test_a_worker_outlives_its_first_token_and_no_token_is_shown_anywhere(tmp_path, pools, caplog, capfd):
    state = tmp_path / "state"
    caplog.set_level(logging.DEBUG)
    with embedded.start(state, pools=pools) as server, Client(server.url, server.token) as client:
        first = token_of(state)
        job = client.submit(["sleep", "{}"], ["14"])
        until = time.monotonic() + 90.0
        seen = b""
        while not job.status()["tasks"]["done"] and time.monotonic() < until:
            seen += command_lines()
            time.sleep(1.0)
        assert job.status()["tasks"]["done"] == 1
        assert len(client.hosts()) == 1, "the worker was let in all the time"
        assert token_of(state) != first, "the file of the pool is renewed"
        shown = json.dumps([client.pools(), client.hosts(), client.tokens()]).encode()
    printed = capfd.readouterr()
    texts = {
        "command lines": seen,
        "answers": shown,
        "log of the server": (caplog.text + printed.out + printed.err).encode(),
        "log of records": b"".join(path.read_bytes() for path in state.glob("*.db*")),
        "log of the workers": b"".join(path.read_bytes() for path in state.rglob("worker.log")),
    }
    assert {name: TOKEN.findall(text) for name, text in texts.items() if TOKEN.search(text)} == {}
    assert texts["log of records"], "the log of records has been looked through"


def ask(pool: str, host: str) -> bytes:
    header = {"v": OLDEST, "host": host, "boot": "b", "n": 1, "want": 1, "slots": 1, "ad": {"pool": pool}}
    return frames.join(json.dumps(header).encode(), [])


@pytest.mark.parametrize(("pool", "host"), [("b", "b-1-1"), ("b", "a-1-1"), ("a", "b-1-1"), ("a", "somebody")])
def test_a_token_of_one_pool_registers_no_host_of_another(tmp_path, pools, pool, host):
    with embedded.start(tmp_path / "state", pools=pools) as server:
        status, said = _post(server.url, "/v1/exchange", token_of(tmp_path / "state"), ask(pool, host))
        assert (status, said["error"]["code"]) == (403, "other-pool")
        assert _post(server.url, "/v1/exchange", token_of(tmp_path / "state"), ask("a", "a-1-1"))[0] == 200


def test_a_token_of_a_pool_can_neither_read_nor_submit_nor_offer_a_host_to_a_site(tmp_path, pools):
    with embedded.start(tmp_path / "state", pools=pools) as server:
        token = token_of(tmp_path / "state")
        for path in ("/v1/jobs", "/v1/hosts", "/v1/pools", "/v1/tokens", "/v1/events", "/v1/machines"):
            status, said = _post(server.url, path, token, None)
            assert (status, said["error"]["code"]) == (403, "forbidden") and token not in json.dumps(said)
        assert _post(server.url, "/v1/jobs", token, b"{}")[0] == 403
        assert _post(server.url, "/v1/site/exchange", token, b"")[0] == 403


def test_a_token_that_has_ended_or_was_changed_lets_nobody_in(tmp_path, pools):
    with embedded.start(tmp_path / "state", pools=pools) as server:
        token = token_of(tmp_path / "state")
        forged = token[:-4] + ("0000" if token[-4:] != "0000" else "1111")
        assert _post(server.url, "/v1/exchange", forged, ask("a", "a-1-1"))[0] == 401
        time.sleep(8.0)
        status, said = _post(server.url, "/v1/exchange", token, ask("a", "a-2-1"))
        assert (status, said["error"]["code"]) == (401, "expired-token") and token not in json.dumps(said)


def _post(url: str, path: str, token: str, body: bytes | None) -> tuple[int, dict]:
    import urllib.error
    import urllib.request

    headers = {"Authorization": f"Bearer {token}", "Content-Type": frames.CONTENT_TYPE}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, body, headers), timeout=30) as answer:
            answer.read()
            return answer.status, {}
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
