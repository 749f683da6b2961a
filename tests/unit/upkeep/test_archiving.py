"""A job in one file: it can be looked at and replayed, and holds nothing that is not its own."""

from __future__ import annotations

import random
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.server.asgi import InProcess
from tests.unit.server.test_bounds import result
from windfall.client.local.server import state_location
from windfall.errors import BadInput
from windfall.sim.studies.replay import fit
from windfall.store import archives, open_store
from windfall.store.location import StateLocation
from windfall.store.view import open_view
from windfall.upkeep.archiving import archive
from windfall.upkeep.checking import check


@pytest.fixture
def state(tmp_path) -> StateLocation:
    """Two jobs that have run; the first has an input file."""
    with InProcess(tmp_path / "state") as server:
        name = sha256(b"input").hexdigest()
        server.call("PUT", f"/v1/blobs/{name}", b"input")
        server.call("PUT", f"/v1/blobs/{sha256(b'of another').hexdigest()}", b"of another")
        server.submit(1, inputs=[{"name": "in", "sha256": name, "size": 5}])
        server.submit(1, command=["echo", "secret"])
        for job in (1, 2):
            server.exchange()
            done = result(out=3)
            done[0] = job
            assert server.exchange(results=[done], attachments=b"out", want=0)[0] == 200
    return StateLocation(tmp_path / "state")


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.xz"])
def test_an_archive_is_a_state_with_one_job(state, tmp_path, ending):
    path = tmp_path / f"job{ending}"
    made = archive(state, 1, path)
    assert (made.outputs, made.files, made.bytes) == (1, 1, path.stat().st_size)
    found = state_location(str(path))
    store = open_store(found)
    try:
        assert store.job_spec(1) and store.job_spec(2) is None
        assert store.output(1, 0, 1) and store.output(2, 0, 1) is None
        assert store.tokens() == [] and store.remembered("pool-key") is None
        assert [size for _, size in store.blobs()] == [5]
    finally:
        store.close()
    with InProcess(found.directory) as server:
        status, shown = server.get("/v1/jobs/1")
        assert status == 200 and shown["state"] == "done"
        assert server.get("/v1/jobs/1/pictures")[0] == 200
    assert fit(archives.unpacked(path)).jobs


def test_the_log_of_an_archive_is_whole(state, tmp_path):
    archive(state, 1, tmp_path / "job.tar.gz", with_files=False)
    view = open_view(state_location(str(tmp_path / "job.tar.gz")))
    try:
        # Only what other jobs need is missing.
        assert all("job 2" in problem or "file" in problem for problem in check(view).problems)
    finally:
        view.close()


def test_names_and_files_that_are_no_archive_are_refused(state, tmp_path):
    (tmp_path / "there.tar.gz").write_bytes(b"not one")
    for name in ("job.zip", "there.tar.gz"):
        with pytest.raises(BadInput):
            archive(state, 1, tmp_path / name)
    with pytest.raises(BadInput, match="not an archive"):
        state_location(str(tmp_path / "there.tar.gz"))
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["state", "there.tar.gz"]


@pytest.mark.parametrize("ending", archives.ENDINGS)
def test_a_changed_archive_is_refused_whatever_was_changed(tmp_path, ending):
    """Also where only a byte of a file's content is another one: the sums are behind the last file."""
    if ending == ".tar.zst" and shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    chance = random.Random(1)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "windfall.db").write_bytes(chance.randbytes(50_000) + bytes(50_000))
    archives.pack(tmp_path / "state", tmp_path / f"-a{ending}")
    assert (archives.unpacked(tmp_path / f"-a{ending}") / "windfall.db").stat().st_size == 100_000
    whole = (tmp_path / f"-a{ending}").read_bytes()
    for _ in range(20):
        changed = bytearray(whole)
        at = chance.randrange(20, len(whole))
        changed[at] ^= 1 + chance.randrange(255)
        for data in (bytes(changed), whole[:at]):
            (tmp_path / f"b{ending}").write_bytes(data)
            with pytest.raises(BadInput, match=r"b\.tar"):
                archives.unpacked(tmp_path / f"b{ending}")
