"""Commands of PBS and LSF that run jobs as processes of this host, for what the pool says to them and reads from them.

They are written after the manuals and psij-python's own parsers; no real PBS or LSF has been seen.
"""

from __future__ import annotations

import sys
from pathlib import Path

COMMANDS = {"pbs": ("qsub", "qstat", "qdel", "qsig"), "lsf": ("bsub", "bjobs", "bkill")}
_PROGRAM = r"""#!{python}
import json, os, pathlib, re, signal, subprocess, sys
home, me, args = pathlib.Path({home!r}), pathlib.Path(sys.argv[0]).name, sys.argv[1:]
if "--version" in args or "-V" in args:
    print("fake 1.0"); sys.exit(0)
jobs = {{path.name: path for path in sorted(home.glob("jobs/*"))}}

def submit(first_number, name_of, array_of, ids, answer):
    script = pathlib.Path(args[-1]).read_text()
    if "nowhere" in script:
        print({refusal!r}, file=sys.stderr); sys.exit(170)
    number = first_number + len({{re.split(r"[.\[]", id)[0] for id in jobs}})
    array = re.search(array_of, script)
    for index in range(int(array[1]), int(array[2]) + 1) if array else [None]:
        id, told = ids(number, index)
        folder = home / "jobs" / id
        folder.mkdir(parents=True)
        (folder / "script").write_text(script)
        (folder / "name").write_text(re.search(name_of, script)[1] + (f"[{{index}}]" if me == "bsub" and index else ""))
        wrapped = f"sh '{{folder}}/script' >'{{folder}}/out' 2>&1; echo $? > '{{folder}}/exit'"
        process = subprocess.Popen(["sh", "-c", wrapped], env={{**os.environ, **told}}, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (folder / "pid").write_text(str(process.pid))
    print(answer.format(f"{{number}}{{'[]' if array else ''}}.head" if me == "qsub" else number))

def pbs_ids(number, index):
    if index is None:
        return f"{{number}}.head", {{"PBS_JOBID": f"{{number}}.head"}}
    id = f"{{number}}[{{index}}].head"
    return id, {{"PBS_JOBID": id, "PBS_ARRAY_ID": f"{{number}}[].head", "PBS_ARRAY_INDEX": str(index)}}

def lsf_ids(number, index):
    id = str(number) if index is None else f"{{number}}[{{index}}]"
    return id, {{"LSB_JOBID": str(number), "LSB_JOBINDEX": str(index or 0)}}

def tell(signum):
    folder = jobs.get(args[-1])
    if folder is None or (folder / "exit").exists():
        print({gone!r}, file=sys.stderr); sys.exit(35)
    session = int((folder / "pid").read_text())
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[3]) == session and (signum == signal.SIGKILL or b"worker.pyz" in command):
            os.kill(int(path.parent.name), signum)
    if signum == signal.SIGKILL:
        (folder / "exit").write_text("265")

def code(folder):
    return int((folder / "exit").read_text()) if (folder / "exit").exists() else None

if me == "qsub":
    submit(1, r'#PBS -N "(.*)"', r"#PBS -J (\d+)-(\d+)", pbs_ids, "{{}}")
elif me == "bsub":
    submit(101, r'#BSUB -J "([^"\[]*)', r'#BSUB -J "[^"\[]*\[(\d+)-(\d+)\]', lsf_ids,
           "Job <{{}}> is submitted to queue <normal>.")
elif me == "qstat":
    rows = {{id: {{"job_state": "R" if code(folder) is None else "F", "Job_Name": (folder / "name").read_text()}}
            | ({{}} if code(folder) is None else {{"Exit_status": code(folder)}}) for id, folder in jobs.items()}}
    arrays = {{re.sub(r"\[.*\]", "[]", id): row for id, row in rows.items() if "[" in id}}
    rows = {{**{{id: {{**row, "job_state": "B"}} for id, row in arrays.items()}}, **rows}} if "-t" in args else rows
    print(json.dumps({{"pbs_version": "fake", "Jobs": rows}}))
elif me == "bjobs":
    state = lambda found: "RUN" if found is None else "DONE" if found == 0 else "EXIT"
    print(json.dumps({{"COMMAND": "bjobs", "JOBS": len(jobs), "RECORDS": [
        {{"JOBID": id.partition("[")[0], "JOBINDEX": id.partition("[")[2].rstrip("]") or "0",
         "STAT": state(code(folder)), "JOB_NAME": (folder / "name").read_text(), "PEND_REASON": "",
         "EXIT_REASON": "TERM_OWNER: job killed by owner" if code(folder) == 265 else ""}}
        for id, folder in jobs.items()]}}))
else:
    tell(signal.SIGTERM if "-s" in args else signal.SIGKILL)
"""
_REFUSAL = {"pbs": "qsub: Unknown queue", "lsf": "nowhere: No such queue. Job not submitted."}
_GONE = {"pbs": "qdel: Unknown Job Id", "lsf": "Job <1>: Job has already finished"}


def put_commands(system: str, folder: Path) -> Path:
    """Write the commands of a batch system to a folder for the PATH; their jobs are in its `jobs`."""
    (folder / "bin").mkdir(parents=True)
    text = _PROGRAM.format(python=sys.executable, home=str(folder), refusal=_REFUSAL[system], gone=_GONE[system])
    for name in COMMANDS[system]:
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder / "bin"
