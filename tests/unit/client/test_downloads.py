"""Output files on their way to a user: whole or not there, whatever the server, the network and the disk do."""

from __future__ import annotations

import errno
import http.client
import io
from hashlib import sha256
from types import SimpleNamespace

import pytest

from tests.support.server.stub_server import StubServer, error
from windfall.cli.jobs.fetch import _download
from windfall.client import Client, transport
from windfall.errors import BadInput, WindfallError

CONTENT = bytes(range(256)) * 10_000
NAME = sha256(CONTENT).hexdigest()
LOST = "0" * 64


def answer(method: str, path: str, body: bytes) -> tuple[int, bytes]:
    if path == f"/v1/blobs/{NAME}":
        return 200, CONTENT
    if path == f"/v1/blobs/{LOST}":
        return error(404, "no-such-blob", "there is no blob 000000000000")
    return 200, b'{"version": "0", "protocol": 2, "ok": true, "jobs": []}' if "blobs" not in path else b"damaged"


@pytest.fixture
def client():
    with StubServer(answer) as server, Client(server.url, "wf_a_b") as made:
        yield made


def test_a_file_is_written_whole_and_keeps_what_was_there_if_it_comes_damaged(client, tmp_path):
    client.save_blob(NAME, tmp_path / "sub" / "out")
    assert (tmp_path / "sub" / "out").read_bytes() == CONTENT == client.blob(NAME)
    for fetch in (lambda: client.save_blob("1" * 64, tmp_path / "sub" / "out"), lambda: client.blob("1" * 64)):
        with pytest.raises(WindfallError, match="another content than its name says"):
            fetch()
    assert (tmp_path / "sub" / "out").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["out"]


def test_a_file_that_breaks_off_is_asked_for_again_from_its_beginning(client, tmp_path, monkeypatch):
    real, broken = http.client.HTTPResponse.read, []

    def breaks_once(response, amount=None):
        if amount is not None and len(broken) < 2:
            broken.append(amount)
            return real(response, 1000) if len(broken) == 1 else b""
        return real(response, amount)

    monkeypatch.setattr(http.client.HTTPResponse, "read", breaks_once)
    client._transport.patience_s = 20.0
    client.save_blob(NAME, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == CONTENT and len(broken) == 2


def test_a_full_disk_is_no_fault_of_the_server(client):
    class Full(io.BytesIO):
        name = "there"

        def write(self, piece) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    client._transport.patience_s = 20.0
    with pytest.raises(BadInput, match="there: No space left"):
        client._transport.request("GET", f"/v1/blobs/{NAME}", into=Full())


def test_one_file_that_the_server_has_lost_keeps_nobody_from_the_others(client, tmp_path, capsys):
    rows = [
        SimpleNamespace(task=number, name="", outputs=[["out", name, 1, 0o640]])
        for number, name in enumerate([LOST, NAME, "1" * 64, NAME])
    ]
    with pytest.raises(WindfallError, match="2 files could not be fetched; 2 could"):
        _download(client, rows, tmp_path, as_json=False)
    assert sorted(path.name for path in tmp_path.iterdir() if (path / "out").exists()) == ["1", "3"]
    assert (tmp_path / "1" / "out").stat().st_mode & 0o777 == 0o640
    said = capsys.readouterr().err
    assert "task 0 has lost its output 'out'" in said and "task 2 has lost" in said


def test_what_a_download_keeps_in_memory_is_one_piece(client, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_PIECE_BYTES", 4096)
    pieces = []
    real = transport._write
    monkeypatch.setattr(transport, "_write", lambda into, piece: pieces.append(len(piece or b"")) or real(into, piece))
    client.save_blob(NAME, tmp_path / "out")
    assert max(pieces) == 4096 and sum(pieces) == len(CONTENT)
