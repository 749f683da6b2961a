"""The code signing key, the launcher and its signature. Touches the front's folder and, once, the C compiler.

The launcher is the only file that is signed. So the private key is needed when the launcher or the key changes and at
no other time: it may be kept on another machine (docs/howto/boinc.md).
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct, field

from windfall.boinc import rsa
from windfall.boinc.accounts import write_private
from windfall.errors import BadInput

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "launcher" / "launcher.c"
PLATFORM = "x86_64-pc-linux-gnu"
FIRST_VERSION = 100
KEY_FILE = "code_sign.key"
BUILD_S = 120.0


class Signed(Struct):
    """The launcher that clients get, and the keys by which they know it (`signed.json`)."""

    version: int
    file: str
    size: int
    md5: str
    signature: str
    source: str
    """sha256 of the source that it was built from; empty for one that was given."""
    modulus: str
    """Of the public key, hexadecimal."""
    changes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the text of an earlier public key: the next one, and its signature by the earlier."""

    @property
    def public(self) -> rsa.PublicKey:
        return rsa.PublicKey(int(self.modulus, 16))


class Keys:
    """What lies in the front's folder: `signed.json`, the launcher, and `code_sign.key` unless it is kept elsewhere."""

    def __init__(self, folder: Path, key: Path | None = None) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key_path, self._signed_path = key or folder / KEY_FILE, folder / "signed.json"
        self._next_path = self._key_path.with_name(self._key_path.name + ".next")

    def open(self) -> Signed:
        """The signed launcher, built and signed if there is none, or if its source has changed."""
        signed = self.read()
        if signed is None or (signed.source not in ("", _source()) and self.key_is_here()):
            return self.sign()
        if signed.source not in ("", _source()):
            log.warning("the launcher has changed and the signing key is not here: the old one is sent")
        return signed

    def key_is_here(self) -> bool:
        return self._key_path.exists()

    def sign(self, launcher: bytes | None = None) -> Signed:
        """Sign the launcher, this one or the one that is compiled here. Makes the key if nothing was signed yet."""
        signed, source = self.read(), "" if launcher is not None else _source()
        if signed is None:
            key = self._private(None) or self._make_key()
            return self._sign(self.build() if launcher is None else launcher, key, FIRST_VERSION, source, {})
        own = self._private(signed)
        if own is None:
            raise self._no_key()
        if launcher is None and signed.source == source:
            return signed
        data = self.build() if launcher is None else launcher
        if _md5(data) == signed.md5:
            return signed
        return self._sign(data, own, signed.version + 1, source, signed.changes)

    def read(self) -> Signed | None:
        if not self._signed_path.exists():
            return None
        try:
            signed = msgspec.json.decode(self._signed_path.read_bytes(), type=Signed)
        except msgspec.MsgspecError as error:
            raise BadInput(f"{self._signed_path} cannot be read: {error}", hint="put it back from a backup") from None
        data = (self.folder / signed.file).read_bytes() if (self.folder / signed.file).exists() else b""
        if _md5(data) != signed.md5 or not rsa.verify(signed.public, data, signed.signature):
            raise BadInput(
                f"{self.folder / signed.file} is not the launcher that was signed", hint="put it back from a backup"
            )
        return signed

    def rotate(self) -> Signed:
        """Another key; clients accept it because the old one has signed it."""
        signed = self.read()
        old = None if signed is None else self._private(signed)
        if signed is None or old is None:
            raise self._no_key()
        new = rsa.generate()
        text = new.public.text()
        changes = {**signed.changes, old.public.text(): (text, rsa.sign(old, text.encode()))}
        # The old key is kept until the new one is in use: whatever fails before leaves all as it was.
        write_private(self._next_path, _encoded(new))
        made = self._sign((self.folder / signed.file).read_bytes(), new, signed.version + 1, signed.source, changes)
        self._next_path.replace(self._key_path)
        return made

    def _no_key(self) -> BadInput:
        return BadInput(
            f"the signing key is not here: {self._key_path}",
            hint="put it back, or sign on the machine that has it (windfall boinc sign), then windfall boinc reload",
        )

    def _private(self, signed: Signed | None) -> rsa.PrivateKey | None:
        """The key that has signed the launcher; None if no key is here. A crash in `rotate` leaves it as the next."""
        found = [read_key(path) for path in (self._key_path, self._next_path) if path.exists()]
        if signed is None or not found:
            return found[0] if found else None
        for key in found:
            if key.public == signed.public:
                return key
        raise BadInput(
            f"{self._key_path} is not the key that has signed {signed.file}",
            hint="clients know the project by that one",
        )

    def _make_key(self) -> rsa.PrivateKey:
        key = rsa.generate()
        write_private(self._key_path, _encoded(key))
        return key

    def _sign(
        self, data: bytes, key: rsa.PrivateKey, version: int, source: str, changes: dict[str, tuple[str, str]]
    ) -> Signed:
        # Another name for another content: clients keep files by name.
        file = f"windfall_{version}_{PLATFORM}"
        write_private(self.folder / file, data)
        signed = Signed(version, file, len(data), _md5(data), rsa.sign(key, data), source, f"{key.modulus:x}", changes)
        write_private(self._signed_path, msgspec.json.format(msgspec.json.encode(signed)))
        return signed

    def build(self) -> bytes:
        """The launcher, compiled here and linked statically."""
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise BadInput(
                "there is no C compiler for the launcher of BOINC clients", hint="sudo apt-get install gcc libc6-dev"
            )
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "launcher"
            command = [compiler, "-O2", "-Wall", "-static", "-s", "-o", str(made), str(SOURCE)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise BadInput(f"the launcher cannot be compiled: {error}") from None
            if done.returncode:
                raise BadInput(
                    f"the launcher cannot be compiled: {done.stderr.strip()[-500:]}",
                    hint="sudo apt-get install gcc libc6-dev",
                )
            return made.read_bytes()


def follows(new: Signed, held: str) -> bool:
    """Whether a client that holds this key accepts the new one, perhaps over keys between."""
    seen = 0
    while held != new.public.text() and held in new.changes and seen <= len(new.changes):
        following, signature = new.changes[held]
        if not rsa.verify(rsa.public_of(held), following.encode(), signature):
            return False
        held, seen = following, seen + 1
    return held == new.public.text()


def _source() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _encoded(key: rsa.PrivateKey) -> bytes:
    return msgspec.json.encode({"modulus": f"{key.modulus:x}", "secret": f"{key.secret:x}"})


class _KeyFile(Struct):
    modulus: str
    secret: str


def read_key(path: Path) -> rsa.PrivateKey:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_KeyFile)
        return rsa.PrivateKey(int(found.modulus, 16), int(found.secret, 16))
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path} holds no signing key: {error}") from None
