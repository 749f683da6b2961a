"""What a machine runs when it boots: a script for cloud-init that fetches the worker and runs it. Pure.

The script runs at each boot, because a machine that was stopped comes back with its disk and without its processes.
When the worker ends the machine shuts down, except where the provider is about to take it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

MOST_BYTES = 16384
"""EC2 refuses longer user data."""
RECLAIMED = 75
"""Exit code of a worker that left because its machine is being reclaimed (`windfall.worker.metadata`)."""
_MESSAGE = """\
Content-Type: multipart/mixed; boundary="==windfall=="
MIME-Version: 1.0

--==windfall==
Content-Type: text/cloud-config; charset="us-ascii"

#cloud-config
cloud_final_modules:
- [scripts-user, always]

--==windfall==
Content-Type: text/x-shellscript; charset="us-ascii"

{script}
--==windfall==--
"""
_SCRIPT = """\
#!/bin/sh
# Runs one worker of Windfall. When it ends, this machine shuts down.
umask 077
end() {{
    echo "windfall: $1; this machine shuts down"
    shutdown -h now
    exit "$2"
}}
mkdir -p {folder} && cd {folder} || end "the folder cannot be made" 1
[ -s token ] || cat >token <<'windfall'
{token}
windfall
{certificate}[ -s worker.pyz ] || {python} - {url} {patience_s:g} <<'windfall' || end "the server cannot be reached" 1
{fetch}
windfall
{command}
code=$?
if [ $code = {reclaimed} ]; then
    echo "windfall: the machine is being reclaimed"
    sleep 300
fi
end "the worker ended with code $code" "$code"
"""
_CERTIFICATE = """\
cat >ca.pem <<'windfall'
{pem}
windfall
"""
_FETCH = """\
import os, ssl, sys, time, urllib.request
url, until_s, wait_s = sys.argv[1], time.monotonic() + float(sys.argv[2]), 1.0
context = ssl.create_default_context(cafile="ca.pem") if os.path.exists("ca.pem") else None
while True:
    try:
        with urllib.request.urlopen(url, timeout=30, context=context) as answer:
            data = answer.read()
        with open("worker.new", "wb") as file:
            file.write(data)
        os.replace("worker.new", "worker.pyz")
        sys.exit(0)
    except OSError as error:
        print("windfall: %s: %s" % (url, error), flush=True)
    if time.monotonic() + wait_s > until_s:
        sys.exit(1)
    time.sleep(wait_s)
    wait_s = min(60.0, 2 * wait_s)"""


def user_data(
    *, server: str, token: str, certificate: str, folder: str, python: str, patience_s: float, options: Sequence[str]
) -> str:  # fmt: skip
    """User data as cloud-init reads it. Nothing but `token` is secret, and no command line shows it.

    After `patience_s` seconds in which the worker cannot be fetched the machine shuts down.
    """
    command = [python, "worker.pyz", "--server", server, "--token-file", "token", "--dir", "."]
    command += ["--cafile", "ca.pem"] if certificate else []
    script = _SCRIPT.format(
        folder=shlex.quote(folder),
        token=token.strip(),
        certificate=_CERTIFICATE.format(pem=certificate.strip()) if certificate else "",
        python=shlex.quote(python),
        url=shlex.quote(f"{server.rstrip('/')}/worker.pyz"),
        patience_s=patience_s,
        fetch=_FETCH,
        command=shlex.join([*command, *options]),
        reclaimed=RECLAIMED,
    )
    return _MESSAGE.format(script=script)
