"""Schemathesis sends what the OpenAPI document allows, and what it forbids, to a real server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.server.cluster import cluster

CONFIG = """
[parameters]
"path.job" = 1
"path.task" = 0
"path.host" = "desk"
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
APART = "^/v1/(stream|what-if|pools|console|site/exchange|jobs/[^/]+/tasks)"
"""A stream that does not end, what starts processes, sign-in, which is not for programs, and frames of chunks, which
schemathesis cannot make."""


@pytest.mark.slow
def test_no_request_breaks_the_server_or_its_promises(tmp_path):
    with cluster(tmp_path) as made:
        made.start_server()
        made.client().submit(["true"], range(3), name="bag")
        (tmp_path / "schemathesis.toml").write_text(CONFIG)
        ended = subprocess.run(
            [
                sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
                "--config-file", "schemathesis.toml", "run", f"{made.url}/openapi.json", "--wait-for-schema", "30",
                "--max-time", "15", "--seed", "1", "--request-timeout", "30", "--phases", "coverage,fuzzing",
                "--checks", CHECKS, "--header", f"Authorization: Bearer {made.token}",
                "--exclude-path-regex", APART, "--no-color",
            ],
            cwd=tmp_path, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
        # Job 1 may have been forgotten: that is one of the requests.
        assert made.client().submit(["true"], range(2), name="after").status()["name"] == "after"
