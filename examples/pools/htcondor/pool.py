#!/usr/bin/env python3
"""A pool of kind `command` whose workers are jobs of HTCondor (condor_submit, condor_q, condor_rm).

The worker's file and its token travel with the job: no shared file system is needed. The name of the worker and the id
of the server's state are attributes of the job, so that a server that was killed finds its jobs again.
"""

import json
import os
import subprocess
import sys

SUBMIT = """\
executable = {folder}/worker.sh
transfer_input_files = {folder}/worker.pyz, {folder}/token
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
transfer_output_files = worker.log
output = {folder}/job.out
error = {folder}/job.err
request_cpus = {slots}
batch_name = windfall-{pool}
+WindfallHost = "{host}"
+WindfallOwner = "{owner}"
queue
"""
# idle, running, held, transferring output, suspended
STATES = {1: "pending", 2: "running", 5: "pending", 6: "running", 7: "pending"}
HELD = 5


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **more).stdout


def start():
    asked = json.load(sys.stdin)
    said = run("condor_submit", "-terse", "-", input=SUBMIT.format(**asked))
    return {"id": said.split(" - ")[0].strip()}  # as in 1234.0


def list_():
    columns = "ClusterId,ProcId,JobStatus,WindfallHost,WindfallOwner,HoldReason"
    said = run("condor_q", "-constraint", "WindfallOwner =!= undefined", "-json", "-attributes", columns)
    return [
        {
            "id": f"{job['ClusterId']}.{job['ProcId']}",
            "state": STATES.get(job["JobStatus"], "ended"),
            "host": job["WindfallHost"],
            "owner": job["WindfallOwner"],
            "about": job.get("HoldReason", "") if job["JobStatus"] == HELD else "",
        }
        for job in json.loads(said or "[]")
    ]


def stop():
    run("condor_rm", os.environ["WINDFALL_ID"])
    return {}


try:
    print(json.dumps({"start": start, "list": list_, "stop": stop}[sys.argv[1]]()))
except subprocess.CalledProcessError as error:
    sys.exit(error.returncode)  # HTCondor has said why on standard error, which Windfall keeps and shows
