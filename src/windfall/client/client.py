"""The client: finds a server or starts one, submits, hands out jobs and executors. Touches network and processes.

`Client(server, token)` goes to a server that runs elsewhere. `Client()` uses the state directory: a server that runs on
it, else one in this process with a worker on this host, both gone when the client is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote

from windfall import files
from windfall.bounds import convert
from windfall.client.job import Job
from windfall.client.local.server import LocalServer, here, state_location
from windfall.client.supply import Supply
from windfall.client.transport import Transport
from windfall.errors import BadInput, Unreachable, WindfallError

if TYPE_CHECKING:
    from windfall.api.answers import HostRow, Hosts, Jobs, JobStatus, NewToken, OneHost
    from windfall.api.small import Classes, ListedToken, OneClass, Tokens, WorkflowClass
    from windfall.bags.submission import Submission
    from windfall.client.completed import Completed
    from windfall.client.executor import Executor, Future
    from windfall.client.submitting.calls import Calls
    from windfall.client.submitting.sending import Sent
    from windfall.client.workflow import Workflow

Json = dict[str, Any]

_GREETING_S = 8.0
"""A server that has not answered by then is taken for hung."""


class UnfinishedJobs(UserWarning):
    """Jobs that an earlier program had left were found; they are paused."""


class LateJob(UserWarning):
    """A job was submitted to a fleet that would not keep its deadline, or not that of another job."""


class Client(Supply):
    """A connection to a server; everything else comes from here.

    server, token   where to; WINDFALL_SERVER and WINDFALL_TOKEN stand in for them
    state           without a server: where everything is kept, a directory or `postgresql://USER@HOST/DATABASE`
                    (WINDFALL_STATE, else `.windfall`)
    slots           tasks at once on this host, if a worker is started here (one per core)
    pools           without a server: a pools.toml; tasks then run on what its pools give, and not here
    patience_s      how long to keep trying while the server is away; an address at which none answers is refused at
                    once
    cafile          certificate of a private authority, for a server with https

    Unfinished jobs of earlier programs are paused when the server is started here, and a warning names them:
    `client.job(7).resume()` continues one.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        state: str | os.PathLike[str] | None = None,
        *,
        slots: int | None = None,
        pools: str | os.PathLike[str] | None = None,
        patience_s: float = 60.0,
        cafile: str | None = None,
        local: LocalServer | None = None,
    ) -> None:
        self._executors: list[Executor] = []
        self._calls_here: Executor | None = None
        url = server or (None if state or local else os.environ.get("WINDFALL_SERVER"))
        self._local: LocalServer | None = None
        if url:
            token = token or os.environ.get("WINDFALL_TOKEN", "")
            self._transport = Transport(url, token, patience_s=patience_s, cafile=cafile)
            self.greet()
        else:
            self._local = local or _local_server(state, slots, pools)
            self._transport = Transport(*self._local.address(), patience_s=patience_s, renew=self._local.address)
            _close_before_threads_end()
        _clients.add(self)
        if self._local is not None and local is None:
            self._begin_work(self._local)

    def _begin_work(self, local: LocalServer) -> None:
        """Pause unfinished jobs of earlier programs, then start the worker."""
        if local.is_ours:
            for status in self.jobs("running"):
                self.job(status["job"]).change(paused=True)
                warnings.warn(
                    f"job {status['job']} '{status['name']}' of an earlier program is unfinished, and paused now;"
                    f" continue it: client.job({status['job']}).resume()",
                    UnfinishedJobs,
                    stacklevel=4,
                )
        local.start_work()

    def __repr__(self) -> str:
        if self._local is None:
            return f"<Client of {self._transport.url}>"
        where = "in this process" if self._local.is_ours else f"at {self._transport.url}"
        return f"<Client of the server {where}, state {self._local.state}>"

    def greet(self) -> Client:
        """Connect at once, without patience; raises Unreachable if there is no server or it refuses the token."""
        transport = self._transport
        patience_s, transport.patience_s = transport.patience_s, 0.0
        timeout_s, transport.timeout_s = transport.timeout_s, _GREETING_S
        try:
            self._transport.get("/v1/jobs", state="none")
        except BaseException:
            self.close()
            raise
        transport.close()  # connections with the short timeout
        transport.patience_s, transport.timeout_s = patience_s, timeout_s
        return self

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def transport(self) -> Transport:
        return self._transport

    @property
    def is_idle(self) -> bool:
        """Does the server run only for the sake of this client, without a worker?"""
        return self._local is not None and self._local.is_ours and not self._local.works

    @property
    def is_local(self) -> bool:
        """Is the server on this host, found by its state directory?"""
        return self._local is not None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def finish_calls(self) -> None:
        """Wait for the calls of executors, as executors of the standard library do when a program ends."""
        for executor in self._executors:
            executor.shutdown()

    def close(self, *, now: bool = False) -> None:
        """End executors, and the server and the worker that were started here (`now`: with their running tasks)."""
        _clients.discard(self)
        for executor in self._executors:
            executor.abandon()
        if self._local is not None:
            self._local.close(now=now)
            self._transport.ended = True
        self._transport.close()

    # -- submitting --------------------------------------------------------------------------------------------------

    @overload
    def submit(self, command: str | list[str] | None, params: Iterable[Any] | None = None, **settings: Any) -> Job: ...
    @overload
    def submit(self, command: Callable[..., Any], *, params: Iterable[Any], **settings: Any) -> Job: ...
    @overload
    def submit(self, command: Callable[..., Any], *args: Any, **kwargs: Any) -> Future: ...

    def submit(self, command: str | list[str] | Callable[..., Any] | None, *args: Any, **settings: Any) -> Job | Future:
        """`submit("cmd {}", params)` submits a bag of commands; `submit(f, x)` calls a function, and is a future.

        A bag: a command with placeholders, or with `params=` a function, once for each item. Items of a command are
        values (`{}`), dicts (`{name}`) or the rows of a data frame; of a function values, tuples (arguments) or dicts
        (keyword arguments).
        `settings` are those of `windfall run`: name, deadline, budget, memory, wall, cpus, env, cwd, inputs, outputs,
        max_failures, max_losses, max_failed_tasks, priority, policies, ...

        A job in a `fleet` whose run times are estimated is laid out beside the others: if the fleet would not be in
        time, a warning (`LateJob`) says so; `reject=True` raises Missed and submits nothing, `accept_late=True` does
        not ask. `job.admission` has the figures.

        A call: `submit(f, x, key=y)` calls `f(x, key=y)` on a host; `executor` has settings for its calls.
        """
        if callable(command) and "params" not in settings:
            from windfall.client.submitting.making import refuse_wrong_call

            refuse_wrong_call(command, args, settings)
            return self._caller.submit(command, *args, **settings)
        if len(args) > (0 if callable(command) else 1):
            raise BadInput(
                "a bag takes its parameters as one list",
                hint="as in: client.submit('./sim {}', range(10)), or client.submit(f, params=[1, 2])",
            )
        params = args[0] if args else settings.pop("params", None)
        return self._submit_bag(command, params, settings)

    def _submit_bag(self, command: Any, params: Iterable[Any] | None, settings: dict[str, Any]) -> Job:
        from windfall.client.submitting.making import call_bag, command_bag

        if params is not None and not isinstance(params, list | range):
            params = _items(params)
        if self.is_local and not settings.get("inputs"):
            # On this host a task sees what the program that submitted it sees; with inputs it has a directory of its
            # own, as with `windfall run`: tasks side by side would place them over each other.
            settings.setdefault("cwd", str(here()))
        late = _late(settings)
        if callable(command):
            bag = call_bag(command, params, settings, self._calls)
        else:
            bag = command_bag(command, params, settings)
        sent = self.send_told(bag, late)
        known = params

        def given(task: int) -> Any:
            return known[task] if known is not None else None

        return Job(
            self._transport, sent.job, bag.spec.name, params=given, check=self.check, total=bag.count,
            admission=sent.admission,
        )  # fmt: skip

    def send_told(self, bag: Submission, late: Json) -> Sent:
        """Send a bag; warn of a deadline that its fleet would not keep. `late`: `reject` or `accept_late`."""
        sent = self.send(bag, **late)
        if sent.admission is not None and not sent.admission["holds"]:
            warnings.warn("; ".join(sent.admission["says"]), LateJob, stacklevel=4)
        return sent

    # -- calls -------------------------------------------------------------------------------------------------------

    @cached_property
    def _calls(self) -> Calls:
        from windfall.client.submitting.calls import Calls

        return Calls(self._put_blob)

    @property
    def _caller(self) -> Executor:
        """The executor of calls that name none."""
        if self._calls_here is None:
            self._calls_here = self.executor()
        return self._calls_here

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> list[Future]:
        """A future for each call of a function, with an item of each iterable as its arguments."""
        return [self._caller.submit(function, *items) for items in zip(*iterables, strict=False)]

    def gather(self, futures: Future | Iterable[Any], timeout: float | None = None) -> Any:
        """The results of futures, lists of them in lists; waits, and raises what a call raised.

        `TimeoutError` if `timeout` seconds were not enough. In an event loop: `await asyncio.gather(*futures)`.
        """
        return _gathered(futures, None if timeout is None else time.monotonic() + timeout)

    def as_completed(self, futures: Iterable[Future], timeout: float | None = None) -> Completed[Future]:
        """Futures as they end, for `for` and `async for`. `TimeoutError` if `timeout` seconds were not enough."""
        from windfall.client.completed import completed_futures

        return completed_futures(futures, timeout)

    def progress(self, what: Job | Iterable[Future], timeout: float | None = None) -> None:
        """Wait for a job or for futures, and show on standard error how far they are."""
        from windfall.client.showing.milestones import progress

        progress(what, timeout)

    def _put_blob(self, sha256: str, data: bytes) -> None:
        from windfall.client.submitting.sending import put_blob

        put_blob(self._transport, sha256, data)

    def send(
        self, bag: Submission, on_progress: Callable[[int], None] = lambda total: None, *, reject: bool = False,
        accept_late: bool = False,
    ) -> Sent:  # fmt: skip
        """Send a bag that was read or made: its files, its job, its tasks.

        A job in a fleet is told in `admission` whether its deadline would be kept. With `reject`, Missed if it would
        not; with `accept_late` the fleet is not asked.
        """
        from windfall.client.submitting.sending import late_of, send, send_file

        late, outline = late_of(bag, reject, accept_late)
        for sha256, path in bag.uploads.items():
            send_file(self._transport, sha256, path)
        count = bag.count if bag.spec.source.kind == "range" else 0
        return send(
            self._transport, bag.spec, bag.chunks, count=count, shape=bag.shape, estimates=bag.estimates,
            late=late, outline=outline, on_progress=on_progress,
        )  # fmt: skip

    def workflow(self, *, workflow_class: str = "", **settings: Any) -> Workflow:
        """A workflow to be built: tasks that wait for each other. `settings` are those of `submit`: deadline, ...

        `workflow_class`: what to call workflows like this one, of which more may follow (`windfall submit --class`).
        """
        from windfall.client.workflow import Workflow

        return Workflow(self, settings, workflow_class)

    def submit_class(self, workflow_class: str, /, **settings: Any) -> Job:
        """One more job of a class of workflows, with a deadline, a budget and `inputs` (NAME=FILE) of its own."""
        from windfall.bags.submission import Request
        from windfall.client.submitting.making import settings_of
        from windfall.workflows.submission import instance_of

        late = _late(settings)
        bag = instance_of(self.workflow_class(workflow_class), Request(settings=settings_of(settings)))
        sent = self.send_told(bag, late)
        return Job(self._transport, sent.job, bag.spec.name, check=self.check, admission=sent.admission)

    def executor(self, name: str = "calls", **settings: Any) -> Executor:
        """A `concurrent.futures.Executor` on this server. `settings` as those of `submit`: cpus, memory, wall, ..."""
        from windfall.client.executor import Executor

        settings.setdefault("max_failures", 1)
        if self.is_local:
            settings.setdefault("cwd", str(here()))
        executor = Executor(self._transport, self._calls, name, settings, self.check)
        self._executors = [one for one in self._executors if not one.is_over]
        self._executors.append(executor)
        return executor

    # -- looking -----------------------------------------------------------------------------------------------------

    def job(self, reference: int | str = "last") -> Job:
        """A job by its number, its name (the newest of that name), or `last`."""
        status = self._transport.get(f"/v1/jobs/{quote(str(reference), safe='')}")
        return Job(self._transport, status["job"], status["name"], check=self.check)

    def jobs(self, state: str | None = None) -> list[JobStatus]:
        """The status of every job, the newest first."""
        answer: Jobs = self._transport.get("/v1/jobs", state=state)
        return answer["jobs"]

    def classes(self) -> list[WorkflowClass]:
        """The classes of workflows."""
        answer: Classes = self._transport.get("/v1/classes")
        return answer["classes"]

    def workflow_class(self, name: str) -> OneClass:
        """A class of workflows: the job that defines it, its specification, its number of tasks."""
        answer: OneClass = self._transport.get(f"/v1/classes/{quote(name, safe='')}")
        return answer

    def hosts(self) -> list[HostRow]:
        return self.all_hosts()["hosts"]

    def all_hosts(self) -> Hosts:
        """With the sums of those that were forgotten."""
        answer: Hosts = self._transport.get("/v1/hosts")
        return answer

    def host(self, name: str) -> OneHost:
        row: OneHost = self._transport.get(f"/v1/hosts/{quote(name, safe='')}")
        return row

    def tell_host(self, name: str, action: str, **body: Any) -> OneHost:
        """`block` (reason, for_s), `unblock` or `drain` a host."""
        from windfall.api import requests

        said = convert(body, requests.HostBody, f"to {action} a host")
        row: OneHost = self._transport.post(f"/v1/hosts/{quote(name, safe='')}/{action}", said)
        return row

    def events(self, after: int = 0, job: int | str | None = None, follow: bool = False) -> Iterator[Json]:
        """The log from a record on, one decision after the other; with `follow`, also those to come."""
        while True:
            answer = self._transport.get("/v1/events", after=after, job=job, limit=1000, wait_s=25 if follow else 0)
            yield from answer["events"]
            if not answer["events"] and not follow:
                return
            if not answer["events"] and self.is_idle:
                raise Unreachable("no server runs here, so nothing more will happen", hint="see: windfall status")
            after = answer["next"]

    # -- tokens ------------------------------------------------------------------------------------------------------

    def create_token(self, role: str, name: str = "", user: str = "", life_s: float | None = None) -> NewToken:
        """A token: good for `life_s` seconds or until it is revoked, for the jobs of one user or for all."""
        from windfall.api import requests

        made: NewToken = self._transport.post("/v1/tokens", requests.TokenBody(role, name, user, life_s))
        return made

    def rotate_token(self, ident: str, grace_s: float = 0.0) -> NewToken:
        """A token in the place of another one, which ends after `grace_s` seconds."""
        from windfall.api import requests

        path = f"/v1/tokens/{quote(ident, safe='')}/rotate"
        made: NewToken = self._transport.post(path, requests.RotateBody(grace_s))
        return made

    def tokens(self) -> list[ListedToken]:
        answer: Tokens = self._transport.get("/v1/tokens")
        return answer["tokens"]

    def revoke_token(self, ident: str) -> None:
        self._transport.request("DELETE", f"/v1/tokens/{quote(ident, safe='')}")

    def blob(self, sha256: str) -> bytes:
        """The content of an output. DamagedFile if it is not what the hash says."""
        data = bytes(self._transport.request("GET", f"/v1/blobs/{sha256}"))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise DamagedFile(sha256)
        return data

    def save_blob(self, sha256: str, path: str | os.PathLike[str]) -> None:
        """Write an output to a file, which is there whole or not at all; it need not fit into memory."""
        with files.replacing(Path(path)) as unfinished, open(unfinished, "w+b") as file:
            self._transport.request("GET", f"/v1/blobs/{sha256}", into=file)
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise DamagedFile(sha256)

    def check(self) -> None:
        """Raise if the local worker has ended: its jobs would wait for ever."""
        if self._local is not None and (problem := self._local.worker_problem):
            raise problem


