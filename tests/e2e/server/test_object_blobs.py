"""A real server that keeps the files of jobs in an object store: through a crash, an outage, a backup and a copy."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server.cluster import WINDFALL, cluster
from tests.support.stores.s3 import s3

TASKS = 6


@pytest.fixture
def bucket():
    with s3("lake") as client:
        yield client


def windfall(*words):
    return subprocess.run([*WINDFALL, *words], capture_output=True, text=True, check=False)


def objects(bucket):
    found = bucket.list_objects_v2(Bucket="lake", Prefix="jobs/").get("Contents", ())
    return [entry["Key"] for entry in found if not entry["Key"].endswith("windfall-blobs")]


@pytest.mark.slow
def test_files_of_jobs_live_in_an_object_store_through_a_crash_and_go_into_a_backup(tmp_path, bucket):
    (tmp_path / "cluster").mkdir()
    data = tmp_path / "data.txt"
    data.write_bytes(b"an input\n" * 20_000)
    with cluster(tmp_path / "cluster") as made:
        made.start_server("--blobs", "s3://lake/jobs")
        client = made.client()
        made.start_worker("one")
        command = ["sh", "-c", "cat data.txt > out.txt; echo $1 >> out.txt", "sh", "{}"]
        job = client.submit(command, list(range(TASKS)), inputs=[str(data)], outputs=["out.txt"])
        made.kill_server()
        made.start_server()  # the state remembers
        ended = job.results(timeout=120)
        assert [task.state for task in ended] == ["done"] * TASKS
        assert len(objects(bucket)) == TASKS + 1
        assert not [path for path in (made.state / "blobs").rglob("*") if path.is_file()]
        backup = windfall("state", "backup", str(tmp_path / "backup"), "--state", str(made.state))
        assert backup.returncode == 0, backup.stderr
        made.stop_server()
        assert made.accepted().total() == TASKS
        check = windfall("state", "check", "--files", str(made.state))
        assert check.returncode == 0 and f"{TASKS + 1} files" in check.stdout, check.stdout + check.stderr
        refused = windfall("server", "--state", str(made.state), "--blobs", "s3://lake/other", "--listen", "0")
        assert refused.returncode == 2 and "kept in s3://lake/jobs" in refused.stderr
    bucket.delete_objects(Bucket="lake", Delete={"Objects": [{"Key": key} for key in objects(bucket)]})
    fetched = tmp_path / "fetched"
    got = windfall("results", "1", "--download", str(fetched), "--state", str(tmp_path / "backup"))
    assert got.returncode == 0, got.stderr
    texts = sorted(path.read_bytes().splitlines()[-1] for path in Path(fetched).rglob("out.txt"))
    assert texts == sorted(str(n).encode() for n in range(TASKS)), sys.stderr.write(got.stderr)
