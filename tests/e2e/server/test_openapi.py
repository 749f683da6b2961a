"""Schemathesis sends what the OpenAPI document allows, and what it forbids, to a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server.cluster import Cluster, cluster

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
APART = "^/v1/(stream|what-if|pools|console|site/exchange|jobs/[^/]+/tasks|tokens/)"
"""A stream that does not end, what starts processes, sign-in, which is not for programs, frames of chunks, which
schemathesis cannot make, and what takes tokens away: it learns names from the list of tokens, its own among them."""


def send_all(made: Cluster, folder: Path, config: str, *words: str) -> str:
    """What schemathesis says of the requests that it was told to send."""
    (folder / "schemathesis.toml").write_text(config)
    ended = subprocess.run(
        [
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
            "--config-file", "schemathesis.toml", "run", f"{made.url}/openapi.json", "--wait-for-schema", "30",
            "--seed", "1", "--request-timeout", "30", "--phases", "coverage,fuzzing", "--checks", CHECKS,
            "--header", f"Authorization: Bearer {made.token}", "--no-color", *words,
        ],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.mark.slow
def test_no_request_breaks_the_server_or_its_promises(tmp_path):
    with cluster(tmp_path) as made:
        made.start_server()
        made.client().submit(["true"], range(3), name="bag")
        send_all(made, tmp_path, CONFIG, "--max-time", "15", "--exclude-path-regex", APART)
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
        said = send_all(made, tmp_path, config, "--max-examples", "30", "--include-path-regex", "^/v1/tokens/")
        assert "Selected: 2" in said, said
        ids = {row["id"] for row in client.tokens()}
        assert before - ids <= {revoked["id"], rotated["id"]} and revoked["id"] not in ids
        assert len(ids - before) >= 1, "a new token for that which was rotated"
