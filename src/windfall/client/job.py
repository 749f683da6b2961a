"""A job on a server, by its number: look at it, wait for it, fetch from it, change it. Holds no state but that."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from windfall.client.completed import Completed
from windfall.client.results import ENDED, Task, tasks_of
from windfall.client.showing import table
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.api.answers import Cancelled, JobPool, JobPools, JobStatus, Picture, Pictures, Retried, TaskRow
    from windfall.api.asking import Admission, Unfinished
    from windfall.api.explained import Explained, Group, Groups
    from windfall.api.renting import JobCost
    from windfall.api.small import Rendered, WorkflowGraph
    from windfall.client.transport import Transport

POLL_S = 25.0
"""How long a request waits for news before it asks again. The server waits 30 s at most."""
_ASKED_AT_ONCE = 500
"""Tasks named in one request: an address has its length."""
Json = dict[str, Any]


class Job:
    """A job. `id` is its number; `name` what it was called."""

    def __init__(
        self,
        transport: Transport,
        number: int,
        name: str,
        *,
        params: Callable[[int], Any] | None = None,
        check: Callable[[], None] = lambda: None,
        total: int | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.id = number
        self.name = name
        self.transport = transport
        self.admission = admission
        """What its fleet said of its deadline when it was submitted; None: it was not asked."""
        self._params = params
        self.check = check
        self._path = f"/v1/jobs/{number}"
        self._seen = f"{total:,} task{'s' * (total != 1)} submitted" if total is not None else ""

    def __repr__(self) -> str:
        """With its state as it was last asked for."""
        return f"<Job {self.id} {self.name!r}{': ' * bool(self._seen)}{self._seen}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it: how far it is now."""
        from windfall.client.showing.notebook import job_html

        return job_html(self.status())

    def _see(self, status: JobStatus) -> JobStatus:
        tasks = status["tasks"]
        failed = f", {tasks['failed']:,} failed" if tasks["failed"] else ""
        self._seen = f"{status['state']}, {tasks['done']:,} of {tasks['total']:,} done{failed}"
        return status

    # -- looking -----------------------------------------------------------------------------------------------------

    def status(self, *, newer_than: int | None = None, wait_s: float = 0.0) -> JobStatus:
        """Where it stands (docs/reference/http-api.md). With `newer_than` (a version), waits until there is news."""
        if newer_than is None:
            return self._see(self.transport.get(self._path))
        return self._see(self.transport.get(self._path, version=newer_than, wait_s=round(wait_s, 3)))

    def spec(self) -> Json:
        return dict(self.transport.get(f"{self._path}/spec"))

    def tasks(
        self, state: str | None = None, *, host: str | None = None, cause: str | None = None
    ) -> Iterator[TaskRow]:
        """Its tasks by number, fetched as they are looked at: all, or those in one state, on one host, or whose last
        attempt ended with one cause."""
        after: int | None = 0
        while after is not None:
            answer = self.transport.get(
                f"{self._path}/tasks", state=state, host=host, cause=cause, after=after, limit=5000
            )
            yield from answer["tasks"]
            after = answer["next"]

    def number_of(self, task: int | str) -> int:
        """The number of a task of a workflow by its name; a number is one already."""
        if isinstance(task, int):
            return task
        return int(self.transport.get(f"{self._path}/tasks", name=task)["tasks"][0]["task"])

    def graph(self) -> WorkflowGraph:
        """A workflow: its tasks with their names, states and parents."""
        answer: WorkflowGraph = self.transport.get(f"{self._path}/workflow")
        return answer

    def pools(self) -> list[JobPool]:
        """What each pool has done for it: tasks, lost attempts, throughput, machines, cost."""
        answer: JobPools = self.transport.get(f"{self._path}/pools")
        return answer["pools"]

    def groups(self) -> list[Group]:
        """Its failures, grouped by cause."""
        answer: Groups = self.transport.get(f"{self._path}/groups")
        return answer["groups"]

    def explain(self, task: int | str | None = None) -> Explained:
        """Why the job, or one task, waits; or its story."""
        number = None if task is None else self.number_of(task)
        answer: Explained = self.transport.get(f"{self._path}/explain", task=number)
        return answer

    def cost(self) -> JobCost:
        """The bill: cost by machine, offer and pool, and the forecast."""
        answer: JobCost = self.transport.get(f"{self._path}/cost")
        return answer

    def pictures(self) -> list[Picture]:
        """Its pictures as the console shows them: `name`, `html` (an SVG with its key) and `says`, one sentence."""
        answer: Pictures = self.transport.get(f"{self._path}/pictures")
        return answer["pictures"]

    def unfinished(self) -> Unfinished:
        """What is left of it and what may be rented for it, as its planner knows it."""
        answer: Unfinished = self.transport.get(f"{self._path}/unfinished")
        return answer

    def render(self, task: int | str) -> Rendered:
        """What a task runs: `argv`, `params`, `env`, `cwd`."""
        answer: Rendered = self.transport.get(f"{self._path}/render/{self.number_of(task)}")
        return answer

    def parameters_digest(self, tasks: int) -> str:
        """A hash of the parameters of its first tasks: lists that begin alike have the same."""
        return str(self.transport.get(f"{self._path}/parameters", tasks=tasks)["sha256"])

    def command(self, task: int | str) -> str:
        """The command of a task, as a line for a shell; empty for a call, and where it cannot be rendered."""
        answer = self.transport.get(f"{self._path}/commands", after=self.number_of(task), limit=1)
        return str(answer["rows"][0][1])

    def commands(self) -> Iterator[tuple[int, str, Any]]:
        """Number, command and parameters of each task, fetched as they are looked at."""
        after: int | None = 0
        while after is not None:
            answer = self.transport.get(f"{self._path}/commands", after=after, limit=5000)
            yield from map(tuple, answer["rows"])
            after = answer["next"]

    def usage(self) -> Iterator[tuple[int, int, float, int]]:
        """Task, attempt, processor seconds and peak memory in bytes of each attempt that was reported."""
        after: int | None = 0
        while after is not None:
            answer = self.transport.get(f"{self._path}/usage", after=after)
            yield from map(tuple, answer["rows"])
            after = answer["next"]

    # -- waiting -----------------------------------------------------------------------------------------------------

    def watch(self, timeout_s: float | None = None) -> Iterator[JobStatus]:
        """Its status now, and again whenever it has changed, until it has ended or the time is over."""
        return self._statuses(timeout_s, only_end=False)

    def _statuses(self, timeout_s: float | None, only_end: bool) -> Iterator[JobStatus]:
        """As `watch`; with `only_end` the server answers when the job has ended, not after every commit."""
        about = {"ended": 1} if only_end else {}
        until = None if timeout_s is None else time.monotonic() + timeout_s
        status = self.status()
        yield status
        while status["state"] not in ENDED:
            left_s = POLL_S if until is None else min(POLL_S, until - time.monotonic())
            if left_s <= 0:
                return
            self.check()
            query = {"version": status["version"], "wait_s": round(left_s, 3), **about}
            status = self._see(self.transport.get(self._path, **query))
            yield status

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait until it has ended. Returns its status; `TimeoutError` if `timeout` seconds were not enough."""
        status: JobStatus = deque(self._statuses(timeout, only_end=True), maxlen=1).pop()
        if status["state"] not in ENDED:
            raise TimeoutError(f"job {self.id} '{self.name}' is {status['state']} after {timeout:g} s")
        return status

    def __await__(self) -> Generator[Any, None, JobStatus]:
        """`await job`: as `wait`, without blocking the event loop."""
        import asyncio

        return asyncio.to_thread(self.wait).__await__()

    # -- fetching ----------------------------------------------------------------------------------------------------

    def as_completed(self, timeout: float | None = None) -> Completed[Task]:
        """Its tasks as they end, streamed, for `for` and `async for`.

        Ends with the job; `TimeoutError` if `timeout` seconds were not enough.
        """
        return Completed(self._as_completed(timeout))

    def _as_completed(self, timeout: float | None) -> Iterator[Task]:
        until = None if timeout is None else time.monotonic() + timeout
        position = 0
        seen = bytearray()  # a task that was tried again stands in the order twice
        while True:
            left_s = POLL_S if until is None else min(POLL_S, until - time.monotonic())
            if left_s < 0:
                raise TimeoutError(f"job {self.id} '{self.name}' has not ended after {timeout:g} s")
            frame = self.transport.frame(f"{self._path}/completed", after=position, limit=1000, wait_s=round(left_s, 3))
            for task in tasks_of(frame):
                if task.task >= len(seen):
                    seen.extend(bytes(task.task + 1024 - len(seen)))
                mark = (task.attempt or 0) % 255 + 1
                if seen[task.task] != mark:
                    seen[task.task] = mark
                    yield self._with_params(task)
            position = frame.header["position"]
            if frame.header["finished"]:
                return
            self.check()

    def results(
        self, tasks: Sequence[int | str] | None = None, *, wait: bool = True, timeout: float | None = None
    ) -> Iterator[Task]:
        """Its tasks by number (or those asked for), once it has ended; fetched as they are looked at.

        `wait=False`: those that have ended by now. BadInput if it is paused, `TimeoutError` after `timeout` seconds.
        """
        if wait:
            if self.status()["state"] == "paused":
                raise BadInput(
                    f"job {self.id} '{self.name}' is paused",
                    hint="continue it with job.resume(), or see what it has so far: job.results(wait=False)",
                )
            self.wait(timeout)
        return self._chosen(tasks)

    def _chosen(self, tasks: Sequence[int | str] | None) -> Iterator[Task]:
        if tasks is None:
            yield from self._results(None)
            return
        numbers = [self.number_of(task) for task in tasks]
        for at in range(0, len(numbers), _ASKED_AT_ONCE):
            yield from self._results(",".join(map(str, numbers[at : at + _ASKED_AT_ONCE])))

    def _results(self, chosen: str | None) -> Iterator[Task]:
        after: int | None = 0
        while after is not None:
            frame = self.transport.frame(f"{self._path}/results", after=after, limit=1000, tasks=chosen)
            for task in tasks_of(frame):
                yield self._with_params(task)
            after = frame.header["next"]

    def table(self, tasks: Sequence[int | str] | None = None) -> Iterator[Json]:
        """Its ended tasks (or those asked for) as rows: parameters, command, host, times, exit, memory, outputs."""
        return table.rows(self, None if tasks is None else self.results(tasks))

    def to_wfformat(self) -> Json:
        """A workflow that has ended as a document in WfFormat 1.5, with measured run times, memory and files."""
        from windfall.client.recorded import recorded

        return recorded(self)

    def to_frame(self) -> Any:
        """`table()` as a pandas DataFrame. BadInput if pandas is not installed."""
        return table.to_frame(self.table())

    def _with_params(self, task: Task) -> Task:
        task.params = self.params(task.task) if self._params is not None else None
        return task

    def params(self, task: int) -> Any:
        """A task's parameters: as they were given if it was submitted here, else as the server knows them."""
        if self._params is not None:
            return self._params(task)
        return self.render(task)["params"]

    def output(self, task: int | str, *, stdout_from: int = 0, stderr_from: int = 0, wait_s: float = 0.0) -> Json:
        """A task's output from these positions on: `stdout` and `stderr` as bytes, `ended`, and where to go on."""
        frame = self.transport.frame(
            f"{self._path}/output/{self.number_of(task)}",
            stdout_from=stdout_from,
            stderr_from=stderr_from,
            wait_s=wait_s,
        )
        head = dict(frame.header)
        head["stdout"] = bytes(frame.take(head["n_stdout"]))
        head["stderr"] = bytes(frame.take(head["n_stderr"]))
        return head

    # -- changing ----------------------------------------------------------------------------------------------------

    def retry(
        self,
        failed: bool = True,
        *,
        tasks: Sequence[int | str] | None = None,
        cancelled: bool = False,
        memory: str | int | None = None,
    ) -> int:
        """Try tasks again in place: same numbers, new attempts. Returns how many."""
        if not failed and not cancelled and tasks is None:
            raise BadInput("retry what? failed=True, cancelled=True or tasks=[...]")
        if cancelled and not failed and tasks is None:
            tasks = [row["task"] for row in self.tasks("cancelled")]
        numbers = None if tasks is None else [self.number_of(task) for task in tasks]
        from windfall.api.requests import RetryBody

        answer: Retried = self.transport.post(f"{self._path}/retry", RetryBody(numbers, cancelled, memory))
        return answer["retried"]

    def cancel(self, tasks: Sequence[int | str] | None = None, reason: str = "") -> int:
        """Cancel what has not ended, all of it or some tasks, with what waits for them. Returns how many that was."""
        numbers = None if tasks is None else [self.number_of(task) for task in tasks]
        from windfall.api.requests import CancelBody

        answer: Cancelled = self.transport.post(f"{self._path}/cancel", CancelBody(numbers, reason))
        return answer["cancelled"]

    def forget(self) -> None:
        """Remove it, with all its results, from the server. BadInput if it has not ended, or is still needed."""
        self.transport.request("DELETE", self._path)

    def seal(self) -> None:
        """No more tasks will come: a job of calls ends with those that it has."""
        self.transport.post(f"{self._path}/seal")

    def resume(self) -> JobStatus:
        """Continue a job that is paused. Returns its status."""
        return self.change(paused=False)

    def change(self, **changes: Any) -> JobStatus:
        """Change settings of a job that runs (docs/reference/http-api.md names them). Returns its status."""
        from windfall.api.requests import changes_from

        status: JobStatus = self.transport.post(f"{self._path}/change", changes_from(changes))
        return status
