"""Windfall finishes a bag of tasks or a workflow by a deadline, at the least cost, on machines that may vanish."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["Client", "Task", "__version__", "progress"]

TYPE_CHECKING = False  # and not from typing: `windfall.__main__` takes signals over before anything large is loaded
if TYPE_CHECKING:
    from windfall.client import Client, Task, progress


def __getattr__(name: str) -> object:
    # The worker ships this file too and must not need the client's libraries.
    if name in ("Client", "Task", "progress"):
        from importlib import import_module

        return getattr(import_module("windfall.client"), name)
    raise AttributeError(f"module 'windfall' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "annotations"})
