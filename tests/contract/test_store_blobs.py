"""What every store promises (windfall.store.contract) of blobs, in its own place and in an object store."""

import hashlib
from itertools import count

import pytest

from tests.contract.conftest import made
from tests.support.server.stores import SqliteKit
from tests.support.stores.az import az
from tests.support.stores.gs import gs
from tests.support.stores.s3 import s3
from windfall.errors import BadInput
from windfall.store.blobs import objects
from windfall.store.contract import StoreCorrupt, StoreError, StoreFenced

_prefixes = count(1)


@pytest.fixture(scope="module")
def bucket():
    with s3("kept") as client:
        yield client


@pytest.fixture(scope="module")
def s3_bucket(bucket):
    return "s3://kept"


@pytest.fixture(scope="module")
def gs_bucket(tmp_path_factory):
    with gs("kept", tmp_path_factory.mktemp("gs")) as address:
        yield address


@pytest.fixture(scope="module")
def az_bucket(tmp_path_factory):
    with az("kept", tmp_path_factory.mktemp("az")) as address:
        yield address


@pytest.fixture(
    params=["memory", "sqlite", "postgres", "sqlite in s3", "postgres in s3", "sqlite in gs", "sqlite in az"]
)
def kit(request, tmp_path):
    """Each store with blobs in its own place, and the two that last with blobs in an object store."""
    kind, _, elsewhere = request.param.partition(" in ")
    kit = made(kind, request, tmp_path)
    if elsewhere:
        kit.store.keep_blobs_at(f"{request.getfixturevalue(f'{elsewhere}_bucket')}/state-{next(_prefixes)}")
    yield kit
    kit.close()


@pytest.fixture
def store(kit):
    return kit.store


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_blobs_come_from_bytes_files_and_pieces(store, tmp_path):
    content = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(content + b"f")
    pieces = (content[i : i + 1000] for i in range(0, len(content), 1000))
    for blob, source in ((content + b"b", content + b"b"), (content + b"f", tmp_path / "file"), (content, pieces)):
        assert store.blob_size(sha256(blob)) is None
        assert store.put_blob(sha256(blob), source) == len(blob)
        assert store.blob_size(sha256(blob)) == len(blob)
        with store.open_blob(sha256(blob)) as file:
            assert file.read(10) == blob[:10]
            assert file.read() == blob[10:]


def test_a_file_of_the_spool_becomes_a_blob(store):
    file = store.spool() / f"tmp-{sha256(b'received')[:16]}"
    file.write_bytes(b"received")
    try:
        assert store.adopt_blob(sha256(b"received"), file) == 8
    finally:
        file.unlink(missing_ok=True)
    with store.open_blob(sha256(b"received")) as content:
        assert content.read() == b"received"


def test_blobs_are_listed_and_removed(store):
    for content in (b"one", b"three"):
        store.put_blob(sha256(content), content)
    for content in (b"one", b"never kept"):
        store.remove_blob(sha256(content))
    listed = dict(store.blobs())
    assert listed.get(sha256(b"three")) == 5 and sha256(b"one") not in listed
    assert store.blob_size(sha256(b"one")) is None
    assert store.put_blob(sha256(b"one"), b"one") == 3


def test_a_blob_may_be_put_twice_and_may_be_empty(kit):
    for content in (b"twice", b"twice", b""):
        assert kit.store.put_blob(sha256(content), content) == len(content)
    store = kit.reopen()
    for content in (b"twice", b""):
        with store.open_blob(sha256(content)) as file:
            assert file.read() == content


def test_a_blob_with_another_hash_is_refused_and_not_kept(store):
    for source in (b"wrong", iter([b"wro", b"ng"])):
        with pytest.raises(BadInput, match="has another hash"):
            store.put_blob(sha256(b"right"), source)
    assert store.blob_size(sha256(b"right")) is None
    with pytest.raises(KeyError):
        store.open_blob(sha256(b"right"))


def test_a_source_that_breaks_off_leaves_no_blob(store):
    def source():
        yield b"some"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.put_blob(sha256(b"some"), source())
    assert store.blob_size(sha256(b"some")) is None
    store.put_blob(sha256(b"some"), b"some")


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_nothing_but_a_hash_names_a_blob(store, name):
    for call in (store.blob_size, store.open_blob, lambda name: store.put_blob(name, b"")):
        with pytest.raises(BadInput, match="is no sha256"):
            call(name)


