"""Tasks in a sandbox of their own, by bubblewrap: the system read-only, a private /tmp, no other process, no network,
no sockets of services in /run.

A task sees its own directory as before. The folder of the worker, with its secret and with results of other tasks, and
the file of its token are hidden; where that lies in the state of a server, so is all of that state. Runs bubblewrap.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from typing import Any, Sequence

PROGRAM = "bwrap"
NAME = "bubblewrap"
DATABASE = "windfall.db"
"""A directory with this file is the state of a server. Reading it is enough to make tokens of pools."""
_CHECK_S = 20.0
_NEEDED_OF_RUN = (
    "/run/current-system", "/run/opengl-driver", "/run/systemd/resolve/stub-resolv.conf",
    "/run/systemd/resolve/resolv.conf", "/run/resolvconf/resolv.conf", "/run/NetworkManager/resolv.conf",
)  # fmt: skip
"""Programs (NixOS) and names of servers. The rest of /run is hidden: it has the sockets of the host's services, such as
a container engine, and a read-only file system keeps nobody from connecting to a socket."""


class Unavailable(Exception):
    """This host cannot isolate tasks; the text says why."""


def check() -> None:
    """Unavailable unless a sandbox can be made here."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise Unavailable("--isolate needs bubblewrap\n  install it: apt-get install bubblewrap")
    argv = [program, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--", "/bin/true"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_CHECK_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"bubblewrap does not run here: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Unavailable(f"bubblewrap cannot make a sandbox here: {said[-300:]}\n  are user namespaces allowed?")


def settings_of(folder: str, token_file: str | None, network: bool) -> dict[str, Any]:
    """What a runner needs. `folder`: that of all workers of this account."""
    # Programs of the worker itself may lie in its folder.
    shown = [path for path in sys.path if path and os.path.exists(path) and _is_below(path, folder)]
    files = [os.path.abspath(token_file)] if token_file else []
    beside = [os.path.dirname(os.path.realpath(file)) for file in files]
    hidden = [place for place in beside if os.path.exists(os.path.join(place, DATABASE))]
    return {
        "folder": folder, "files": files, "hidden": hidden, "shown": shown, "programs": below_tmp(), "network": network,
    }  # fmt: skip


def below_tmp() -> list[str]:
    """The interpreter and this program, where they lie below /tmp: calls of Python need them in their private /tmp."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    places = {sys.prefix, sys.base_prefix, package}
    return sorted(path for path in places if os.path.exists(path) and _is_below(path, "/tmp"))


def _is_below(path: str, folder: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(folder).rstrip("/") + "/")


def argv_of(settings: dict[str, Any], argv: Sequence[str], folder: str, own: Sequence[str]) -> list[str]:
    """The command line that runs `argv` in `folder`. `own`: further places that it may use."""
    made = [PROGRAM, "--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    made += ["--unshare-cgroup-try"] + ([] if settings["network"] else ["--unshare-net"])
    made += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    for path in ("/run", "/var/run"):
        if os.path.isdir(path) and not os.path.islink(path):
            made += ["--tmpfs", path]
    for path in filter(os.path.exists, _NEEDED_OF_RUN):
        made += ["--ro-bind", path, path]
    for device in (*glob.glob("/dev/nvidia*"), "/dev/dri", "/dev/kfd"):
        made += ["--dev-bind-try", device, device]
    for path in settings["programs"]:
        made += ["--ro-bind", path, path]
    for path in (*settings["hidden"], settings["folder"]):
        made += ["--tmpfs", path]
    for path in settings["shown"]:
        made += ["--ro-bind", path, path]
    for path in (folder, *own):
        made += ["--bind-try", path, path]
    for path in settings["files"]:
        if os.path.exists(path):
            made += ["--ro-bind", os.devnull, path]
    return [*made, "--chdir", folder, "--", *argv]
