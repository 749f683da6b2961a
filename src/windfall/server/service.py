"""What the handlers share: the driver, the tokens, the renderers of jobs, and the requests that wait. Touches no
socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property, partial
from math import inf
from typing import Any

from windfall.bags.rendering import Made, Renderer, Rows
from windfall.bags.spec import JobSpec, decode_kept
from windfall.bounds import MAX_WAIT_S
from windfall.core.decisions import HostAnswered, JobLetGo, ResultsJudged
from windfall.core.events import JobForgotten, Key, PoolSwitched
from windfall.core.idle_hosts import IdleHosts
from windfall.core.records import Record
from windfall.core.state.jobs.bags import Bag, blocked_tasks
from windfall.core.state.jobs.columns import CANCELLED, FAILED
from windfall.core.state.state import State
from windfall.core.wishes import jobs_touched, machines_to_wake, wishes
from windfall.drivers.keepers.machines import MachineKeeper
from windfall.drivers.keepers.pools import PoolKeeper
from windfall.drivers.realtime import Realtime
from windfall.drivers.timings import Timings
from windfall.pools.kinds import Front
from windfall.server.auth import Tokens
from windfall.server.http.console.links import Links
from windfall.server.http.uploads import Uploads
from windfall.server.http.workers.live import LiveOutput
from windfall.server.http.workers.senders import Senders
from windfall.server.job_files import JobFiles
from windfall.server.limits import Intake, Limits
from windfall.server.outputs import output_files, output_rows
from windfall.server.queries.by_reference import NotFound as NotFound
from windfall.server.queries.by_reference import bag_of
from windfall.server.queries.by_reference import decimal as decimal
from windfall.server.queries.downtime import Span, downtimes
from windfall.server.rising import Rising
from windfall.server.sites.keeper import SiteKeeper
from windfall.store.contract import ChunkHead, Store

log = logging.getLogger(__name__)

REMEMBERED_JOBS = 32
"""Jobs that have ended whose specification and tasks are kept in mind: megabytes each."""
REMEMBERED_ARRIVALS = 10_000
"""Hosts whose exchanges are counted beyond twice those that the state knows."""
REMEMBERED_NAMES = 16
"""Workflows whose tasks can be found by name without reading them again."""
REMEMBERED_MAKERS = 20_000
"""Tasks of workflows whose output files are kept in mind: those that take them come soon after."""


class Service:
    """One server's moving parts."""

    def __init__(self, driver: Realtime, store: Store) -> None:
        self.driver = driver
        self.store = store
        self.tokens = Tokens(store, driver.clock)
        self.live = LiveOutput()
        self.intake = Intake(Limits())
        self.uploads = Uploads(store)
        self.senders = Senders(driver.state)
        self.job_files = JobFiles(store, lambda: driver.state, lambda: self.intake.limits.job_blobs_bytes)
        self.owned = SiteKeeper(driver, [])
        self.rented: MachineKeeper | None = None
        self.asked: PoolKeeper | None = None
        self.fronts: dict[str, Front] = {}
        """Applications of pools whose hosts speak a protocol of their own, by their paths."""
        self.admin: object = None
        """The server's PoolAdmin, once it has begun."""
        self._renderers: dict[int, Renderer] = {}
        self._specs: dict[int, JobSpec] = {}
        self._tidy_at = 4 * REMEMBERED_JOBS
        self._names: dict[int, dict[str, int]] = {}
        self._blocked: dict[int, tuple[tuple[int, int, int], frozenset[int]]] = {}
        self._classes: dict[str, int] = {}
        self._classes_until = 1
        self._made: dict[Key, dict[str, list[Any]]] = {}
        self._hosts: dict[str, asyncio.Future[None]] = {}
        self.idle = IdleHosts(driver.engine.policies)
        """The same hosts, as the rule sees them that says whom to wake."""
        self._look_t = inf
        self._watchers: list[asyncio.Future[None]] = []
        self.versions: dict[int, int] = {}
        self.committed = driver.state.seq
        """The last record that is known to be durable."""
        self._arrivals: dict[str, int] = {}
        self.stopping = False
        self.tails: dict[int, float] = {}
        """Jobs in their tail phase, since when; known of those that entered it while this server runs."""
        self.exchange_times = Timings()
        self.rising = Rising()
        self.loop_times = Timings()
        """How long the event loop takes to answer a call from another thread, once a second."""
        self.began_s = driver.clock()
        self.open_metrics = False
        """Whether `/metrics` needs no token."""
        self.serving = False
        """Whether pools, plans and the web server have begun."""
        self.links = Links()
        self.listeners = 0
        """Pages that are told news."""
        self.pages: dict[str, tuple[bytes, str, str]] = {}
        self.drawing = asyncio.Lock()
        self.drawn: dict[int, tuple[int, float, dict[str, Any]]] = {}
        """Pictures of jobs: the version of the job, when they were drawn, the answer."""
        self.simulating = asyncio.Lock()
        driver.on_commit.append(self._committed)

    @property
    def state(self) -> State:
        return self.driver.state

    @property
    def hosts_waiting(self) -> int:
        """Hosts whose request for work is held open."""
        return len(self._hosts)

    @property
    def watchers(self) -> int:
        """Requests that are answered when something changes."""
        return len(self._watchers)

    def now(self) -> float:
        """Unix seconds, by the clock of the driver."""
        return self.driver.clock()

    @cached_property
    def downtimes(self) -> list[Span]:
        """When no server ran; while this one runs, nothing is added."""
        return downtimes(self.store)

    # --- jobs by reference ---

    def bag(self, reference: str) -> Bag:
        """A job by number, by name (the newest of that name), or `last`."""
        return bag_of(self.state, reference)

    def classes(self) -> dict[str, int]:
        """Classes of workflows by name, each with the newest job that brought its own tasks."""
        for number in range(self._classes_until, self.state.bags.next):
            bag = self.state.bags.get(number)  # named fleets have numbers, too, and some jobs were forgotten
            if bag is not None and bag.rules.workflow_class and not bag.rules.like:
                self._classes[bag.rules.workflow_class] = number
        self._classes_until = self.state.bags.next
        return self._classes

    def spec(self, job: int) -> JobSpec:
        spec = self._specs.get(job)
        if spec is None:
            data = self.store.job_spec(job)
            if data is None:
                raise NotFound(f"there is no job {job}", code="no-such-job")
            spec = self._specs[job] = decode_kept(data, f"the specification of job {job}")
            self._tidy()
        return spec

    def replace_spec(self, job: int, spec: JobSpec) -> None:
        """The job is another one from now on; chunks that are being written stay known."""
        rows = self.renderer(job).rows
        self._specs[job] = spec
        self._renderers[job] = Renderer(spec, rows, partial(self.made, job))

    def renderer(self, job: int) -> Renderer:
        renderer = self._renderers.get(job)
        if renderer is None:
            spec = self.spec(job)
            rows = self.renderer(spec.like).rows if spec.like else self._rows(job)
            renderer = self._renderers[job] = Renderer(spec, rows, partial(self.made, job))
            self._tidy()
        return renderer

    def _tidy(self) -> None:
        """Drop what is kept in mind of jobs that have ended, but for the last ones: the store has it."""
        if len(self._specs) + len(self._renderers) < self._tidy_at:
            return
        bags = self.state.bags
        kept: dict[int, Any]
        for kept in (self._renderers, self._specs):
            ended = [job for job in kept if job not in bags or bags[job].finished_t is not None]
            for job in ended[:-REMEMBERED_JOBS]:
                del kept[job]
        self._tidy_at = len(self._specs) + len(self._renderers) + 2 * REMEMBERED_JOBS

    def _rows(self, job: int) -> Rows:
        return Rows(self.store.chunks(job), partial(self.store.chunk, job))

    def chunks_added(self, job: int, heads: list[ChunkHead]) -> None:
        # Made now, while the store does not have them: one made while they are being written would miss them.
        self.renderer(job).rows.extend(heads)

    def names(self, bag: Bag) -> dict[str, int]:
        """The tasks of a workflow by name; jobs of a class share theirs."""
        first = bag.rules.like or bag.number
        names = self._names.get(first)
        if names is None or len(names) != bag.total:
            renderer = self.renderer(bag.number)
            if len(self._names) >= REMEMBERED_NAMES:
                self._names.clear()
            names = self._names[first] = {str(renderer.name(task)): task for task in range(bag.total)}
        return names

    def blocked(self, bag: Bag) -> frozenset[int]:
        """Tasks of a workflow that wait for one that failed or was cancelled; looked for once per change of those."""
        counts = bag.counts
        ended = (counts[FAILED], counts[CANCELLED], bag.queues.held)
        if bag.shape is None or not bag.queues.held or not (counts[FAILED] or counts[CANCELLED]):
            return frozenset()
        known = self._blocked.get(bag.number)
        if known is None or known[0] != ended:
            known = self._blocked[bag.number] = (ended, blocked_tasks(bag))
        return known[1]

    def made(self, job: int, tasks: list[int]) -> Made:
        """The output files of tasks that are done, by task and name. For the tasks of a workflow that take them."""
        attempt = self.bag(str(job)).columns.attempt
        keys = {task: (job, task, attempt[task]) for task in tasks if task < len(attempt)}
        unknown = [task for task, key in keys.items() if key not in self._made]
        for row in output_rows(self.store, job, unknown):
            self._made[row.job, row.task, row.attempt] = {file[0]: file for file in output_files(row.data)}
        found = {task: self._made.get(key, {}) for task, key in keys.items()}
        while len(self._made) > REMEMBERED_MAKERS:
            del self._made[next(iter(self._made))]
        return found

    # --- waiting ---

    def arrived(self, host: str) -> int:
        """Count an exchange that came in; `arrival` tells whether another one of this host has come since."""
        arrivals = self._arrivals
        if len(arrivals) > REMEMBERED_ARRIVALS and len(arrivals) > REMEMBERED_ARRIVALS + 2 * len(self.state.hosts):
            # Most are of hosts that came once.
            self._arrivals = arrivals = {name: count for name, count in arrivals.items() if self.state.host(name)}
        arrival = arrivals[host] = arrivals.get(host, 0) + 1
        return arrival

    def arrival(self, host: str) -> int:
        return self._arrivals.get(host, 0)

    async def host_waits(self, host: str, asked_seq: int, seconds: float) -> None:
        """Return when there may be something for this host, or when the time is over.

        What came up since the host asked (record `asked_seq`), while its record was being written, counts too.
        """
        if self.idle.has_missed(asked_seq) or self.stopping:
            return
        earlier = self._hosts.pop(host, None)
        if earlier is not None and not earlier.done():
            earlier.set_result(None)
        future = self._hosts[host] = asyncio.get_running_loop().create_future()
        self.idle.begin(host, asked_seq, self.now())
        self._look_at_idle()
        try:
            await wait_for(future, seconds)
        finally:
            # Also when its connection is lost: a host that waits no more would be woken in the place of one that does.
            if self._hosts.get(host) is future:
                del self._hosts[host]
                self.idle.end(host)

    async def change(self, until: Callable[[], bool], seconds: float) -> None:
        """Return as soon as `until()` holds, looking after every commit, or when the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + min(seconds, MAX_WAIT_S)
        while not until() and not self.stopping and (left := end - loop.time()) > 0:
            future = loop.create_future()
            self._watchers.append(future)
            await wait_for(future, left)

    def _committed(self, records: list[Record]) -> None:
        self.committed = records[-1].seq if records else self.committed
        state, versions, machines = self.state, self.versions, bool(self.state.fleet.there)
        for record in records:
            decided, seq = record.decided, record.seq
            if type(decided) is HostAnswered:
                # Half of the records of a busy server, and of these nearly all hand tasks out and change nothing else.
                for piece in decided.assigned:
                    versions[piece.job] = seq
                if not (decided.lost or decided.tails or machines):
                    continue
                self._note_tails(decided, record.event.t)
            for job in jobs_touched(state, record):
                versions[job] = seq
            self.idle.heed(state, record)
            if machines:
                for machine in machines_to_wake(state, record):
                    self._wake(state.hosts[machine.host].name)
            if type(decided) is not ResultsJudged:
                self._heed(record)
        watchers, self._watchers = self._watchers, []
        for future in watchers:
            if not future.done():
                future.set_result(None)
        self._wake_hosts()

    def _note_tails(self, decided: HostAnswered, t: float) -> None:
        for job, entered in decided.tails:
            if entered:
                self.tails[job] = t
            else:
                self.tails.pop(job, None)

    def _heed(self, record: Record) -> None:
        """What an operator has done to a job or a pool."""
        event = record.event
        if isinstance(event, JobForgotten) and record.decided == JobLetGo():
            self._forget(event.job)
        elif isinstance(event, PoolSwitched):
            self._wake_pool(event.pool)

    def _forget(self, job: int) -> None:
        """Keep nothing in mind of a job that is no more. Its version stays: requests that wait for it are answered."""
        kept: dict[int, Any]
        for kept in (self._renderers, self._specs, self._names, self._blocked, self.tails, self.drawn):
            kept.pop(job, None)
        self.job_files.forget(job)
        self.senders.forget(job)
        self._made = {key: files for key, files in self._made.items() if key[0] != job}
        self._classes, self._classes_until = {}, 1

    def _wake_hosts(self) -> None:
        """Wake the waiting hosts that may be given something now, and those to be told off."""
        state = self.state
        for number in list(wishes(state).tell):
            self._wake(state.hosts[number].name)
        if self.idle.since:
            self._look_at_idle()

    def _look_at_idle(self) -> None:
        try:
            names, look_t = self.idle.look(self.state, self.now())
        except Exception:
            # Called after every commit, which must not fail for it. Hosts that wait ask again by themselves.
            log.exception("hosts that wait for work could not be looked at")
            return
        for name in names:
            self._wake(name)
        if look_t < self._look_t:
            self._look_t = look_t
            asyncio.get_running_loop().call_later(max(0.0, look_t - self.now()), self._look, look_t)

    def _look(self, look_t: float) -> None:
        """Time alone has made work for waiting hosts, unless a look before this one was called for since."""
        if look_t == self._look_t:
            self._look_t = inf
            self._look_at_idle()

    def _wake_pool(self, pool: str) -> None:
        """Hosts that wait for work hear at once that their pool is drained."""
        for name in [*self._hosts]:
            host = self.state.host(name)
            if host is not None and host.pool == pool:
                self._wake(name)

    def _wake(self, host: str) -> None:
        future = self._hosts.pop(host, None)
        self.idle.end(host)
        if future is not None and not future.done():
            future.set_result(None)

    def wake_everybody(self) -> None:
        """The server stops: answer every waiting request now, and let no other wait."""
        self.stopping = True
        for future in [*self._hosts.values(), *self._watchers]:
            if not future.done():
                future.set_result(None)


async def wait_for(future: asyncio.Future[None], seconds: float) -> None:
    def end() -> None:
        if not future.done():
            future.set_result(None)

    timer = asyncio.get_running_loop().call_later(seconds, end)
    try:
        await future
    finally:
        timer.cancel()
