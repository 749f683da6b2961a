"""What may be wrong with a batch system, said in plain words. Touches its commands and the shared folder.

Whether a worker reaches the server from a node is seen by the worker on trial, which the server starts after these.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from windfall.pools.batch.submit import PACKAGE, Answer
from windfall.pools.batch.systems import System
from windfall.pools.contract import CREDENTIALS, QUOTA, Check, PoolError
from windfall.pools.starting.calls import call
from windfall.pools.starting.shipped import one_line

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def programs(system: System, limit_s: float) -> list[Check]:
    """The commands are there, and say which version they are."""
    checks = []
    for program in dict.fromkeys(words[0] for words in (system.version, system.listing, system.cancel)):
        found = shutil.which(program) is not None
        hint = f"run the server on a host where {system.title}'s commands work, such as a login node"
        checks.append(Check(f"{program} can be run", "" if found else "there is no such program", hint))
    if not any(check.error for check in checks):
        called = call(system.version, b"", limit_s)
        said = one_line(called.stdout.decode(errors="replace")) or one_line(called.stderr)
        failed = called.trouble or (f"exit code {called.code}: {said}" if called.code else "")
        what = f"{system.title} {'' if failed else f'is {said}, '}submitted to through {PACKAGE} {version(PACKAGE)}"
        checks.append(Check(what, failed, f"by hand: {' '.join(system.version)}"))
    return checks


def answers(system: System, jobs: Sequence[object] | PoolError) -> Check:
    what = f"{system.listing[0]} lists the jobs of this user"
    if not isinstance(jobs, PoolError):
        return Check(what)
    return Check(what, jobs.error, f"by hand: {' '.join(system.listing[:2])}; if it works only sometimes, wait")


def writable(folder: Path) -> Check:
    what = f"{folder} can be written"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / ".doctor").write_text("")
        (folder / ".doctor").unlink()
    except OSError as error:
        return Check(what, error.strerror or str(error), 'name one that the nodes share: folder = "/home/me/windfall"')
    return Check(what)


def accepted(system: System, answer: Answer, queue: str, account: str) -> Check:
    """The finding of a dry run."""
    asked = [f"partition {queue}" if queue else "the default partition", f"account {account}" if account else ""]
    what = f"{system.title} would accept a worker's job ({', '.join(part for part in asked if part)})"
    if answer.error is None:
        return Check(what)
    return Check(what, answer.error.error, _advice(system, answer.error))


def _advice(system: System, error: PoolError) -> str:
    text = error.error.lower()
    if "partition" in text and "account" not in text:
        return 'see the partitions: sinfo   (then partition = "...")'
    if "account" in text:
        return 'see your accounts: sacctmgr show associations user=$USER   (then account = "...")'
    if "feature" in text:
        return "see the features of the nodes: sinfo -o '%n %f'   (then constraint = \"...\")"
    if error.kind == CREDENTIALS:
        return f"ask those who run {system.title} whether you may submit there"
    if error.kind == QUOTA:
        return "ask for less: walltime, slots, cores or memory"
    return f"the settings are passed on as they are: read what {system.title} says about them"


def reachable(system: System, server: str, stated: bool, limit_s: float) -> Check:
    """A server that listens on this host alone is no use to other nodes."""
    what = f"the server has an address for the nodes: {server}"
    if not system.nodes or urlsplit(server).hostname not in _LOOPBACK:
        return Check(what)
    called = call(system.nodes, b"", limit_s)
    names = set(called.stdout.decode(errors="replace").split())
    here = socket.gethostname()
    others = sorted(names - {here, here.partition(".")[0]})
    if not others:
        return Check(what)
    wrong = f"only this host reaches that address, and {others[0]} is another"
    if stated:
        return Check(what, wrong, 'say how the nodes reach the server: server = "http://head.example.org:7272"')
    return Check(what, wrong, "start the server with --listen 0.0.0.0:7272")