class DamagedFile(WindfallError):
    """A file of the server has another content than was sent to it."""

    code = "damaged-file"

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"file {sha256[:12]}… came with another content than its name says",
            hint="look on the server: windfall state check --files",
        )


def _gathered(futures: Any, until_s: float | None) -> Any:
    if hasattr(futures, "result"):
        return futures.result(None if until_s is None else max(0.0, until_s - time.monotonic()))
    return [_gathered(future, until_s) for future in futures]


def _items(params: Any) -> list[Any]:
    """Parameters, one for each task; of a data frame, its rows. Going through a text or a dict is never meant."""
    if hasattr(params, "to_dict") and hasattr(params, "columns"):
        return list(params.to_dict("records"))
    if isinstance(params, str | bytes | dict) or not isinstance(params, Iterable):
        shown = f"{params!r:.40}"
        raise BadInput(
            f"params must hold one item for each task, and {shown} does not",
            hint=f"for one task: params=[{shown}]; for many: params=range(10), or a list of dicts",
        )
    return list(params)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A program that ends without closing its clients leaves nothing running, and no job that waits for more calls.

    Calls are waited for; Ctrl-C ends the waiting.
    """
    for client in list(_clients):
        try:
            client.finish_calls()
        except Exception as error:
            print(f"windfall: calls may be unfinished: {error}", file=sys.stderr)
        finally:
            with contextlib.suppress(Exception):
                client.close(now=True)


@cache
def _close_before_threads_end() -> None:
    """Have `_close_all` called while a server in this process can still write: `atexit` comes after the end of thread
    pools, so that the last records, and with them the end of an executor's job, would be lost."""
    import concurrent.futures.thread  # noqa: F401  what is registered last is called first

    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_close_all)


def _local_server(
    state: str | os.PathLike[str] | None, slots: int | None, pools: str | os.PathLike[str] | None
) -> LocalServer:
    env = {"PYTHONPATH": _importable_here()}
    if pools is None:
        return LocalServer(state_location(state), worker=True, slots=slots, env=env, idle=True)
    from windfall.pools.config import read_pools

    return LocalServer(state_location(state), worker=False, env=env, idle=True, pools=read_pools(Path(pools)))


def _importable_here() -> str:
    """What this program can import, its local worker should be able to import too."""
    entries = [str(Path(entry).absolute()) for entry in sys.path]
    with contextlib.suppress(KeyError):
        entries = [*os.environ["PYTHONPATH"].split(os.pathsep), *entries]
    own = [entry for entry in dict.fromkeys(entries) if entry and not entry.startswith((sys.prefix, sys.base_prefix))]
    return os.pathsep.join(own)


def _late(settings: Json) -> Json:
    """`reject` and `accept_late`, taken out of the settings of a job."""
    return {name: bool(settings.pop(name, False)) for name in ("reject", "accept_late")}
