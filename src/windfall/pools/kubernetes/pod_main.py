"""What a pod runs: fetches the worker from its server and becomes it. Standard library of Python 3.8 only.

Called as: run.py LIFETIME SERVER TICKET-FILE OPTIONS, where the options are those of the worker and LIFETIME is the
pod's own limit in seconds. It counts from the start of the pod, and pulling the image may have taken minutes of it.

The token is a ticket: tasks can read its file as long as the pod lives, and it is good with the secret of this worker
alone. The secret is made here and goes to the worker through a pipe: it is in no file.
"""

import os
import secrets
import ssl
import sys
import time
import urllib.request
from typing import List

PATIENCE_S = 60.0
"""Longest wait for the first answer of the server; shorter if the worker would wait less."""
SHORTEST_S = 1.0


def option(name: str, options: List[str]) -> str:
    return options[options.index(name) + 1] if name in options else ""


def fetch(server: str, cafile: str, patience_s: float) -> bytes:
    """The worker's file, from any of the addresses; a failed download is tried again for `patience_s`."""
    context = ssl.create_default_context(cafile=cafile or None) if server.startswith("https") else None
    until, failure = time.monotonic() + patience_s, Exception()
    while True:
        for url in server.split(","):
            try:
                with urllib.request.urlopen(url.rstrip("/") + "/worker.pyz", timeout=10, context=context) as answer:
                    content: bytes = answer.read()
                    return content
            except (OSError, ValueError) as error:
                failure = error
        if time.monotonic() > until:
            sys.exit("windfall: the server at %s cannot be reached from this pod: %s" % (server, failure))
        time.sleep(2.0)


def give(server: str, ticket_file: str) -> None:
    """Have the worker read its server, its ticket and its secret from the standard input, a pipe."""
    with open(ticket_file) as file:
        ticket = file.read().strip()
    read, write = os.pipe()
    os.write(write, ("%s\n%s %s\n" % (server, ticket, secrets.token_hex(32))).encode())
    os.close(write)
    os.dup2(read, 0)
    os.close(read)


def main(argv: List[str]) -> None:
    if sys.version_info < (3, 8):
        sys.exit("windfall: the worker needs Python 3.8 or newer; this image has " + sys.version.split()[0])
    lifetime_s, server, ticket_file, options = float(argv[0]), argv[1], argv[2], argv[3:]
    folder = option("--dir", options)
    # The folder is as old as the pod: it is made before the image is pulled, and nothing has been written there.
    born_t = os.stat(folder).st_mtime
    worker = os.path.join(folder, "worker.pyz")
    patience_s = min(PATIENCE_S, float(option("--unreachable-exit", options) or PATIENCE_S))
    content = fetch(server, option("--cafile", options), patience_s)
    with open(worker, "wb") as file:
        file.write(content)
    left_s = max(SHORTEST_S, lifetime_s - max(0.0, time.time() - born_t))
    give(server, ticket_file)
    os.execv(sys.executable, [sys.executable, worker, "--server", "-", *options, "--lifetime", "%.0fs" % left_s])


if __name__ == "__main__":
    main(sys.argv[1:])
