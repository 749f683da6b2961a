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
    """What lies in the front's folder: `code_sign.key` (it may be elsewhere), `signed.json`, the launcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key_path, self._signed_path = folder / "code_sign.key", folder / "signed.json"

    def open(self) -> Signed:
        """The signed launcher, built and signed if there is none, or if its source has changed."""
        signed = self.read()
        source = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
        if signed is None:
            key = self._private() or self._make_key()
            return self._sign(self.build(), key, FIRST_VERSION, source, {})
        if signed.source in ("", source):
            return signed
        own = self._private()
        if own is None:
            log.warning("the launcher has changed and the signing key is not here: the old one is sent")
            return signed
        return self._sign(self.build(), own, signed.version + 1, source, signed.changes)

    def read(self) -> Signed | None:
        if not self._signed_path.exists():
            return None
        try:
            signed = msgspec.json.decode(self._signed_path.read_bytes(), type=Signed)
        except msgspec.MsgspecError as error:
            raise BadInput(f"{self._signed_path} cannot be read: {error}", hint="put it back from a backup") from None
        data = (self.folder / signed.file).read_bytes() if (self.folder / signed.file).exists() else b""
        if hashlib.md5(data, usedforsecurity=False).hexdigest() != signed.md5 or not rsa.verify(
            signed.public, data, signed.signature
        ):
            raise BadInput(
                f"{self.folder / signed.file} is not the launcher that was signed", hint="put it back from a backup"
            )
        return signed

    def rotate(self) -> Signed:
        """Another key; clients accept it because the old one has signed it."""
        signed, old = self.read(), self._private()
        if signed is None or old is None:
            raise BadInput("the signing key is not here", hint=f"put {self._key_path} back for this command")
        new = rsa.generate()
        text = new.public.text()
        changes = {**signed.changes, old.public.text(): (text, rsa.sign(old, text.encode()))}
        # The old key is kept until the new one is in use: whatever fails before leaves all as it was.
        write_private(self.folder / "code_sign.key.next", _encoded(new))
        made = self._sign((self.folder / signed.file).read_bytes(), new, signed.version + 1, signed.source, changes)
        (self.folder / "code_sign.key.next").replace(self._key_path)
        return made

    def _private(self) -> rsa.PrivateKey | None:
        return read_key(self._key_path) if self._key_path.exists() else None

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
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        signed = Signed(version, file, len(data), md5, rsa.sign(key, data), source, f"{key.modulus:x}", changes)
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
