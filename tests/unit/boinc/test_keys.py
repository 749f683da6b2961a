"""Keys and signatures, as BOINC clients check them; accounts and what is kept of them."""

from __future__ import annotations

import hashlib
import os

import msgspec
import pytest

from windfall.boinc import rsa
from windfall.boinc.accounts import Accounts
from windfall.boinc.keys import Keys, follows
from windfall.boinc.uploads import NEVER, Refused, UploadHead, Uploads
from windfall.errors import BadInput


@pytest.fixture(scope="module")
def key():
    return rsa.generate()


def test_a_signature_is_the_padded_hexadecimal_md5_under_the_key(key):
    signature = rsa.sign(key, b"program")
    raw = int(("".join(signature.split())).removesuffix("."), 16)
    padded = pow(raw, key.exponent, key.modulus).to_bytes(128, "big")
    assert padded == b"\x00\x01" + b"\xff" * 93 + b"\x00" + hashlib.md5(b"program").hexdigest().encode()
    assert rsa.verify(key.public, b"program", signature)
    assert not rsa.verify(key.public, b"other", signature)
    assert not rsa.verify(rsa.generate().public, b"program", signature)


def test_the_public_key_is_written_as_clients_read_it(key):
    lines = key.public.text().split("\n")
    assert lines[0] == "1024" and lines[-1] == "." and len(lines) == 10
    assert all(len(line) == 64 for line in lines[1:-1])
    assert lines[-2].endswith("010001") and int("".join(lines[1:5]), 16) == key.modulus


class Unbuilt(Keys):
    """Keys whose launcher is not compiled."""

    def build(self) -> bytes:
        return b"launcher"


def test_keys_are_readable_by_their_owner_alone_and_survive_a_restart(tmp_path):
    folder = tmp_path / "boinc"
    signed = Unbuilt(folder).open()
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert Unbuilt(folder).open() == signed
    assert rsa.verify(signed.public, b"launcher", signed.signature)


def test_the_launcher_is_sent_without_the_private_key(tmp_path):
    signed = Unbuilt(tmp_path).open()
    (tmp_path / "code_sign.key").unlink()
    assert Unbuilt(tmp_path).open() == signed
    with pytest.raises(BadInput, match="the signing key is not here"):
        Unbuilt(tmp_path).rotate()


def test_a_new_key_is_signed_by_the_old_one(tmp_path):
    keys = Unbuilt(tmp_path)
    first = keys.open()
    second = keys.rotate()
    third = keys.rotate()
    assert (first.version, second.version, third.version) == (100, 101, 102)
    text, signature = third.changes[first.public.text()]
    assert text == second.public.text() and rsa.verify(first.public, text.encode(), signature)
    text, signature = third.changes[second.public.text()]
    assert text == third.public.text() and rsa.verify(second.public, text.encode(), signature)


def test_the_folder_that_goes_to_the_server_is_signed_elsewhere(tmp_path):
    folder, key = tmp_path / "for-server", tmp_path / "code_sign.key"
    signed = Unbuilt(folder, key).sign()
    assert key.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(["signed.json", signed.file])
    # The server needs nothing else; it neither compiles nor makes a key.
    server = Keys(folder)
    server.build = None
    assert server.open() == signed and not server.key_is_here()
    assert rsa.verify(signed.public, b"launcher", signed.signature)


def test_a_launcher_that_was_compiled_elsewhere_is_signed_once(tmp_path):
    keys = Unbuilt(tmp_path / "for-server", tmp_path / "code_sign.key")
    first, second = keys.sign(b"mine"), keys.sign(b"other")
    assert (first.version, second.version, second.source) == (100, 101, "")
    assert keys.sign(b"other") == second and Keys(keys.folder).open() == second


def test_another_key_than_that_of_the_launcher_signs_nothing(tmp_path):
    folder = tmp_path / "for-server"
    signed = Unbuilt(folder, tmp_path / "mine.key").sign()
    Unbuilt(tmp_path / "elsewhere", tmp_path / "other.key").sign()
    other, none = Unbuilt(folder, tmp_path / "other.key"), Unbuilt(folder, tmp_path / "none.key")
    for order in (other.rotate, lambda: other.sign(b"new")):
        with pytest.raises(BadInput, match="is not the key that has signed"):
            order()
    for order in (none.rotate, none.sign):
        with pytest.raises(BadInput, match="the signing key is not here"):
            order()
    assert Keys(folder).read() == signed


