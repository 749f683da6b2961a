"""What workers of earlier versions sent, to the byte, is understood by this server.

Files below tests/data/protocol are named by the version of the protocol and the commit of the worker.
"""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.asgi import InProcess
from windfall import wire
from windfall.wire import ATTEMPT, HOST_SECRET, frames

FOLDER = Path(__file__).parents[2] / "data" / "protocol"
RECORDED = sorted(FOLDER.glob("*.json"))
NEEDED = {"n", "jobs", "tasks", "cancel", "hand_back", "watch", "next_s", "tell", "stop"}
"""Fields of an answer that workers of protocols 1 and 2 read."""


def test_there_is_a_recording_of_every_version_that_is_served():
    served = {version for version in range(wire.VERSION + 2) if wire.is_served(version)}
    assert {int(path.name.partition("-")[0]) for path in RECORDED} >= served


def sent_again(body: bytes) -> bytes:
    """The same message, but for an answer at once: nobody waits in a test."""
    header, attachments = frames.split(body)
    changed = json.loads(bytes(header)) | {"wait_s": 0.0}
    return frames.join(json.dumps(changed).encode(), [bytes(attachments)])


def replay(server: InProcess, recorded: dict[str, Any]) -> None:
    token = server.service.tokens.create("worker", "", 0.0)
    for message in recorded["messages"]:
        headers = {"authorization": f"Bearer {token}"} | ({HOST_SECRET.lower(): "a" * 64} if message["secret"] else {})
        headers |= {ATTEMPT.lower(): message["attempt"]} if "attempt" in message else {}
        body = base64.b64decode(message["body"])
        is_exchange = message["path"] == "/v1/exchange"
        sent = sent_again(body) if is_exchange else body
        status, _, answer = server.run(server.full(message["method"], message["path"], sent, headers))
        if is_exchange:
            assert status == 200, (message, answer)
            told = json.loads(bytes(frames.split(answer)[0]))
            assert told["v"] == json.loads(bytes(frames.split(body)[0]))["v"] and told.keys() >= NEEDED
        else:
            assert status == message["status"], (message["method"], message["path"], answer)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_an_earlier_worker_sent_is_understood(tmp_path, path):
    recorded = json.loads(path.read_text())
    with InProcess(tmp_path / "state") as server:
        for blob in map(base64.b64decode, recorded["blobs"]):
            assert server.call("PUT", f"/v1/blobs/{sha256(blob).hexdigest()}", blob)[0] == 201
        tasks = recorded["tasks"]
        asked = {"spec": recorded["spec"], "count": tasks["total"], "seal": True}
        assert server.post("/v1/jobs", asked)[0] == 201
        replay(server, recorded)
        assert server.get("/v1/jobs/1")[1]["tasks"] == tasks
        server.check()


@pytest.mark.parametrize("version", [0, wire.VERSION + 1, 2**40])
def test_a_worker_of_another_protocol_is_told_what_to_do(tmp_path, version):
    with InProcess(tmp_path / "state") as server:
        status, answer = server.exchange(v=version)
        assert status == 426 and answer["error"]["code"] == "wrong-version"
        assert f"version {version} of the protocol" in answer["error"]["message"]
        assert "worker.pyz" in answer["error"]["hint"]
        assert server.get("/v1/hosts")[1]["hosts"] == [], "it is not known by that"
