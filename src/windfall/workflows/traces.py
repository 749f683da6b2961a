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
        workflow = library.PegasusLogsParser(folder).build_workflow()
    else:
        workflow = library.NextflowLogsParser(folder, _nextflow_version(folder)).build_workflow(folder.name)
    workflow.generate_json()
    document: Json = workflow.workflow_json
    # WfCommons names whoever runs this program; who recorded the trace is not known.
    document.pop("author", None)
    return document


def _nextflow_version(folder: Path) -> str:
    """As nf-prov tells it of the language of the workflow."""
    for item in json.loads((folder / "ro-crate-metadata.json").read_bytes())["@graph"]:
        if item["@type"] == "ComputerLanguage" and item.get("name") == "Nextflow":
            return str(item.get("version", "unknown"))
    return "unknown"
