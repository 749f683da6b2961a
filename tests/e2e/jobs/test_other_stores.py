"""Inputs, outputs and the files of a whole server in gs:// and az://: real workers, obstore and emulators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.support.server.cluster import cluster
from tests.support.stores.az import az
from tests.support.stores.gs import gs
from windfall import Client

DATA = b"one\ntwo\nthree\n"
LARGE = bytes(range(256)) * 80_000
"""More than one part of an upload."""


@pytest.fixture(scope="module", params=[gs, az], ids=["gs", "az"])
def address(request, tmp_path_factory) -> Iterator[str]:
    with request.param("lake", tmp_path_factory.mktemp("store")) as made:
        yield made


def opened(address: str):
    from obstore.store import from_url

    return from_url(address)


def content(address: str, path: str) -> bytes:
    import obstore

    return bytes(obstore.get(opened(address), path).bytes())


def test_a_bag_reads_and_writes_objects(address, tmp_path):
    import obstore

    obstore.put(opened(address), "raw/data.csv", DATA)
    with Client(state=tmp_path, slots=2) as client:
        job = client.submit(
            ["sh", "-c", "wc -l < data.csv > out.txt; echo $1 >> out.txt", "sh", "{}"], [1, 2], max_failures=1,
            inputs=[f"{address}/raw/data.csv"], outputs=[f"out.txt={address}/results/{{#}}.txt"],
        )  # fmt: skip
        ended = sorted(job.results(timeout=120), key=lambda task: task.task)
    assert [task.state for task in ended] == ["done", "done"], [(task.text, task.stderr) for task in ended]
    written = [content(address, f"results/{n}.txt") for n in (0, 1)]
    assert [text.split() for text in written] == [[b"3", b"1"], [b"3", b"2"]]
    name, url, size, sha256 = ended[1].stored[0]
    assert (name, url, size) == ("out.txt", f"{address}/results/1.txt", len(written[1]))
    assert sha256 == hashlib.sha256(written[1]).hexdigest()


def test_an_input_that_is_not_there_fails_with_its_address(address, tmp_path):
    with Client(state=tmp_path, slots=1) as client:
        job = client.submit(["cat", "none"], [1], max_failures=1, inputs=[f"{address}/none"])
        (task,) = job.results(timeout=120)
    assert task.state == "failed" and f"{address}/none" in task.text


@pytest.mark.slow
def test_a_server_keeps_the_files_of_jobs_there_through_a_crash(address, tmp_path):
    import obstore

    data = tmp_path / "data.bin"
    data.write_bytes(LARGE)
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster") as made:
        made.start_server("--blobs", f"{address}/jobs")
        client = made.client()
        made.start_worker("one")
        job = client.submit(
            ["sh", "-c", "cat data.bin > out.bin; echo $1 >> out.bin", "sh", "{}"], [1, 2], inputs=[str(data)],
            outputs=["out.bin"],
        )  # fmt: skip
        made.kill_server()
        made.start_server()
        assert [task.state for task in job.results(timeout=120)] == ["done"] * 2
        made.stop_server()
        assert made.accepted().total() == 2
        assert not [path for path in (made.state / "blobs").rglob("*") if path.is_file()]
    kept = {entry["path"]: entry["size"] for page in obstore.list(opened(f"{address}/jobs")) for entry in page}
    blobs = {path: size for path, size in kept.items() if path != "windfall-blobs"}
    assert sorted(blobs.values()) == [len(LARGE), len(LARGE) + 2, len(LARGE) + 2]
    assert content(f"{address}/jobs", next(path for path, size in blobs.items() if size == len(LARGE))) == LARGE
