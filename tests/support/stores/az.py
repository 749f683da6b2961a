"""An az:// for tests: Azurite, Microsoft's emulator, as a process of its own (npm install azurite)."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server.cluster import free_port
from tests.support.stores.s3 import named

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own: its manual prints them."""
VERSION = "2021-08-06"
PATIENCE_S = 60.0


def program() -> str:
    """Azurite's blob service, or a skipped test. `make test-stores` installs it."""
    folder = Path(os.environ.get("WINDFALL_AZURITE") or Path.home() / ".cache/windfall/azurite")
    found = shutil.which("azurite-blob") or shutil.which("azurite-blob", path=str(folder / "node_modules/.bin"))
    if found is None:
        pytest.skip("Azurite is not installed (sh tools/azurite.sh)")
    return found


@contextmanager
def az(container: str, directory: Path) -> Iterator[str]:
    """The container exists, and the environment of this process names the server. Gives the container's address."""
    port = free_port()
    command = [program(), "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]
    with open(directory / "azurite.log", "wb") as log:
        process = subprocess.Popen([*command, "--location", str(directory / "azurite")], stdout=log, stderr=log)
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    said = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_ENDPOINT": endpoint,
        "AZURE_ALLOW_HTTP": "true",
    }  # fmt: skip
    try:
        _await(port, process)
        _create(endpoint, container)
        with named(said):
            yield f"az://{container}"
    finally:
        process.terminate()
        process.wait()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < end, "Azurite does not answer"
            time.sleep(0.05)


def _create(endpoint: str, container: str) -> None:
    date = email.utils.formatdate(usegmt=True)
    signed = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), ("PUT" + "\n" * 12 + signed).encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date, "x-ms-version": VERSION, "Content-Length": "0",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
    }  # fmt: skip
    url = f"{endpoint}/{container}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()
