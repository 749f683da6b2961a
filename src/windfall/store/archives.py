"""A state directory as one file: packed, and unpacked to look at it. Touches files; runs `zstd` for `.tar.zst`."""

from __future__ import annotations

import atexit
import gzip
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO, cast

from windfall.errors import BadInput
from windfall.files import check_writable, make_room

ENDINGS = (".tar.gz", ".tar.xz", ".tar.zst")
_ZSTD = ".tar.zst"
_BROKEN = (zlib.error, lzma.LZMAError)
"""What compressed data raise that were changed."""


def is_archive(name: str | os.PathLike[str]) -> bool:
    return os.fspath(name).endswith(ENDINGS) and Path(name).is_file()


def check_name(path: Path) -> None:
    """BadInput unless an archive of this name can be written."""
    if not path.name.endswith(ENDINGS):
        raise BadInput(f"{path}: an archive ends with {', '.join(ENDINGS)}")
    check_writable(path)
    if path.exists():
        raise BadInput(f"{path} is there already", hint="name another file, or move it away first")
    if path.name.endswith(_ZSTD):
        _zstd()


def pack(directory: Path, path: Path) -> None:
    """Write what is in a directory to an archive: whole, or not there at all."""
    parts = path.with_name(f"{path.name}.part-{os.getpid()}")
    make_room(path)
    try:
        if path.name.endswith(_ZSTD):
            plain = parts.with_name(f"{parts.name}.tar")
            try:
                _write(directory, plain, "w")
                _run([_zstd(), "-q", "-f", "-o", str(parts), "--", str(plain)], path)
            finally:
                plain.unlink(missing_ok=True)
        else:
            _write(directory, parts, "w:gz" if path.name.endswith(".gz") else "w:xz")
        parts.rename(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    finally:
        parts.unlink(missing_ok=True)


def unpacked(path: str | os.PathLike[str]) -> Path:
    """A directory with what is in an archive; it is removed when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="windfall-archive-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    source = Path(path)
    if source.name.endswith(_ZSTD):
        _run([_zstd(), "-q", "-d", "-o", str(home / "plain.tar"), "--", str(source)], source)
        source = home / "plain.tar"
    try:
        with _opened(source) as stream:
            _extract(stream, home / "state")
    except (tarfile.TarError, OSError, EOFError, ValueError, *_BROKEN) as error:
        raise BadInput(f"{path}: not an archive of a job, or damaged ({error})") from None
    return home / "state"


def _opened(source: Path) -> IO[bytes]:
    """The archive without its compression, the sums of which are compared at its end."""
    if source.name.endswith(".gz"):
        return cast(IO[bytes], gzip.open(source))
    return lzma.open(source) if source.name.endswith(".xz") else open(source, "rb")


def _extract(stream: IO[bytes], target: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            if member.size > shutil.disk_usage(target.parent).free:
                raise OSError(f"{member.name} has {member.size:,} bytes, more than there is space")
            tar.extract(member, target, filter="data")
    while stream.read(1 << 20):
        pass  # behind the last file are the sums


def _write(directory: Path, path: Path, mode: str) -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        tar.add(directory, arcname=".")


def _zstd() -> str:
    found = shutil.which("zstd")
    if found is None:
        raise BadInput(f"{_ZSTD} needs the program zstd", hint="install it, or use an archive that ends with .tar.gz")
    return found


def _run(command: list[str], path: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"{path}: {done.stderr.strip() or 'zstd failed'}")
