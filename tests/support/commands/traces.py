"""Folders as runs of Pegasus 5 and of Nextflow with nf-prov leave them."""

from __future__ import annotations

import json
from pathlib import Path

PEGASUS_JOBS = """\
x-pegasus: {apiLang: python, createdOn: 01-12-26T10:00:00Z}
pegasus: 5.0.4
name: diamond
jobs:
- type: job
  name: split
  id: ID0000001
  arguments: [-n, 2, raw.txt]
  uses:
  - {lfn: raw.txt, type: input}
  - {lfn: part.1, type: output, stageOut: false}
- type: job
  name: count
  id: ID0000002
  profiles: {pegasus: {cores: 4}}
  uses:
  - {lfn: part.1, type: input}
  - {lfn: counts.txt, type: output, stageOut: true}
"""
PEGASUS_DAG = """\
JOB stage_in_local_0_0 00/00/stage_in_local_0_0.sub
JOB split_ID0000001 00/00/split_ID0000001.sub
JOB count_ID0000002 00/00/count_ID0000002.sub
PARENT stage_in_local_0_0 CHILD split_ID0000001
PARENT split_ID0000001 CHILD count_ID0000002
"""
KICKSTART = """\
- invocation: True
  version: 3.0
  start: 2026-01-12T10:00:10.000+00:00
  duration: {seconds}
  transformation: "{program}"
  machine: {{uname_system: linux, uname_nodename: node7, uname_machine: x86_64, ram_total: 1024, cpu_count: 8}}
  mainjob:
    start: 2026-01-12T10:00:10.000+00:00
    duration: {seconds}
    usage: {{utime: 3.0, stime: 1.0, maxrss: 2048}}
"""


def pegasus_run(folder: Path) -> Path:
    """A submit directory as Pegasus 5 leaves it."""
    jobs = folder / "00" / "00"
    jobs.mkdir(parents=True)
    (folder / "braindump.yml").write_text(
        "planner_version: 5.0.4\npegasus_wf_name: diamond-0\ntimestamp: 20260112T100000+0000\n"
    )
    (folder / "workflow.yml").write_text(PEGASUS_JOBS)
    (folder / "diamond-0.dag").write_text(PEGASUS_DAG)
    (folder / "diamond-0.dag.dagman.out").write_text("01/12/26 10:00:00 start\n01/12/26 10:01:00 EXITING\n")
    (jobs / "split_ID0000001.out.000").write_text(KICKSTART.format(seconds=12.5, program="split"))
    (jobs / "count_ID0000002.out.000").write_text(KICKSTART.format(seconds=30, program="count"))
    for name, file, size in (("split_ID0000001", "part.1", 700), ("count_ID0000002", "counts.txt", 9)):
        (jobs / f"{name}.meta").write_text(json.dumps([{"_id": file, "_attributes": {"size": str(size)}}]))
        (jobs / f"{name}.sub").write_text("universe = vanilla\npriority = 10\n")
    return folder


def nextflow_run(folder: Path) -> Path:
    """The folder of a run with a trace file, and the crate that nf-prov writes."""
    info, work = folder / "pipeline_info", folder / "work" / "ab" / "12"
    info.mkdir(parents=True)
    work.mkdir(parents=True)
    (work / "index.bin").write_bytes(b"i" * 300)
    rows = [
        "task_id\thash\tname\tstatus\texit\tsubmit\tduration\trealtime",
        "1\tab/12\tINDEX\tCOMPLETED\t0\t2026-01-12 10:00:00.000\t1m 30s\t1m 20s",
        "2\tcd/34\tMAP (gut)\tCOMPLETED\t0\t2026-01-12 10:01:31.000\t500ms\t400ms",
    ]
    (info / "execution_trace_2026-01-12.txt").write_text("\n".join(rows) + "\n")

    def ran(hash_: str, name: str, inputs: list[str], outputs: list[str]) -> dict[str, object]:
        # Where several processes share a script, nf-prov does not know the module: null.
        return {
            "@id": f"#task/{hash_}", "@type": "CreateAction", "name": name, "agent": None,
            "instrument": None if name == "INDEX" else {"@id": "modules/map/main.nf"},
            "object": [{"@id": file} for file in inputs], "result": [{"@id": file} for file in outputs],
            "actionStatus": "http://schema.org/CompletedActionStatus",
        }  # fmt: skip

    run = {"@id": "#run", "@type": "CreateAction", "name": "Nextflow workflow run 7", "object": [], "result": [],
           "startTime": "2026-01-12T10:00:00Z", "endTime": "2026-01-12T10:02:00Z"}  # fmt: skip
    graph = [
        {"@id": "./", "@type": "Dataset", "mainEntity": {"@id": "main.nf"}},
        {"@id": "main.nf", "@type": ["File", "ComputationalWorkflow"], "name": "rnaseq"},
        {"@id": "#nextflow", "@type": "ComputerLanguage", "name": "Nextflow", "version": "25.04.6"},
        run,
        ran("ab12", "INDEX", [], ["#task/ab12/index.bin"]),
        ran("cd34", "MAP (gut)", ["#task/ab12/index.bin"], ["#task/cd34/out.bam"]),
        {"@id": "#task/ab12/index.bin", "@type": "CreativeWork", "name": "index.bin"},
        {"@id": "#task/cd34/out.bam", "@type": "CreativeWork", "name": "out.bam"},
        {"@id": "#publish/cd34/out.bam", "@type": "CreateAction", "name": "publish",
         "instrument": {"@id": "main.nf#software-application"}, "object": {"@id": "#task/cd34/out.bam"},
         "result": {"@id": "bam/out.bam"}, "actionStatus": "http://schema.org/CompletedActionStatus"},
        {"@id": "main.nf#organize", "@type": "OrganizeAction", "name": "Run of Nextflow 25.04.6", "agent": None,
         "instrument": {"@id": "main.nf#software-application"}, "result": {"@id": "#run"}},
        {"@id": "bam/out.bam", "@type": "File", "name": "out.bam"},
    ]  # fmt: skip
    (folder / "ro-crate-metadata.json").write_text(json.dumps({"@graph": graph}))
    return folder
