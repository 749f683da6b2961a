"""Files of stores: read in parts that go on where they broke, checked, kept by version; texts without secrets."""

from __future__ import annotations

import hashlib

import pytest

from windfall.bags.remote_files import check_address, split_named
from windfall.errors import BadInput
from windfall.worker.transport import stores
from windfall.worker.transport.stores import Changed, Interrupted, Version, cache_key, fetch
from windfall.worker.transport.transfers import destination_of

DATA = bytes(range(250)) * 4


class Store:
    """1,000 bytes, and a connection that breaks before these parts are read."""

    def __init__(self, breaks: list[int]) -> None:
        self.breaks = breaks
        self.asked: list[int] = []

    def read(self, start: int, length: int, etag: str) -> bytes:
        self.asked.append(start)
        if start in self.breaks:
            self.breaks.remove(start)
            raise Interrupted("broken")
        return DATA[start : start + length]


@pytest.fixture
def store(monkeypatch):
    made = Store([300])
    monkeypatch.setattr(stores, "PART_BYTES", 300)
    monkeypatch.setattr(stores, "_store", lambda address: made)
    return made


def test_a_broken_transfer_goes_on_where_it_broke(store, tmp_path):
    partial, version = str(tmp_path / "part"), Version(len(DATA), "v1")
    with pytest.raises(Interrupted):
        fetch("gs://bucket/file", version, partial)
    fetch("gs://bucket/file", version, partial)
    assert store.asked == [0, 300, 300, 600, 900]
    assert (tmp_path / "part").read_bytes() == DATA


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_file_with_another_digest_is_thrown_away(store, tmp_path, kind):
    store.breaks.clear()
    partial = tmp_path / "part"
    right = hashlib.new(kind, DATA).hexdigest()
    for digest, is_right in ((right, True), (right[::-1], False)):
        address = "s3://bucket/file" + (f"#sha256={digest}" if kind == "sha256" else "")
        version = Version(len(DATA), f'"{digest}"' if kind == "md5" else '"1-2"')
        if is_right:
            fetch(address, version, str(partial))
            partial.unlink()
        else:
            with pytest.raises(Changed, match=kind):
                fetch(address, version, str(partial))
            assert not partial.exists()


def test_the_cache_knows_versions_and_digests():
    one, two = Version(10, "v1"), Version(10, "v2")
    assert cache_key("s3://b/f", one) != cache_key("s3://b/f", two)
    digest = "a" * 64
    assert cache_key(f"s3://b/f#sha256={digest}", one) == cache_key(f"gs://c/g#sha256={digest}", two) == digest


def test_texts_of_errors_hold_the_address_and_no_query():
    def fail():
        raise RuntimeError("Authorization: secret")

    with pytest.raises(Interrupted) as told:
        stores._said("s3://bucket/file?part=7", fail)
    assert str(told.value) == "s3://bucket/file: RuntimeError"


def test_outputs_go_where_their_pattern_says():
    destinations = [("out.txt", "s3://b/1.txt"), ("plots/*", "s3://b/plots/"), ("dir", "s3://b/all/")]
    found = [destination_of(name, destinations) for name in ("out.txt", "plots/a.png", "dir/x/y", "other")]
    assert found == ["s3://b/1.txt", "s3://b/plots/plots/a.png", "s3://b/all/dir/x/y", ""]


@pytest.mark.parametrize(
    ("text", "named"),
    [("s3://b/k/file.csv", ("file.csv", "s3://b/k/file.csv")), ("x=https://h/a?b=c", ("x", "https://h/a?b=c")),
     ("https://h/a?b=c", ("a", "https://h/a?b=c")), ("name=path/file", None), ("path", None)],
)  # fmt: skip
def test_addresses_are_told_from_paths(text, named):
    assert split_named(text) == named


@pytest.mark.parametrize(
    "address",
    [
        "https://u:p@h/x",
        "https://u@h/x",
        "https://h/x?sig=1",
        "https://h/x?X-Amz-Credential=1",
        "https://h/x?api_key=1",
    ],
)
def test_an_address_with_a_credential_is_refused_and_not_repeated(address):
    with pytest.raises(BadInput, match="holds a credential") as refused:
        check_address(address, "input")
    assert "p@" not in str(refused.value) and "=1" not in str(refused.value)
