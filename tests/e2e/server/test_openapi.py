"""Schemathesis sends what the OpenAPI document allows, and what it forbids, to a real server."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clouds import cloud_server
from tests.support.server.cluster import Cluster, cluster
from windfall.server.http import openapi

ROOT = Path(__file__).parents[3]
CONFIG = """
[parameters]
"path.job" = 1
"path.task" = 0
"path.host" = "desk"
"""
TOKENS = """
[[operations]]
include-path = "/v1/tokens/{{id}}"
parameters = {{ "path.id" = "{revoked}" }}

[[operations]]
include-path = "/v1/tokens/{{id}}/rotate"
parameters = {{ "path.id" = "{rotated}" }}
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
OF_TOKENS = "^/v1/tokens/"
"""What takes tokens away: schemathesis learns names from the list of tokens, its own among them."""
OF_POOLS = "^/v1/(what-if|pools|console|site/exchange|jobs/[^/]+/tasks)"
"""What needs a pool that rents, and frames, which schemathesis cannot make by itself."""
POOLS = """
[parameters]
"path.job" = 1
"path.pool" = "cloud"
"path.machine" = "1"
"path.action" = "pause"

# A trial of a pool whose workers come by themselves starts none.
[[operations]]
include-path = "/v1/pools/{pool}/doctor"
parameters = { "path.pool" = "mine" }
"""
ENDLESS = "^/v1/stream$"
"""Not sent by schemathesis, which would wait for the end of the answer; `test_the_stream_...` looks at it."""


def operations(paths: str) -> int:
    """How many operations of the document have such a path. Schemathesis sends no HEAD: test_uploads.py does."""
    return sum(len(each.keys() - {"head"}) for path, each in openapi.made()["paths"].items() if re.search(paths, path))


def send_all(made: Cluster, folder: Path, config: str, *words: str) -> str:
    """What schemathesis says of the requests that it was told to send."""
    hooks = {"SCHEMATHESIS_HOOKS": "tests.support.server.openapi_frames", "PYTHONPATH": str(ROOT)}
    (folder / "schemathesis.toml").write_text(config)
    ended = subprocess.run(
        [
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
            "--config-file", "schemathesis.toml", "run", f"{made.url}/openapi.json", "--wait-for-schema", "30",
            "--seed", "1", "--request-timeout", "30", "--phases", "coverage,fuzzing", "--checks", CHECKS,
            "--header", f"Authorization: Bearer {made.token}", "--no-color", *words,
        ],
        cwd=folder, env={**os.environ, **hooks}, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.mark.slow
def test_no_request_breaks_the_server_or_its_promises(tmp_path):
    with cluster(tmp_path) as made:
        made.start_server()
        made.client().submit(["true"], range(3), name="bag")
        apart = f"{OF_TOKENS}|{OF_POOLS}|{ENDLESS}"
        said = send_all(made, tmp_path, CONFIG, "--max-time", "15", "--exclude-path-regex", apart)
        assert f"Selected: {operations('') - operations(apart)}" in said, said
        # Job 1 may have been forgotten: that is one of the requests.
        assert made.client().submit(["true"], range(2), name="after").status()["name"] == "after"


@pytest.mark.slow
def test_no_request_about_tokens_breaks_the_server_or_takes_the_token_of_another(tmp_path):
    with cluster(tmp_path) as made:
        made.start_server()
        client = made.client()
        revoked, rotated = (client.create_token("read", name) for name in ("revoked", "rotated"))
        before = {row["id"] for row in client.tokens()}
        config = TOKENS.format(revoked=revoked["id"], rotated=rotated["id"])
        said = send_all(made, tmp_path, config, "--max-examples", "30", "--include-path-regex", OF_TOKENS)
        assert f"Selected: {operations(OF_TOKENS)}" in said, said
        ids = {row["id"] for row in client.tokens()}
        assert before - ids <= {revoked["id"], rotated["id"]} and revoked["id"] not in ids
        assert len(ids - before) >= 1, "a new token for that which was rotated"


@pytest.mark.slow
def test_no_request_about_pools_tasks_sites_and_sign_in_breaks_the_server(tmp_path):
    with cloud_server.served(tmp_path, cloud_server.pool() + '\n[[pool]]\nname = "mine"\nkind = "self"\n') as made:
        client = made.client()
        client._transport.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1.0}})
        spec = {"name": "open", "command": ["echo", "{}"], "source": {"kind": "lines"}}
        assert client._transport.post("/v1/jobs", {"spec": spec})["job"] == 1
        own = ("--header", "x-windfall-console: 1")
        said = send_all(made, tmp_path, POOLS, *own, "--max-examples", "20", "--include-path-regex", OF_POOLS)
        assert f"Selected: {operations(OF_POOLS)}" in said, said
        assert client.job(1).status()["tasks"]["total"], "some frames were right"
        assert client._transport.get("/v1/sites/lab")["hosts"]
        assert client.submit(["true"], range(2), name="after").status()["name"] == "after"


def test_the_stream_is_of_the_kind_that_the_document_names_and_begins_at_once(tmp_path):
    assert operations(ENDLESS) == 1
    with cluster(tmp_path) as made:
        made.start_server()
        connection = http.client.HTTPConnection("127.0.0.1", made.port, timeout=60)
        connection.request("GET", "/v1/stream", headers={"authorization": f"Bearer {made.token}"})
        answer = connection.getresponse()
        told = openapi.made()["paths"]["/v1/stream"]["get"]["responses"]["2XX"]["content"]
        assert answer.status == 200 and answer.headers.get_content_type() in told
        assert b"event: hello\n" in [answer.readline() for _ in range(4)]
        connection.close()
