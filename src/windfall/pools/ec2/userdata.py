"""What a machine runs when it boots: a script for cloud-init that fetches the worker and runs it. Pure.

The script runs at each boot, because a machine that was stopped comes back with its disk and without its processes.
When the worker ends the machine shuts down, except where the provider is about to take it.

Tasks can read user data from the metadata service, so the token in it is a ticket. The host's secret is in a file of
root. `start.py` reads both, gives up root, and becomes the worker in the same process: there is no moment in which
another process of the account could read its memory.
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
# Runs one worker of Windfall under an account of its own. When it ends, this machine shuts down.
umask 022
end() {{
    echo "windfall: $1; this machine shuts down"
    shutdown -h now
    exit "$2"
}}
mkdir -p {folder}/work && cd {folder} || end "the folder cannot be made" 1
[ "$(id -u)" != 0 ] || id {account} >/dev/null 2>&1 ||
    useradd --system --shell /bin/sh --home-dir {folder}/work {account} ||
    adduser -S -D -H -s /bin/sh {account} || end "the account {account} cannot be made" 1
(umask 077; cat >token) <<'windfall'
{token}
windfall
cat >start.py <<'windfall'
{start}
windfall
{certificate}[ -s worker.pyz ] ||
    {python} - {server} {patience_s:g} <<'windfall' || end "the server cannot be reached" 1
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
_START = """\
import io, os, pwd, runpy, secrets, sys
account, server, *sys.argv = sys.argv[1:]
if not os.path.exists("secret"):
    with open(os.open("secret.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
        file.flush()
        os.fsync(file.fileno())
    os.replace("secret.new", "secret")
with open("token") as token, open("secret") as secret:
    given = "%s\\n%s %s\\n" % (server, token.read().strip(), secret.read().strip())
if os.getuid() == 0 and account != "root":
    who = pwd.getpwnam(account)
    os.chown("work", who.pw_uid, who.pw_gid)
    os.initgroups(account, who.pw_gid)
    os.setgid(who.pw_gid)
    os.setuid(who.pw_uid)
    os.environ.update(HOME=os.path.abspath("work"), USER=account, LOGNAME=account)
os.umask(0o077)
sys.stdin = io.StringIO(given)
runpy.run_path(sys.argv[0], run_name="__main__")"""
_CERTIFICATE = """\
cat >ca.pem <<'windfall'
{pem}
windfall
"""
_FETCH = """\
import os, ssl, sys, time, urllib.request
until_s, wait_s = time.monotonic() + float(sys.argv[2]), 1.0
context = ssl.create_default_context(cafile="ca.pem") if os.path.exists("ca.pem") else None
while True:
    for url in sys.argv[1].split(","):
        try:
            with urllib.request.urlopen(url.rstrip("/") + "/worker.pyz", timeout=30, context=context) as answer:
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
    *, server: str, ticket: str, certificate: str, folder: str, python: str, account: str, patience_s: float,
    options: Sequence[str],
) -> str:  # fmt: skip
    """User data as cloud-init reads it. Nothing but `ticket` is secret, and no command line shows it.

    After `patience_s` seconds in which the worker cannot be fetched the machine shuts down.
    """
    command = [python, "start.py", account, server, "worker.pyz", "--server", "-", "--dir", "work"]
    command += ["--cafile", "ca.pem"] if certificate else []
    script = _SCRIPT.format(
        folder=shlex.quote(folder),
        account=shlex.quote(account),
        token=ticket.strip(),
        start=_START,
        certificate=_CERTIFICATE.format(pem=certificate.strip()) if certificate else "",
        python=shlex.quote(python),
        server=shlex.quote(server),
        patience_s=patience_s,
        fetch=_FETCH,
        command=shlex.join([*command, *options]),
        reclaimed=RECLAIMED,
    )
    return _MESSAGE.format(script=script)