# In an object store


@pytest.fixture
def away(bucket, tmp_path):
    kit = SqliteKit(tmp_path / "away")
    kit.prefix = f"state-{next(_prefixes)}"
    kit.store.keep_blobs_at(f"s3://kept/{kit.prefix}/")
    yield kit
    kit.close()


def keys(bucket, prefix):
    return {entry["Key"] for entry in bucket.list_objects_v2(Bucket="kept", Prefix=f"{prefix}/").get("Contents", ())}


def test_a_state_remembers_the_object_store_and_keeps_nothing_beside_it(away, bucket):
    away.store.put_blob(sha256(b"content"), b"content")
    name = sha256(b"content")
    assert keys(bucket, away.prefix) == {f"{away.prefix}/windfall-blobs", f"{away.prefix}/{name[:2]}/{name}"}
    assert not list((away.directory / "blobs").rglob(name))
    assert away.reopen().blob_size(name) == 7


def test_a_large_blob_is_sent_in_parts_and_read_in_pieces(away, monkeypatch):
    monkeypatch.setattr(objects, "_PART_BYTES", 5 << 20)
    monkeypatch.setattr(objects, "_READ_BYTES", 1 << 20)
    content = bytes(range(256)) * 50_000
    spooled = away.store.spool() / "tmp-large"
    spooled.write_bytes(content)
    assert away.store.adopt_blob(sha256(content), spooled) == len(content) and not spooled.exists()
    with away.store.open_blob(sha256(content)) as file:
        assert b"".join(iter(lambda: file.read(700_001), b"")) == content


def test_another_object_store_or_one_in_use_is_refused(away, tmp_path, bucket):
    away.store.keep_blobs_at(f"s3://kept/{away.prefix}")  # the same one
    with pytest.raises(BadInput, match=rf"kept in s3://kept/{away.prefix}, not in s3://kept/other"):
        away.store.keep_blobs_at("s3://kept/other")
    other = SqliteKit(tmp_path / "other")
    try:
        with pytest.raises(BadInput, match="is not empty"):
            other.store.keep_blobs_at(f"s3://kept/{away.prefix}")
        other.store.put_blob(sha256(b"own"), b"own")
        with pytest.raises(BadInput, match="kept beside it"):
            other.store.keep_blobs_at("s3://kept/fresh")
    finally:
        other.close()


@pytest.mark.parametrize(
    "address",
    ["s3://bucket", "s3:///x", "/folder", "ftp://host/x", "s3://me:key@bucket/x", "s3://bucket/x?token=1", ""],
)
def test_only_a_bucket_and_a_prefix_are_an_address(address):
    with pytest.raises(BadInput, match=r"no place for files|only a bucket and a prefix") as told:
        objects.plain_address(address)
    assert "key" not in told.value.message and "token" not in told.value.message


def test_a_server_that_was_replaced_removes_no_object(away):
    name = sha256(b"kept")
    away.store.put_blob(name, b"kept")
    before = away.store
    away.store = away.take_over()
    with pytest.raises(StoreFenced):
        before.remove_blob(name)
    assert dict(away.store.blobs()) == {name: 4}


def test_a_bucket_that_was_emptied_is_called_damaged(away, bucket):
    bucket.delete_object(Bucket="kept", Key=f"{away.prefix}/windfall-blobs")
    with pytest.raises(StoreCorrupt, match="holds no files of a state any more"):
        away.store.check_blobs()


def test_an_object_store_that_cannot_be_reached_is_an_error_that_passes(away, monkeypatch):
    away.store.put_blob(sha256(b"before"), b"before")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(objects, "_GIVE_UP_S", 0.2)
    store = away.reopen()
    calls = (
        lambda: store.put_blob(sha256(b"x"), b"x"), lambda: store.blob_size(sha256(b"before")),
        lambda: list(store.blobs()), store.check_blobs,
    )  # fmt: skip
    for call in calls:
        with pytest.raises(StoreError, match="cannot do it now") as told:
            call()
        assert told.value.retryable and "127.0.0.1:9" not in told.value.message
    monkeypatch.undo()
    assert away.reopen().blob_size(sha256(b"before")) == 6
