"""What an ssh pool does on a host: sent to its Python 3.8 through standard input, with its request.

Touches the pool's folder there and the processes in it. Standard library only; prints one JSON document. Nothing waits
for a connection: a worker runs in a session of its own, and its folder says what became of it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from typing import Any

REQUEST: dict[str, Any] = json.loads("{}")  # the pool puts its request here
# The shell stays until the worker has ended, so that its exit code is known; signals go to the worker itself.
_RUN = '"$@" >>worker.log 2>&1 & echo $! >pid.new && mv pid.new pid; wait $!; echo $? >exit'
_LAST_WORDS_BYTES = 2000


def born(pid: int) -> str:
    """Start time and session of a process; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else f"{fields[19].decode()} {fields[3].decode()}"


def text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def write_private(path: str, data: bytes) -> None:
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)


def touch(path: str) -> None:
    with open(path, "a"):
        pass


def root() -> str:
    base: str = os.path.expanduser(REQUEST["folder"])
    # Hosts may share this folder; each looks only at workers of its own, whose processes it can see.
    return os.path.join(base, REQUEST["owner"], REQUEST["pool"], REQUEST["at"].replace("/", "_"))


def start() -> dict[str, Any]:
    worker = os.path.join(os.path.expanduser(REQUEST["folder"]), f"worker-{REQUEST['version']}.pyz")
    if not os.path.exists(worker):
        if not REQUEST.get("worker"):
            return {"send": "worker"}
        os.makedirs(os.path.dirname(worker), mode=0o700, exist_ok=True)
        write_private(worker, base64.b64decode(REQUEST["worker"]))
    folder = os.path.join(root(), REQUEST["host"])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.path.exists(os.path.join(folder, "begun")):
        return {"id": REQUEST["host"]}
    write_private(os.path.join(folder, "token"), REQUEST["token"].encode())
    command = [
        sys.executable,
        worker,
        "--token-file",
        "token",
        "--forget-token-file",
        "--dir",
        folder,
        *REQUEST["options"],
    ]
    if REQUEST.get("certificate"):
        write_private(os.path.join(folder, "ca.pem"), REQUEST["certificate"].encode())
        command += ["--cafile", "ca.pem"]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a connection that breaks here must not leave half a worker
    touch(os.path.join(folder, "begun"))
    subprocess.Popen(
        ["/bin/sh", "-c", _RUN, "sh", *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 10.0
    while not (pid := text_of(os.path.join(folder, "pid"))) and time.monotonic() < until:
        time.sleep(0.01)
    write_private(os.path.join(folder, "born"), (born(int(pid)) if pid else "").encode())
    return {"id": REQUEST["host"]}


def alive(folder: str) -> int:
    """The process id of the worker of a folder; 0 if it has ended."""
    pid, known = text_of(os.path.join(folder, "pid")), text_of(os.path.join(folder, "born"))
    return int(pid) if pid.isdigit() and known and born(int(pid)) == known else 0


def list_() -> dict[str, Any]:
    rows = []
    for host in sorted(os.listdir(root())) if os.path.isdir(root()) else []:
        folder = os.path.join(root(), host)
        if alive(folder):
            rows.append({"host": host, "alive": True})
            continue
        begun_t = os.stat(folder).st_mtime
        if not os.path.exists(os.path.join(folder, "born")) and time.time() < begun_t + 15.0:
            rows.append({"host": host, "alive": True})  # it is being started
            continue
        marker = os.path.join(folder, "ended")
        if not os.path.exists(marker):
            touch(marker)
        ended_t = os.stat(marker).st_mtime
        if time.time() > ended_t + REQUEST["shown_s"]:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        told = os.path.exists(os.path.join(folder, "told"))
        code, said = text_of(os.path.join(folder, "exit")), text_of(os.path.join(folder, "worker.log"))
        rows.append({"host": host, "alive": False, "ended_t": ended_t, "told": told, "code": code, "said": said})
    return {"rows": rows}


def stop() -> dict[str, Any]:
    folder = os.path.join(root(), REQUEST["host"])
    pid = alive(folder)
    if not pid:
        return {}
    told, firm = os.path.join(folder, "told"), os.path.join(folder, "firm")
    if os.path.exists(firm) and time.time() > os.stat(firm).st_mtime + REQUEST["hand_back_s"]:
        _kill_session(os.getsid(pid))
        return {}
    if not os.path.exists(told):
        touch(told)
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.05)  # two signals at once would count as one
    if not REQUEST["gently"]:
        if not os.path.exists(firm):
            touch(firm)
        os.kill(pid, signal.SIGTERM)
    return {}


def _kill_session(session: int) -> None:
    for name in os.listdir("/proc"):
        if name.isdigit() and born(int(name)).endswith(f" {session}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)


def check() -> dict[str, Any]:
    """Everything that a worker needs here. An older Python than 3.8 cannot even read this file."""
    found = {"python": sys.version.split()[0], "folder": "", "server": ""}
    try:
        os.makedirs(root(), mode=0o700, exist_ok=True)
        write_private(os.path.join(root(), ".doctor"), b"")
        os.unlink(os.path.join(root(), ".doctor"))
    except OSError as error:
        found["folder"] = str(error)
    try:
        context = None
        if REQUEST.get("certificate"):
            import ssl

            context = ssl.create_default_context(cadata=REQUEST["certificate"])
        urllib.request.urlopen(REQUEST["server"] + "/healthz", timeout=10, context=context).close()
    except (OSError, ValueError) as error:
        found["server"] = str(getattr(error, "reason", error))
    return found


if __name__ == "__main__":
    try:
        print(json.dumps({"start": start, "list": list_, "stop": stop, "check": check}[REQUEST["do"]]()))
    except OSError as problem:
        print(json.dumps({"error": str(problem)}))
