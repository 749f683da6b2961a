"""Where the real traces are: WINDFALL_DATA, or `../shared/data` beside the project. Touches: the environment, paths."""

from __future__ import annotations

import os
from pathlib import Path

from windfall.errors import BadInput


def root() -> Path | None:
    """The folder of the traces, or None if there is none."""
    named = os.environ.get("WINDFALL_DATA")
    places = [Path(named)] if named else [Path(__file__).resolve().parents[3].parent / "shared" / "data"]
    return next((place for place in places if place.is_dir()), None)


def find(relative: str) -> Path:
    """One file or folder of the traces; BadInput if it does not exist."""
    folder = root()
    if folder is None or not (folder / relative).exists():
        raise BadInput(
            f"the trace data '{relative}' is not here", hint="set WINDFALL_DATA to the folder that holds the traces"
        )
    return folder / relative
