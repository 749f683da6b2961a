"""Accounts of volunteers and the front's secret. Touches two files of its folder, readable by their owner alone.

An account's key is made from the secret and the account's number: neither it nor a password is kept anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.errors import BadInput

MAX_ACCOUNTS = 1_000_000
MAX_NAME_CHARS = 60
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder


class Account(Struct):
    """One line of the file; a later line of the same number replaces the earlier one."""

    id: int
    name: str
    email: str = ""
    """Hash of the address, keyed with the secret; empty for an account without one."""
    password: str = ""
    """Hash of the hash that clients send."""
    shows_name: bool = False
    """Whether the name may be shown on the console."""
    closed: bool = False
    generation: int = 1
    created_s: float = 0.0
    invited_by: str = ""
    """Hash of the invitation that made it."""
    while_busy: bool = False
    """Whether its machines run tasks while they are busy with other things, too."""


class Invitation(Struct):
    """Lets `left` people make an account."""

    code: str
    """Hash of the code."""
    left: int
    name: str = ""


class Line(Struct, omit_defaults=True):
    account: Account | None = None
    invitation: Invitation | None = None


class Accounts:
    """All accounts of one front, in memory by number and by address."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "accounts.jsonl"
        self.secret = secret_in(folder / "secret")
        self.by_id: dict[int, Account] = {}
        self._by_email: dict[str, int] = {}
        self._by_key: dict[str, int] = {}
        self.invitations: dict[str, Invitation] = {}
        if self._path.exists():
            decode = _decode(Line).decode
            for raw in self._path.read_bytes().splitlines():
                try:
                    line = decode(raw)
                except msgspec.MsgspecError:
                    continue  # cut off by a crash: it was not acknowledged
                self._remember(line)

    def _remember(self, line: Line) -> None:
        if line.invitation is not None:
            self.invitations[line.invitation.code] = line.invitation
        account = line.account
        if account is None:
            return
        earlier = self.by_id.get(account.id)
        if earlier is not None:
            self._by_key.pop(self.key_of(earlier), None)
        self.by_id[account.id] = account
        if not account.closed:
            self._by_key[self.key_of(account)] = account.id
        if account.email:
            self._by_email[account.email] = account.id

    def _write(self, *lines: Line) -> None:
        """Durable when this returns."""
        # It begins on a line of its own, also behind one that a crash has cut off.
        data = b"".join(b"\n" + _encode(line) for line in lines) + b"\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        for line in lines:
            self._remember(line)

    def hashed(self, what: str, text: str) -> str:
        return hmac.new(self.secret, f"{what}\0{text}".encode(), hashlib.sha256).hexdigest()

    def key_of(self, account: Account) -> str:
        """The account key (authenticator) that its clients show."""
        return self.hashed("account", f"{account.id}.{account.generation}")[:32]

    def find(self, key: str) -> Account | None:
        # A dictionary of keyed hashes: looking one up tells nothing about the others.
        return self.by_id.get(self._by_key.get(key, 0))

    def create(
        self, name: str, now: float, email: str = "", passwd_hash: str = "", shows_name: bool = False, code: str = "",
        while_busy: bool = False,
    ) -> Account:  # fmt: skip
        """A new account; with a code, one use of its invitation is taken."""
        name = name.strip()
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise BadInput(f"a volunteer's name has 1 to {MAX_NAME_CHARS} printable characters")
        if len(self.by_id) >= MAX_ACCOUNTS:
            raise BadInput(f"there are {MAX_ACCOUNTS:,} accounts already")
        account = Account(
            max(self.by_id, default=0) + 1, name, self.email_hash(email), self.password_hash(email, passwd_hash),
            shows_name, created_s=now, while_busy=while_busy,
        )  # fmt: skip
        lines = [Line(account=account)]
        if code:
            invitation = self.invitation(code)
            assert invitation is not None
            account.invited_by = invitation.code
            lines.append(Line(invitation=msgspec.structs.replace(invitation, left=invitation.left - 1)))
        self._write(*lines)
        return account

    def email_hash(self, email: str) -> str:
        return self.hashed("email", email.lower()) if email else ""

    def password_hash(self, email: str, passwd_hash: str) -> str:
        return self.hashed("password", f"{email.lower()}\0{passwd_hash}") if passwd_hash else ""

    def by_email(self, email: str) -> Account | None:
        return self.by_id.get(self._by_email.get(self.email_hash(email), 0))

    def knows_password(self, account: Account, email: str, passwd_hash: str) -> bool:
        return bool(account.password) and hmac.compare_digest(account.password, self.password_hash(email, passwd_hash))

    def invite(self, uses: int, name: str = "") -> str:
        """A new invitation code; it is shown once and only its hash is kept."""
        code = secrets.token_hex(12)
        self._write(Line(invitation=Invitation(self.hashed("invitation", code), uses, name)))
        return code

    def invitation(self, code: str) -> Invitation | None:
        """The invitation of a code that still lets somebody in."""
        found = self.invitations.get(self.hashed("invitation", code))
        return found if found is not None and found.left > 0 else None

    def close(self, number: int) -> Account | None:
        return self._changed(number, closed=True)

    def new_key(self, number: int) -> Account | None:
        """The old key is worthless from now on."""
        known = self.by_id.get(number)
        return None if known is None else self._changed(number, generation=known.generation + 1, closed=False)

    def _changed(self, number: int, **changes: object) -> Account | None:
        known = self.by_id.get(number)
        if known is None:
            return None
        changed = msgspec.structs.replace(known, **changes)
        self._write(Line(account=changed))
        return changed


def secret_in(path: Path) -> bytes:
    """The secret of this file, made once."""
    if path.exists():
        found = bytes.fromhex(path.read_text().strip())
        if len(found) >= 32:
            return found
        raise BadInput(f"{path} holds no secret", hint="put back the one from your backup: accounts depend on it")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = secrets.token_bytes(32)
    write_private(path, made.hex().encode())
    return made


def write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone may read; whole or not at all, and durable."""
    part = path.with_name(path.name + ".new")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
