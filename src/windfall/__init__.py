"""Windfall finishes a bag of tasks or a workflow by a deadline, at the least cost, on machines that may vanish."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Client", "Task", "__version__", "progress"]

if TYPE_CHECKING:
    from windfall.client import Client, Task, progress


def __getattr__(name: str) -> Any:
    # The worker ships this file too and must not need the client's libraries.
    if name in ("Client", "Task", "progress"):
        return getattr(import_module("windfall.client"), name)
    raise AttributeError(f"module 'windfall' has no attribute {name!r}")
