#!/usr/bin/env python3
"""A pool of kind `command` whose workers are processes of this host: the smallest one that is complete.

Called as `pool.py start`, `pool.py list` or `pool.py stop`, with what is asked in WINDFALL_... variables. Each worker
has a file that holds its process id; a real batch system keeps such a list for you.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

KEPT = pathlib.Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"windfall-processes-{os.getuid()}"


def start():
    # The folder holds worker.sh, which runs the worker, and all that it needs.
    worker = subprocess.Popen(
        ["sh", os.environ["WINDFALL_FOLDER"] + "/worker.sh"], start_new_session=True, stdin=subprocess.DEVNULL
    )
    KEPT.mkdir(mode=0o700, exist_ok=True)
    about = {"owner": os.environ["WINDFALL_OWNER"], "host": os.environ["WINDFALL_HOST"]}
    (KEPT / str(worker.pid)).write_text(json.dumps(about))
    return {"id": str(worker.pid)}


def list_():
    rows = []
    for path in KEPT.glob("*"):
        if is_alive(path.name):
            rows.append({"id": path.name, "state": "running", **json.loads(path.read_text())})
        else:
            path.unlink()  # a worker that is not listed any more has ended
    return rows


def stop():
    pid = os.environ["WINDFALL_ID"]
    if is_alive(pid):
        # The first SIGTERM lets the running tasks finish, the second hands them back.
        os.kill(int(pid), signal.SIGTERM)
    return {}


def is_alive(pid):
    try:
        return "worker.pyz" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


print(json.dumps({"start": start, "list": list_, "stop": stop}[sys.argv[1]]()))
