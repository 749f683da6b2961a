"""The bytes of files that each job has, where jobs have a quota (`--limit job-blobs=SIZE`). Touches the store.

Counted are the different files that a job names (its inputs, and outputs of all results that are kept), the newest
checkpoint of each task, and what hosts have sent for attempts that run. A file that two jobs name counts for both, so
that no job depends on what another one forgets. Each job is read from the store once, in a thread; then it is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from windfall.bags.chunks import decode
from windfall.bags.spec import InputFile, TaskRow, decode_kept
from windfall.bounds import MAX_INTEGER
from windfall.core.events import Key
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.state import State
from windfall.server.limits import TooLarge
from windfall.server.outputs import PAGE, output_files
from windfall.store.contract import Store

MOST_DIGESTS = 1_000_000
"""Digests of files that are kept in mind, of all jobs. Beyond it a file that a job names again counts again."""
MOST_REFUSED = 10_000
REMEMBERED_JOBS = 64
"""Jobs that are counted before those that have ended are dropped; sooner if they have half of the digests."""
COUNTING_S = 5.0
"""Seconds that a host waits while the files of its job are counted; then what it has is let through. An object store
takes minutes for ten thousand inputs, and the lease of the host would run out."""
CHECKPOINT = 0
"""In place of an attempt: the checkpoint of a task."""


class JobQuota(TooLarge):
    """The files of a job would be more than the operator allows one job."""

    code = "job-quota"

    def __init__(self, job: int, size: int, limit: int) -> None:
        name = f"of job {job}" if job else "of this job"
        super().__init__(
            f"the files {name} would have {size:,} bytes, more than the {limit:,} that one job may have",
            limit=limit,
            hint="write less, send outputs to a store (PATH=s3://...), or ask the operator for more: "
            "windfall server --limit job-blobs=SIZE",
        )

    @property
    def text(self) -> str:
        return f"{self.message}; {self.hint}"


class Files:
    """The files of one job. `held`: by task and attempt, those that no result has named yet."""

    def __init__(self) -> None:
        self.named: set[bytes] = set()
        self.named_bytes = 0
        self.arriving: dict[str, int] = {}
        self.held: dict[tuple[int, int], dict[str, int]] = {}
        self._holders: dict[str, int] = {}
        self._held_bytes = 0

    @property
    def total(self) -> int:
        # Of two hosts that send the same file, one is the first: what the other one sends is here already.
        arriving = sum(size for sha256, size in self.arriving.items() if not self.has(sha256))
        return self.named_bytes + self._held_bytes + arriving

    def has(self, sha256: str) -> bool:
        return sha256 in self._holders or digest(sha256) in self.named

    def hold(self, holder: tuple[int, int], sha256: str, size: int) -> None:
        files = self.held.setdefault(holder, {})
        if sha256 in files:
            return
        files[sha256] = size
        count = self._holders[sha256] = self._holders.get(sha256, 0) + 1
        if count == 1 and digest(sha256) not in self.named:
            self._held_bytes += size

    def release(self, holder: tuple[int, int], only: Iterable[str] | None = None) -> None:
        files = self.held.get(holder)
        if files is None:
            return
        for sha256 in list(files) if only is None else [sha256 for sha256 in only if sha256 in files]:
            size = files.pop(sha256)
            self._holders[sha256] -= 1
            if not self._holders[sha256]:
                del self._holders[sha256]
                if digest(sha256) not in self.named:
                    self._held_bytes -= size
        if not files:
            del self.held[holder]

    def name(self, sha256: str, size: int, *, remember: bool = True) -> None:
        """A result, or a task, names a file from now on. `remember`: it counts once, however often it is named."""
        key = digest(sha256)
        if key in self.named:
            return
        self.named_bytes += size
        if remember:
            self.named.add(key)
            if sha256 in self._holders:
                self._held_bytes -= size

    def unnamed_bytes(self, holder: tuple[int, int]) -> int:
        """What a holder has that no result names."""
        return sum(size for sha256, size in self.held.get(holder, {}).items() if digest(sha256) not in self.named)

    def saved_bytes(self, task: int) -> int:
        """The checkpoint of a task, where nothing else of the job is the same file."""
        held = self.held.get((task, CHECKPOINT), {}).items()
        return sum(size for sha256, size in held if self._holders[sha256] == 1 and digest(sha256) not in self.named)

    def tidy(self, bag: Bag | None) -> None:
        """Release what attempts sent that have ended, and checkpoints that are not the newest of their tasks."""
        for task, attempt in list(self.held):
            if attempt != CHECKPOINT:
                if bag is None or bag.attempts.find(task, attempt) is None:
                    self.release((task, attempt))
            elif bag is None or bag.progress.checkpoints.get(task) not in self.held[task, attempt]:
                self.release((task, attempt))


class JobFiles:
    """The files of all jobs that are not at their end, and the attempts whose files were refused."""

    def __init__(self, store: Store, state: Callable[[], State], limit_bytes: Callable[[], int]) -> None:
        self._store, self._state, self._limit_bytes = store, state, limit_bytes
        self._jobs: dict[int, Files] = {}
        self._reading: dict[int, asyncio.Task[Files]] = {}
        self._digests = 0
        self._refused: dict[Key, str] = {}

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes()

    @property
    def is_limited(self) -> bool:
        return self.limit_bytes < MAX_INTEGER

    def _bag(self, job: int) -> Bag | None:
        return self._state().bags.get(job)

    async def of(self, job: int) -> Files:
        """The files of a job, read when it is first asked for."""
        found = self._jobs.get(job)
        if found is not None:
            return found
        reading = self._reading.get(job)
        if reading is None:
            reading = self._reading[job] = asyncio.create_task(self._read(job), name=f"files of job {job}")
            reading.add_done_callback(lambda _: self._reading.pop(job, None))
        return await asyncio.shield(reading)

    async def _soon(self, job: int) -> Files | None:
        """The files of a job; None while they are being counted."""
        if (found := self._jobs.get(job)) is not None:
            return found
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COUNTING_S):
                return await self.of(job)
        return None

    async def _read(self, job: int) -> Files:
        bag = self._bag(job)
        checkpoints = {} if bag is None else dict(bag.progress.checkpoints)
        if len(self._jobs) >= REMEMBERED_JOBS or self._digests >= MOST_DIGESTS // 2:
            for number in [number for number in self._jobs if self._has_ended(number)]:
                self.forget(number)
        most = max(0, MOST_DIGESTS - self._digests)
        files = await asyncio.to_thread(_read_files, self._store, job, checkpoints, most)
        self._jobs[job] = files
        self._digests += len(files.named)
        return files

    def _has_ended(self, job: int) -> bool:
        bag = self._bag(job)
        return bag is None or bag.finished_t is not None

    def forget(self, job: int) -> None:
        """Keep nothing in mind of a job: it was forgotten, or it is read again if it goes on."""
        files = self._jobs.pop(job, None)
        self._digests -= 0 if files is None else len(files.named)

    def refuse_over(self, key: Key, files: Files, sha256: str = "") -> None:
        """JobQuota if the job of an attempt has more than it may have, with the file that the attempt sends.

        The checkpoint of its own task is not in the way: a newer one replaces it, and a result makes it needless.
        """
        if files.total <= self.limit_bytes:
            return
        files.tidy(self._bag(key[0]))
        total = files.total - files.saved_bytes(key[1])
        if total > self.limit_bytes:
            quota = JobQuota(key[0], total, self.limit_bytes)
            # Else it is others that take its place with what no result names: it may fit later.
            if files.named_bytes + files.unnamed_bytes(key[1:]) + files.arriving.get(sha256, 0) > self.limit_bytes:
                self._note(key, quota.text)
            raise quota

    def _note(self, key: Key, why: str) -> None:
        if len(self._refused) >= MOST_REFUSED:
            live = [key for key in self._refused if (bag := self._bag(key[0])) and bag.attempts.find(*key[1:])]
            self._refused = {key: self._refused[key] for key in live[: MOST_REFUSED // 2]}
        self._refused[key] = why

    def why_refused(self, key: Key) -> str:
        """Why a file of this attempt was refused, if that of another attempt would be, too; else empty."""
        return self._refused.get(key, "")

    # --- what comes in ---

    async def sending(self, key: Key, sha256: str) -> Sending | None:
        """A host begins to send a file for an attempt that it has. None: it is not counted yet."""
        files = await self._soon(key[0])
        return None if files is None else Sending(self, files, key, sha256)

    async def add_inputs(self, job: int, inputs: Iterable[InputFile]) -> None:
        """More tasks of a job take these files. JobQuota: none of them is counted, the tasks are to be refused."""
        files = await self.of(job)
        wanted = await asyncio.to_thread(_sizes_of_inputs, self._store, list(inputs))
        new = {sha256: size for sha256, size in wanted.items() if digest(sha256) not in files.named}
        more = sum(size for sha256, size in new.items() if not files.has(sha256))
        if files.total + more > self.limit_bytes:
            files.tidy(self._bag(job))
            if files.total + more > self.limit_bytes:
                raise JobQuota(job, files.total + more, self.limit_bytes)
        self._name(files, new)

    async def admit(self, key: Key, sizes: Mapping[str, int]) -> str:
        """Hold the outputs of a result until it is judged; or say why they are more than the job may have.

        `why_refused` tells whether another attempt would meet the same.
        """
        files = await self._soon(key[0])
        if files is None:
            return ""
        already = set(files.held.get(key[1:], ()))
        for sha256, size in sizes.items():
            files.hold(key[1:], sha256, size)
        try:
            self.refuse_over(key, files)
        except JobQuota as quota:
            files.release(key[1:], [sha256 for sha256 in sizes if sha256 not in already])
            return quota.text
        return ""

    async def admit_checkpoint(self, key: Key, sha256: str, size: int) -> bool:
        """Count the newest checkpoint of a task in place of the one before; False: it is too large."""
        files, place = await self._soon(key[0]), (key[1], CHECKPOINT)
        if files is None:
            return True
        before = dict(files.held.get(place, {}))
        files.release(place)
        files.hold(place, sha256, size)
        if files.total > self.limit_bytes:  # not tidied: the state does not know of this checkpoint yet
            files.release(place)
            for earlier, its_size in before.items():
                files.hold(place, earlier, its_size)
            return False
        files.release(key[1:], [sha256])
        return True

    def judged(self, key: Key, named: Mapping[str, int]) -> None:
        """A result is in the log: it names these files, and nothing else that its attempt sent is needed."""
        self._refused.pop(key, None)
        files = self._jobs.get(key[0])
        if files is not None:
            self._name(files, named)
            files.release(key[1:])

    def _name(self, files: Files, named: Mapping[str, int]) -> None:
        for sha256, size in named.items():
            before = len(files.named)
            files.name(sha256, size, remember=self._digests < MOST_DIGESTS)
            self._digests += len(files.named) - before


class Sending:
    """One file on its way, for an attempt."""

    def __init__(self, jobs: JobFiles, files: Files, key: Key, sha256: str) -> None:
        self._jobs, self._files, self._key, self._sha256 = jobs, files, key, sha256
        self._taken = self._announced = 0
        self._counts = not files.has(sha256) and sha256 not in files.arriving
        """What the job has, or another host of it sends, is counted already."""
        if self._counts:
            files.arriving[sha256] = 0

    def announce(self, size: int) -> None:
        """So many bytes will come. JobQuota: none of them is to be taken."""
        self._announced = size
        self._count()

    def take(self, count: int) -> None:
        """A piece of it. JobQuota: no more of it is to be taken."""
        self._taken += count
        self._count()

    def _count(self) -> None:
        if self._counts:
            self._files.arriving[self._sha256] = max(self._taken, self._announced)
            self._jobs.refuse_over(self._key, self._files, self._sha256)

    def kept(self, size: int) -> None:
        """All of it is here."""
        self.end()
        self._files.hold(self._key[1:], self._sha256, size)
        try:
            self._jobs.refuse_over(self._key, self._files)
        except JobQuota:
            self._files.release(self._key[1:], [self._sha256])
            raise

    def end(self) -> None:
        if self._counts:
            self._files.arriving.pop(self._sha256, None)
            self._counts = False


def digest(sha256: str) -> bytes:
    """Half of a digest: enough to tell files apart, in half of the memory."""
    return bytes.fromhex(sha256[:32])


def size_of_inputs(store: Store, inputs: Iterable[InputFile]) -> int:
    """Bytes of the different files that the server keeps of these."""
    return sum(_sizes_of_inputs(store, list(inputs)).values())


def _sizes_of_inputs(store: Store, inputs: list[InputFile]) -> dict[str, int]:
    found: dict[str, int] = {}
    for file in inputs:
        if not file.url and file.sha256 not in found:
            size = store.blob_size(file.sha256)
            found[file.sha256] = file.size if size is None else size
    return found


def _read_files(store: Store, job: int, checkpoints: dict[int, str], most: int) -> Files:
    """The files that a job has. Runs in a thread. `most`: digests to remember."""
    files = Files()
    for sha256, size in files_of(store, job, sized=True):
        files.name(sha256, size, remember=len(files.named) < most)
    for task, sha256 in checkpoints.items():
        files.hold((task, CHECKPOINT), sha256, store.blob_size(sha256) or 0)
    return files


def files_of(store: Store, job: int, *, sized: bool = False) -> Iterator[tuple[str, int]]:
    """The files that a job takes and has made, with their sizes; some come several times.

    `sized`: the store is asked for the sizes of inputs, of which a submitter may say anything.
    """
    data = store.job_spec(job)
    if data is None:
        return
    spec = decode_kept(data, f"the specification of job {job}")
    yield from _sized(store, (*spec.inputs, *spec.files), sized)
    if spec.source.kind == "tasks":
        for head in store.chunks(job):
            for task in decode(head.codec, store.chunk(job, head.first), head.count):
                assert isinstance(task, TaskRow)
                yield from _sized(store, task.inputs or (), sized)
    if not spec.outputs and spec.source.kind != "tasks" and not spec.like:
        return
    after: tuple[int, int] | None = None
    while rows := store.outputs(job, None, after, PAGE):
        for row in rows:
            yield from ((file[1], file[2]) for file in output_files(row.data))
        after = (rows[-1].task, rows[-1].attempt)


def _sized(store: Store, inputs: Iterable[InputFile], sized: bool) -> Iterator[tuple[str, int]]:
    if sized:
        yield from _sizes_of_inputs(store, list(inputs)).items()
    else:
        yield from ((file.sha256, file.size) for file in inputs)
