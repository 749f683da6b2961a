"""The Python API: submit, follow, fetch, an executor. Touches the network; decides nothing."""

from windfall.client.calls import RemoteTraceback
from windfall.client.client import Client
from windfall.client.executor import Executor, Future
from windfall.client.job import Job
from windfall.client.results import Task, TaskFailed
from windfall.client.sending import Sent

__all__ = ["Client", "Executor", "Future", "Job", "RemoteTraceback", "Sent", "Task", "TaskFailed"]
