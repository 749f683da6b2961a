"""Traces of Pegasus and Nextflow as WfFormat, by the readers of `wfcommons`. Touches the folder of the trace."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from windfall.errors import BadInput
from windfall.workflows import wfformat
from windfall.workflows.spec import WorkflowSpec

Json = dict[str, Any]
SYSTEMS = {
    "Pegasus": "give the submit directory of a run of Pegasus 5: it holds braindump.yml",
    "Nextflow": "give the folder of a run with a trace file and nf-prov's ro-crate-metadata.json",
}
"""The systems whose traces are read, and what is to be given for each."""


def read_trace(system: str, folder: Path) -> tuple[Json, WorkflowSpec]:
    """A recorded run as a WfFormat document, and the workflow in it; BadInput says what the folder lacks."""
    hint = SYSTEMS[system]
    if not folder.is_dir():
        raise BadInput(f"{folder}: " + ("no folder" if folder.exists() else "no such folder"), hint=hint)
    library = _library()
    # The reader of Pegasus writes a file of its own into the working directory.
    with tempfile.TemporaryDirectory() as scratch:
        full = folder.resolve()
        with contextlib.chdir(scratch):
            try:
                document = _document(library, system, full)
            except Exception as error:  # whatever a reader stumbles over: it checks little itself
                words = str(error) if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {error}"
                raise BadInput(f"{folder}: WfCommons reads no trace of {system}: {words}", hint=hint) from None
    # The document is built from what was in the folder: it is checked as any file from outside.
    return document, wfformat.parse(json.dumps(document).encode(), str(folder))


def _library() -> Any:
    try:
        import wfcommons.wfinstances
    except ImportError as error:
        words = f"traces are read with wfcommons, which is not installed ({error})"
        raise BadInput(words, hint="try: pip install 'windfall[wfcommons]'") from None
    return wfcommons.wfinstances


def _document(library: Any, system: str, folder: Path) -> Json:
    if system == "Pegasus":
        workflow = _pegasus_reader(library, folder).build_workflow()
    else:
        workflow = library.NextflowLogsParser(folder, _nextflow_version(folder)).build_workflow(folder.name)
    workflow.generate_json()
    document: Json = workflow.workflow_json
    # WfCommons enters the present user as author; the trace does not tell who recorded it.
    document.pop("author", None)
    if system == "Pegasus":
        _order_by_dag(document["workflow"]["specification"]["tasks"], _top(folder, "*.dag")[0])
    return document


def sub_workflows(folder: Path) -> list[Path]:
    """Submit directories of sub-workflows below that of a run of Pegasus: each is a run of its own."""
    return sorted(path.parent for path in folder.glob("*/**/braindump.yml"))


def _top(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern)) or sorted(folder.glob(f"**/{pattern}"))


def _pegasus_reader(library: Any, folder: Path) -> Any:
    """The reader of WfCommons. It takes whatever workflow and DAG it finds first, also those of sub-workflows."""

    class Reader(library.PegasusLogsParser):  # type: ignore[misc]  # known at run time only
        def _fetch_all_files(self, extension: str, file_name: str = "*") -> list[Path]:
            found = super()._fetch_all_files(extension, file_name)
            if extension.startswith("out"):
                # The record of a job that was held or never ended is empty: the reader takes it for one of several.
                return sorted(path for path in found if path.exists() and path.stat().st_size)
            own = [path for path in found if path.parent == self.submit_dir]
            return own if own and extension in ("yml", "dag") else sorted(found)

    return Reader(folder)


def _order_by_dag(tasks: list[Json], dag: Path) -> None:
    """Add the order that jobs have through others which are left out: transfers, sub-workflows, cleanup.

    The reader knows only edges between two of its tasks, and one parent and one child a line.
    """
    parents: dict[str, list[str]] = {}
    for line in dag.read_text(errors="replace").splitlines():
        words = line.split()
        if len(words) > 3 and words[0].upper() == "PARENT" and "CHILD" in words:
            at = words.index("CHILD")
            for child in words[at + 1 :]:
                parents.setdefault(child.lower(), []).extend(parent.lower() for parent in words[1:at])
    by_name = {task["id"].lower(): task for task in tasks}
    for name, task in by_name.items():
        waiting, seen = list(parents.get(name, ())), {name}
        while waiting:
            job = waiting.pop()
            if job in seen:
                continue
            seen.add(job)
            parent = by_name.get(job)
            if parent is None:
                waiting += parents.get(job, ())
            elif parent["id"] not in task["parents"]:
                task["parents"].append(parent["id"])
                parent["children"].append(task["id"])


def _nextflow_version(folder: Path) -> str:
    """As nf-prov tells it of the language of the workflow."""
    for item in json.loads((folder / "ro-crate-metadata.json").read_bytes())["@graph"]:
        if item["@type"] == "ComputerLanguage" and item.get("name") == "Nextflow":
            return str(item.get("version", "unknown"))
    return "unknown"
