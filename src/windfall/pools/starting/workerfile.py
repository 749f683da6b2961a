"""The worker as one file, built from the sources of this package, the same bytes each time. Touches those only."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path

import windfall

_MAIN = """\
import os, sys
if sys.version_info < (3, 8):
    sys.stderr.write("windfall: the worker needs Python 3.8 or newer; this is " + sys.version.split()[0] + "\\n")
    sys.exit(2)
from windfall.worker.__main__ import main
code = main()
sys.stderr.flush()
os._exit(code)
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def worker_pyz() -> bytes:
    """A zip application: `python3 worker.pyz --server URL`. It needs nothing but the standard library."""
    root = Path(windfall.__file__).parent
    files = {
        "__main__.py": _MAIN,
        "windfall/__init__.py": f'"""The worker of Windfall."""\n\n__version__ = "{windfall.__version__}"\n',
    }
    for package in ("wire", "worker"):
        for path in sorted((root / package).rglob("*.py")):
            files[f"windfall/{path.relative_to(root).as_posix()}"] = path.read_text()
    buffer = io.BytesIO(b"#!/usr/bin/env python3\n")
    buffer.seek(0, io.SEEK_END)
    # Stored, not deflated: the same bytes with every zlib, and quicker to import.
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name])
    return buffer.getvalue()