def test_clients_follow_a_chain_of_keys_and_no_other(tmp_path):
    keys = Unbuilt(tmp_path / "a", tmp_path / "a.key")
    first, second, third = keys.sign(), keys.rotate(), keys.rotate()
    stranger = Unbuilt(tmp_path / "b", tmp_path / "b.key").sign()
    assert all(follows(third, signed.public.text()) for signed in (first, second, third))
    assert not follows(stranger, first.public.text()) and not follows(first, second.public.text())
    # A change that the held key did not sign: clients would refuse it.
    forged = {first.public.text(): (stranger.public.text(), "00" * 128 + "\n.")}
    assert not follows(msgspec.structs.replace(stranger, changes=forged), first.public.text())
    assert not follows(msgspec.structs.replace(stranger, changes={"x": (stranger.public.text(), "")}), "x")


def test_a_rotation_that_was_cut_short_goes_on_with_the_new_key(tmp_path):
    keys = Unbuilt(tmp_path)
    keys.open()
    old = (tmp_path / "code_sign.key").read_bytes()
    second = keys.rotate()
    # As if it had crashed before the last step.
    (tmp_path / "code_sign.key").replace(tmp_path / "code_sign.key.next")
    (tmp_path / "code_sign.key").write_bytes(old)
    third = Unbuilt(tmp_path).rotate()
    assert follows(third, second.public.text()) and third.version == second.version + 1


def test_a_launcher_that_was_changed_on_the_disk_is_refused(tmp_path):
    signed = Unbuilt(tmp_path).open()
    (tmp_path / signed.file).write_bytes(b"another")
    with pytest.raises(BadInput, match="not the launcher that was signed"):
        Unbuilt(tmp_path).open()


def test_an_account_is_found_by_its_key_after_a_crash_in_the_middle_of_a_line(tmp_path):
    accounts = Accounts(tmp_path)
    ada = accounts.create("Ada", 1.0)
    with open(tmp_path / "accounts.jsonl", "ab") as file:
        file.write(b'{"account":{"id":2,"na')
    again = Accounts(tmp_path)
    assert again.find(again.key_of(ada)) == ada
    bob = again.create("Bob", 2.0)
    assert bob.id == 2 and Accounts(tmp_path).find(again.key_of(bob)) == bob
    assert accounts.key_of(ada).encode() not in (tmp_path / "accounts.jsonl").read_bytes()


def test_a_closed_account_and_an_old_key_let_nobody_in(tmp_path):
    accounts = Accounts(tmp_path)
    ada = accounts.create("Ada", 1.0)
    old = accounts.key_of(ada)
    renewed = accounts.new_key(ada.id)
    assert renewed is not None and accounts.find(old) is None
    assert accounts.find(accounts.key_of(renewed)) == renewed
    accounts.close(ada.id)
    assert accounts.find(accounts.key_of(renewed)) is None


def test_an_invitation_makes_as_many_accounts_as_it_says(tmp_path):
    accounts = Accounts(tmp_path)
    code = accounts.invite(1)
    assert accounts.invitation("x") is None and accounts.invitation(code) is not None
    accounts.create("Ada", 1.0, "a@example.org", "0" * 32, code=code)
    assert Accounts(tmp_path).invitation(code) is None
    found = accounts.by_email("A@example.org")
    assert found is not None and accounts.knows_password(found, "a@example.org", "0" * 32)
    assert not accounts.knows_password(found, "a@example.org", "1" * 32)


def head(uploads: Uploads, **changes) -> UploadHead:
    name, most = "w1_0_1_1_0", 100
    made = UploadHead(name, most, 5, hashlib.md5(b"hello").hexdigest(), 0, uploads.certificate(name, most))
    for field, value in changes.items():
        setattr(made, field, value)
    return made


async def _nothing():
    return
    yield b""


@pytest.mark.parametrize(
    "changes",
    [{"name": "w1_1_1_1_0"}, {"most_bytes": 101}, {"certificate": ""}, {"size": 101}, {"certificate": "00" * 32 + "."}],
)
def test_an_upload_must_match_what_was_announced(tmp_path, changes):
    uploads = Uploads(tmp_path / "uploads", os.urandom(32))
    with pytest.raises(Refused) as refused:
        uploads.check(head(uploads, **changes))
    assert refused.value.status == NEVER


def test_an_upload_is_visible_only_when_it_is_whole(tmp_path):
    import asyncio

    uploads = Uploads(tmp_path / "uploads", os.urandom(32))
    good = head(uploads)
    with pytest.raises(Refused):
        asyncio.run(uploads.receive(good, b"hel", _nothing()))
    assert uploads.whole(good.name, good.md5) is None and uploads.stored(good.name) == 3
    good.offset = 3
    uploads.check(good)
    asyncio.run(uploads.receive(good, b"lo", _nothing()))
    path = uploads.whole(good.name, good.md5)
    assert path is not None and path.read_bytes() == b"hello"
    assert uploads.whole(good.name, "0" * 32) is None
    uploads.forget(good.name)
    assert list((tmp_path / "uploads").iterdir()) == []
