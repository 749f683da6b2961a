"""The Python API: submit, follow, fetch, an executor. Touches the network; decides nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windfall.client.client import Client, LateJob, UnfinishedJobs
    from windfall.client.executor import Executor, Future
    from windfall.client.job import Job
    from windfall.client.results import Task, TaskFailed
    from windfall.client.showing.milestones import progress
    from windfall.client.submitting.calls import RemoteTraceback
    from windfall.client.submitting.sending import Sent

__all__ = [
    "Client",
    "Executor",
    "Future",
    "Job",
    "LateJob",
    "RemoteTraceback",
    "Sent",
    "Task",
    "TaskFailed",
    "UnfinishedJobs",
    "progress",
]

_LATER = {
    "Client": "client",
    "Executor": "executor",
    "Future": "executor",
    "Job": "job",
    "LateJob": "client",
    "RemoteTraceback": "submitting.calls",
    "Sent": "submitting.sending",
    "Task": "results",
    "TaskFailed": "results",
    "UnfinishedJobs": "client",
    "progress": "showing.milestones",
}
"""Loaded when they are asked for: `windfall status` without a server needs none of them."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"windfall.client.{_LATER[name]}"), name)
    raise AttributeError(f"module 'windfall.client' has no attribute {name!r}")
