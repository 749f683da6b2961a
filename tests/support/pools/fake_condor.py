"""Programs called condor_submit, condor_q and condor_rm that run jobs as processes of this host. Not HTCondor.

They read the same submit files and print the same JSON as HTCondor does, as far as examples/pools/htcondor uses it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """\
#!{python}
import json, os, pathlib, shlex, shutil, signal, subprocess, sys, time
QUEUE = pathlib.Path({queue!r})
QUEUE.mkdir(exist_ok=True)

def running(pid):
    try:
        return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

def jobs():
    found = [json.loads(path.read_text()) for path in sorted(QUEUE.glob("*.json"))]
    return [job for job in found if running(job["pid"])]

def submit():
    said = [line.partition("=") for line in sys.stdin.read().splitlines() if "=" in line]
    fields = {{key.strip(): value.strip().strip('"') for key, _, value in said}}
    cluster = 1 + max([int(path.stem) for path in QUEUE.glob("*.json")], default=0)
    scratch = QUEUE / f"{{cluster}}.dir"
    scratch.mkdir()
    files = [fields["executable"], *(name.strip() for name in fields["transfer_input_files"].split(","))]
    for name in files:
        shutil.copy2(name, scratch)
    done = f"cp {{shlex.quote(str(scratch / 'worker.log'))}} {{shlex.quote(str(pathlib.Path(files[0]).parent))}}"
    script = f"trap : TERM; ./worker.sh & wait $! || wait $!; code=$?; {{done}}; exit $code"
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], cwd=scratch, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=open(fields["output"], "w"), stderr=open(fields["error"], "w"),
    )
    job = {{"ClusterId": cluster, "ProcId": 0, "JobStatus": 2, "pid": process.pid}}
    job |= {{key[1:]: value for key, value in fields.items() if key.startswith("+")}}
    (QUEUE / f"{{cluster}}.json").write_text(json.dumps(job))
    print(f"{{cluster}}.0 - {{cluster}}.0")

def rm():
    for job in jobs():
        if f"{{job['ClusterId']}}.0" == sys.argv[1]:
            marker = QUEUE / f"{{job['ClusterId']}}.removed"
            kill = marker.exists() and time.time() > marker.stat().st_mtime + 5
            os.killpg(job["pid"], signal.SIGKILL if kill else signal.SIGTERM)
            marker.exists() or marker.touch()

def q():
    print(json.dumps(jobs()))

{{"condor_submit": submit, "condor_q": q, "condor_rm": rm}}[pathlib.Path(sys.argv[0]).name]()
"""


def install(folder: Path) -> Path:
    """Write the programs; the folder belongs in front of PATH."""
    programs = folder / "condor"
    programs.mkdir()
    for name in ("condor_submit", "condor_q", "condor_rm"):
        (programs / name).write_text(_PROGRAM.format(python=sys.executable, queue=str(folder / "queue")))
        (programs / name).chmod(0o755)
    return programs
