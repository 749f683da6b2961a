"""Inputs and outputs in object stores and on the web: real workers, obstore and moto's S3."""

from __future__ import annotations

import hashlib
import http.server
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.support.stores.s3 import KEYS, s3
from windfall import Client
from windfall.errors import BadInput

BUCKET = "lake"
DATA = b"one\ntwo\nthree\n"


@pytest.fixture(scope="module")
def lake():
    with s3(BUCKET) as client:
        client.put_object(Bucket=BUCKET, Key="raw/data.csv", Body=DATA)
        yield client


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def client(lake, state):
    with Client(state=state, slots=2) as made:
        yield made


def run(client, command, **settings):
    job = client.submit(["sh", "-c", command, "sh", "{}"], [1, 2], max_failures=1, **settings)
    return sorted(job.results(timeout=120), key=lambda task: task.task)


def test_a_bag_reads_and_writes_objects(client, lake):
    ended = run(
        client, "wc -l < data.csv > out.txt; echo $1 >> out.txt", inputs=["s3://lake/raw/data.csv"],
        outputs=["out.txt=s3://lake/results/{#}.txt"],
    )  # fmt: skip
    assert [task.state for task in ended] == ["done", "done"], [(task.text, task.stderr) for task in ended]
    written = [lake.get_object(Bucket=BUCKET, Key=f"results/{n}.txt")["Body"].read() for n in (0, 1)]
    assert [text.split() for text in written] == [[b"3", b"1"], [b"3", b"2"]]
    name, url, size, sha256 = ended[1].stored[0]
    assert (name, url, size) == ("out.txt", "s3://lake/results/1.txt", len(written[1]))
    assert sha256 == hashlib.sha256(written[1]).hexdigest()
    assert ended[1].outputs == []


def test_a_pattern_of_outputs_goes_below_an_address_and_a_file_to_the_server(client, lake):
    ended = run(
        client,
        "mkdir d; echo a > d/a$1; echo b > d/b$1; echo c > kept",
        outputs=["d/*=s3://lake/many/", "kept"],
        inputs=["s3://lake/raw/data.csv"],
    )
    assert [task.state for task in ended] == ["done", "done"], [task.text for task in ended]
    keys = {entry["Key"] for entry in lake.list_objects_v2(Bucket=BUCKET, Prefix="many/")["Contents"]}
    assert keys == {"many/d/a1", "many/d/b1", "many/d/a2", "many/d/b2"}
    assert [file[0] for file in ended[0].outputs] == ["kept"]


def test_an_object_is_fetched_once_a_version_and_a_new_version_is_seen(client, lake, state):
    for text in (b"old", b"new"):
        lake.put_object(Bucket=BUCKET, Key="live", Body=text)
        ended = run(client, "cat x", inputs=["x=s3://lake/live"])
        told = [(task.state, task.stdout, task.text, task.stderr) for task in ended]
        assert told == [("done", text.decode(), None, "")] * 2


def test_what_is_not_there_or_has_another_digest_fails_with_its_address(client):
    (task, _) = run(client, "cat none", inputs=["s3://lake/none"])
    assert (task.cause, "s3://lake/none" in task.text, "there is no such file" in task.text) == ("inputs", True, True)
    wrong = f"data=s3://lake/raw/data.csv#sha256={'0' * 64}"
    (task, _) = run(client, "cat data", inputs=[wrong])
    assert task.cause == "inputs"
    assert "sha256" in task.text
    right = f"data=s3://lake/raw/data.csv#sha256={hashlib.sha256(DATA).hexdigest()}"
    assert [task.stdout for task in run(client, "cat data", inputs=[right])] == [DATA.decode()] * 2


def test_files_of_the_web_need_no_library(client, tmp_path):
    (tmp_path / "page").write_bytes(b"w" * 100_000)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        ended = run(client, "wc -c < page", inputs=[f"http://127.0.0.1:{server.server_port}/page"])
        assert [task.stdout.strip() for task in ended] == ["100000"] * 2
        (task, _) = run(client, "true", inputs=[f"http://127.0.0.1:{server.server_port}/none"])
        assert "answers 404" in task.text
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inputs": ["ftp://host/x"]}, "of a kind that hosts do not know"),
        ({"inputs": ["https://me:secret@host/x"]}, "holds a credential"),
        ({"inputs": ["https://b.s3.amazonaws.com/x?X-Amz-Signature=abc"]}, "holds a credential"),
        ({"inputs": ["x=s3://lake"]}, "names no file"),
        ({"inputs": ["x=s3://lake/a#md5=1"]}, "is no digest"),
        ({"outputs": ["x=https://host/x"]}, "cannot be written to"),
        ({"outputs": ["s3://lake/x"]}, "must be a relative path"),
        ({"inputs": ["../x=s3://lake/x"]}, "must be a relative path"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused_before_anything_is_sent(client, settings, words):
    with pytest.raises(BadInput, match=words):
        client.submit("true {}", [1], **settings)


def test_no_credential_is_in_the_state(client, state, lake):
    run(client, "cat data.csv", inputs=["s3://lake/raw/data.csv"])
    secret = KEYS["AWS_SECRET_ACCESS_KEY"].encode()
    for path in (path for path in Path(state).rglob("*") if path.is_file()):
        assert secret not in path.read_bytes(), path
