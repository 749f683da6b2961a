"""Which version of the code made a result: a hash of the source that it depends on. Reads the package's own files."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import windfall

ROOT = Path(windfall.__file__).parent
UNRELATED = ("bench", "cli", "client", "figures", "lab", "pools", "server", "store", "worker")
"""Packages that no result of a laboratory depends on; of `lab`, its own files and the laboratory's own room count."""
RELATED = ("worker/pace.py",)
"""Files of unrelated packages that results depend on: simulated hosts hold tasks ready by the rule of the worker."""


@cache
def code_version(module: str, root: Path = ROOT) -> str:
    """Sixteen hex digits that change with the source that `module` (as `windfall.lab.hads.world`) may depend on.

    That is every package but the unrelated ones, the related files of these, the files of `lab` itself, and the folder
    of the module.
    """
    rooms = (root / "lab", root.joinpath(*module.split(".")[1:-1]))
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        is_source = path.is_file() and path.suffix in (".py", ".toml")
        counts = name.parts[0] not in UNRELATED or name.as_posix() in RELATED or path.parent in rooms
        if is_source and counts:
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
