"""Read a workflow file of either kind. Touches: that one file, and for a workflow.toml whether its inputs exist."""

from __future__ import annotations

import tomllib
from pathlib import Path

from windfall.errors import BadInput
from windfall.workflows import tomlformat, wfformat
from windfall.workflows.spec import WorkflowSpec


def read(path: str | Path) -> WorkflowSpec:
    """The workflow in a WfFormat JSON or a workflow.toml; BadInput names the file, the task and the field."""
    path = Path(path)
    text = read_bytes(path, "a workflow: WfFormat JSON or workflow.toml")
    if path.suffix.lower() == ".toml":
        return tomlformat.parse(text, str(path), exists=lambda name: (path.parent / name).exists())
    return wfformat.parse(text, str(path))


def is_workflow_file(path: str | Path) -> bool:
    """Does a .toml or .json describe a workflow, and not a job? A file that cannot be read is none."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        return path.is_file()
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError):
        return False
    tables = document.get("task", [])
    named = isinstance(tables, list) and any(isinstance(table, dict) and "name" in table for table in tables)
    return "job" not in document and (named or "files" in document)


def read_bytes(path: Path, what: str) -> bytes:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file", hint=f"give {what}") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", hint=f"give {what}") from None
    if not text.strip():
        raise BadInput(f"{path}: the file is empty", hint=f"give {what}")
    return text
