"""The provider: workers as Jobs, watched. Touches the API server, by `api.py`, and one folder.

The folder remembers what the cluster forgets: that a worker was told to end, and how it ended. Without it the workers
are still found, by their labels.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import (
    CREDENTIALS,
    ENDED,
    FAILED,
    INVALID,
    PENDING,
    RELEASED,
    TAKEN,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    Seen,
)
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.kubernetes import doctor, manifest
from windfall.pools.kubernetes.answers import CONFLICT, NOT_FOUND, ApiError, Event, Job, Listed, Pod, decoded
from windfall.pools.kubernetes.api import Api, core, deletion, jobs
from windfall.pools.kubernetes.manifest import Worker
from windfall.pools.kubernetes.mirror import Mirror
from windfall.pools.kubernetes.settings import KubernetesSettings, seconds
from windfall.pools.kubernetes.verdict import DELETED, Verdict, disruption, judge
from windfall.pools.starting.shipped import one_line, server_of, write_private

SHOWN_S = 600.0
"""Seconds for which a worker is listed after its end."""
FIRM_S = 5.0
"""A pod that was told to end and has not ended after this time is killed."""
PODLESS_S = 5.0
"""A Job without a pod for this time is asked why."""
_TAKEN_BY = ("Preempted", "TaintManagerEviction", "Evicted", "NodeShutdown")
"""Reasons of events that say why a pod is deleted."""
Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Pods = list[Pod]


class Kept(Struct):
    """What is written down about one worker."""

    host: str
    id: str
    uid: str = ""
    """Of its Job."""
    started_t: float = 0.0
    told_t: float = 0.0
    """When it was told to end; 0: never."""
    ended_t: float = 0.0
    cause: str = ""
    about: str = ""
    listed: bool = False
    """The mirror has shown it: from then on, one that is not shown has ended."""
    token: str = ""
    """Digest of the token in its Secret."""


class Loss(Struct):
    """A pod that Kubernetes deletes, and why as far as that is known."""

    pod_uid: str
    why: str = ""


class Problem:
    """A pool whose cluster cannot even be named: every call says why."""

    offers: tuple[Offer, ...] = ()
    interval_s = 30.0

    def __init__(self, error: BadInput) -> None:
        self._error, self._hint = PoolError(error.message, CREDENTIALS), error.hint or ""

    def start(self, order: Order) -> str | PoolError:
        return self._error

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        return self._error

    def list(self) -> Rows | PoolError:
        return self._error

    def doctor(self) -> Checks:
        return [Check("the cluster's configuration can be read", self._error.error, self._hint)]

    def close(self) -> None:
        pass


class KubernetesPool:
    """See windfall.pools.contract.Pool. The id of a worker is the name of its Job."""

    offers: tuple[Offer, ...] = ()

    def __init__(
        self, pool: PoolConfig, place: Place, clock: Callable[[], float] = time.time, api: Api | None = None
    ) -> None:
        """BadInput if it cannot be told which cluster is meant. `api`: calls of another kind, for tests."""
        self._pool, self._place, self._clock = pool, place, clock
        self._settings: KubernetesSettings = pool.settings
        self.interval_s = seconds(self._settings, "interval")
        self._keep_s, self._pending_s = seconds(self._settings, "keep"), seconds(self._settings, "pending")
        self._wait_s = seconds(self._settings, "time_limit")
        self._server = server_of(place, self._settings.server)
        self._api = Api(pool) if api is None else api
        self._kept: dict[str, Kept] = {}
        self._asked_at_t: dict[str, float] = {}
        self._losses: dict[str, Loss] = {}
        """Pods that are taken away, by the uid of their Job."""
        self._recall()
        selector = manifest.selector(place.owner, pool.name)
        self._notify: Callable[[], None] = lambda: None
        self._jobs: Mirror[Job] = Mirror(self._api, jobs(), selector, Job, lambda _: self._notify())
        self._pods: Mirror[Pod] = Mirror(self._api, core("pods"), selector, Pod, self._see_losses)

    def _recall(self) -> None:
        with contextlib.suppress(OSError):
            for path in sorted(self._place.directory.glob("*.json")):
                with contextlib.suppress(OSError, msgspec.DecodeError):
                    kept = msgspec.json.decode(path.read_bytes(), type=Kept)
                    self._kept[kept.host] = kept

    def watch(self, changed: Callable[[], None]) -> None:
        self._notify = changed

    # --- starting ---

    def start(self, order: Order) -> str | PoolError:
        known = self._kept.get(order.host)
        if known is not None and (known.ended_t or known.token):
            return known.id
        worker = self._worker(order.host)
        try:
            self._place.token_file.read_text()
            self._place.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            return PoolError(f"{error.filename}: {error.strerror or error}", TRANSIENT)
        uid = self._make_job(worker, manifest.job(self._pool, worker, order, self._server, bool(self._place.cafile)))
        if isinstance(uid, PoolError):
            return uid
        kept = Kept(order.host, worker.name, uid, self._clock())
        if (refused := self._make_secret(kept)) is not None:
            self._api.call("DELETE", jobs(worker.name), deletion(uid))
            return refused
        self._kept[order.host] = kept
        self._write(kept)
        return kept.id

    def _make_job(self, worker: Worker, made: manifest.Json) -> str | PoolError:
        """Uid of the Job, made now or by an earlier call."""
        # Quotas and admission refuse pods, not Jobs: only a dry run of the pod says so before it is too late.
        tried = self._api.call("POST", core("pods"), manifest.trial_pod(made), dryRun="All")
        is_refused = isinstance(tried, ApiError) and tried.kind != CREDENTIALS and not doctor.cannot_dry_run(tried)
        answer = tried if is_refused else self._api.call("POST", jobs(), made)
        if isinstance(answer, ApiError) and (answer.code == CONFLICT or is_refused):
            there = self._api.call("GET", jobs(worker.name))
            answer = answer if isinstance(there, ApiError) else there
        if isinstance(answer, ApiError):
            return answer
        job = decoded(answer, Job)
        if isinstance(job, PoolError):
            return job
        if job.metadata.annotation(manifest.OWNER) != self._place.owner:
            return PoolError(f"there is a Job {worker.name} that is not ours", INVALID)
        if job.metadata.is_deleting:
            return PoolError(f"Job {worker.name} of an earlier order is being deleted", TRANSIENT)
        return job.metadata.uid

    def _make_secret(self, kept: Kept) -> PoolError | None:
        """Give the worker what it needs, unless an earlier call did."""
        try:
            token = self._place.ticket_for(kept.host)
            certificate = Path(self._place.cafile).read_text() if self._place.cafile else ""
        except OSError as error:
            return PoolError(f"{error.filename}: {error.strerror or error}", TRANSIENT)
        made = manifest.secret(self._worker(kept.host), kept.uid, token, certificate)
        answer = self._api.call("POST", core("secrets"), made)
        if isinstance(answer, ApiError) and answer.code == CONFLICT:
            answer = self._api.call("GET", core("secrets", kept.id))
        there = answer if isinstance(answer, ApiError) else decoded(answer, Job)  # only its metadata is read
        if isinstance(there, PoolError):
            return there
        if all(owner.uid != kept.uid for owner in there.metadata.owner_references):
            return PoolError(f"Secret {kept.id} belongs to a Job that is gone; it is being removed", TRANSIENT)
        kept.token = _digest(token)
        return None

    # --- what there is ---

    def list(self) -> Rows | PoolError:
        listed, pods = self._jobs.objects(self._wait_s), self._pods.objects(self._wait_s)
        if isinstance(listed, PoolError):
            return listed
        if isinstance(pods, PoolError):
            return pods
        by_job: dict[str, Pods] = {}
        for pod in pods:
            by_job.setdefault(pod.job.uid, []).append(pod)
        there: dict[str, Job] = {}
        for job in listed:
            if (host := self._host_of(job)) is not None:
                there[host] = job
        for host, job in there.items():
            if host not in self._kept:
                found = job.metadata
                self._kept[host] = Kept(host, found.name, found.uid, found.created_t)
        return [self._seen(kept, there.get(kept.host), by_job.get(kept.uid, [])) for kept in [*self._kept.values()]]

    def _host_of(self, job: Job) -> str | None:
        """Name of the order; None if the Job is not ours, whatever its labels say."""
        metadata = job.metadata
        host = metadata.annotation(manifest.HOST)
        return host if host and self._worker(host).name == metadata.name else None

    def _seen(self, kept: Kept, job: Job | None, pods: Pods) -> Seen:
        now = self._clock()
        if not kept.ended_t:
            verdict = self._verdict(kept, job, pods, now)
            if verdict.phase != ENDED:
                return Seen(kept.id, verdict.phase, verdict.since_t, kept.host, "", verdict.taken_at_t, verdict.about)
            self._end(kept, verdict, now)
        if job is not None and not job.metadata.is_deleting and now >= kept.ended_t + self._keep_s:
            self._api.call("DELETE", jobs(kept.id), deletion(job.metadata.uid))
        elif job is None and now > kept.ended_t + SHOWN_S:
            self._forget(kept)
        return Seen(kept.id, ENDED, kept.ended_t, kept.host, kept.cause, None, kept.about)

    def _verdict(self, kept: Kept, job: Job | None, pods: Pods, now: float) -> Verdict:
        if job is None:
            return self._not_shown(kept, now)
        if not kept.listed:
            kept.listed = True
            self._write(kept)
        verdict = judge(kept.host, job, pods)
        if verdict.phase == ENDED and kept.uid in self._losses:
            return self._taken(kept, verdict.since_t)
        if job.metadata.is_deleting and verdict.phase == PENDING and not pods:
            return Verdict(ENDED, now, TAKEN, f"worker {kept.host}: its Job was deleted")
        if verdict.phase == PENDING and not job.metadata.is_deleting:
            self._renew_token(kept)
            return self._patience(kept, job, pods, verdict, now)
        if verdict.phase == ENDED or not verdict.is_lost:
            return verdict
        return msgspec.structs.replace(verdict, about=verdict.about or self._reason(kept))

    def _renew_token(self, kept: Kept) -> None:
        """A worker that waits gets the token of now: tokens are short-lived, and it may wait long for a node."""
        if not kept.token:  # an earlier server made the Job, and nobody knows whether it came to the Secret
            self._make_secret(kept)
            return
        try:
            token = self._place.ticket_for(kept.host)
        except OSError:
            return
        if kept.token == _digest(token):
            return
        answer = self._api.call("PATCH", core("secrets", kept.id), manifest.renewed(token))
        if not isinstance(answer, ApiError):
            kept.token = _digest(token)
            self._write(kept)

    def _not_shown(self, kept: Kept, now: float) -> Verdict:
        """The mirror does not show it: it is too new, or it is gone."""
        if not kept.listed:
            answer = self._api.call("GET", jobs(kept.id))
            if not isinstance(answer, ApiError) or answer.code != NOT_FOUND:
                return Verdict(PENDING, kept.started_t)
        return self._taken(kept, now)

    def _taken(self, kept: Kept, since_t: float) -> Verdict:
        return Verdict(ENDED, since_t, TAKEN, f"worker {kept.host} was taken away: {self._reason(kept)}")

    def _patience(self, kept: Kept, job: Job, pods: Pods, verdict: Verdict, now: float) -> Verdict:
        """A worker that waits: for a pod that Kubernetes does not make, or too long for a node."""
        since_t = job.metadata.created_t
        about = verdict.about
        if not pods and now > max(since_t, self._asked_at_t.get(kept.uid, 0.0)) + PODLESS_S:
            self._asked_at_t[kept.uid] = now
            about = self._events(kept.uid, "FailedCreate") or about
            if about:
                self._api.call("DELETE", jobs(kept.id), deletion(kept.uid))
                return Verdict(ENDED, now, FAILED, f"worker {kept.host} was refused: {about}")
        if now > since_t + self._pending_s:
            self._api.call("DELETE", jobs(kept.id), deletion(kept.uid))
            waited = f"worker {kept.host} has waited {self._pending_s:g} s for a node"
            return Verdict(ENDED, now, FAILED, f"{waited}: {about}" if about else waited)
        return msgspec.structs.replace(verdict, about=about)

    def _end(self, kept: Kept, verdict: Verdict, now: float) -> None:
        kept.ended_t = now
        kept.cause = RELEASED if kept.told_t else verdict.cause
        kept.about = "" if kept.told_t else verdict.about
        self._write(kept)

    # --- losses ---

    def _see_losses(self, pods: Pods) -> None:
        """Called for each change of a pod: a Job whose pod is taken away must not make another one."""
        told = {kept.uid for kept in [*self._kept.values()] if kept.told_t}
        for pod in pods:
            metadata, job = pod.metadata, pod.job
            if not metadata.is_deleting or job.uid in self._losses or job.uid in told:
                continue
            if job.name == self._worker(metadata.annotation(manifest.HOST)).name:
                self._losses[job.uid] = Loss(metadata.uid, disruption(pod))
                self._api.call("DELETE", jobs(job.name), deletion(job.uid))
        self._notify()

    def _reason(self, kept: Kept) -> str:
        """Why Kubernetes took the worker away, in its words; its events come a little later than the deletion."""
        loss = self._losses.get(kept.uid)
        if loss is None:
            return "its Job was deleted"
        loss.why = loss.why or self._events(loss.pod_uid, *_TAKEN_BY)
        return loss.why or DELETED

    def _events(self, uid: str, *reasons: str) -> str:
        """What Kubernetes has said about an object for one of these reasons; empty if nothing, or if it is secret."""
        answer = self._api.call("GET", core("events"), fieldSelector=f"involvedObject.uid={uid}")
        page = answer if isinstance(answer, ApiError) else decoded(answer, Listed)
        if isinstance(page, PoolError):
            return ""
        events = [one for one in (decoded(raw, Event) for raw in page.items) if isinstance(one, Event)]
        said = [f"{one.reason}: {one_line(one.message)}" for one in events if one.reason in reasons]
        return said[-1] if said else ""

    # --- ending ---

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        kept = next((kept for kept in self._kept.values() if kept.id == id), None)
        if kept is None or kept.ended_t:
            return None
        if not kept.told_t:
            kept.told_t = self._clock()
            self._write(kept)
        answer = self._api.call("DELETE", jobs(id), deletion(kept.uid))
        if isinstance(answer, ApiError) and answer.code not in (NOT_FOUND, CONFLICT):
            return answer
        if not gently and self._clock() > kept.told_t + FIRM_S:
            self._kill(kept)
        return None

    def _kill(self, kept: Kept) -> None:
        pods = self._pods.objects()
        for pod in [] if isinstance(pods, PoolError) else pods:
            if pod.job.uid == kept.uid:
                self._api.call("DELETE", core("pods", pod.metadata.name), deletion(pod.metadata.uid, 1))

    def doctor(self) -> Checks:
        return doctor.examine(self._api, self._pool, self._place, self._server)

    def close(self) -> None:
        self._jobs.close()
        self._pods.close()
        self._api.close()

    # --- the folder ---

    def _worker(self, host: str) -> Worker:
        return Worker(self._place.owner, self._pool.name, host)

    def _file(self, kept: Kept) -> Path:
        return self._place.directory / f"{kept.host}.json"

    def _write(self, kept: Kept) -> None:
        with contextlib.suppress(OSError):  # on a full disk the worker is found by its labels
            write_private(self._file(kept).with_suffix(".new"), msgspec.json.encode(kept).decode())
            self._file(kept).with_suffix(".new").replace(self._file(kept))

    def _forget(self, kept: Kept) -> None:
        with contextlib.suppress(OSError):
            self._file(kept).unlink()
        self._kept.pop(kept.host, None)
        self._losses.pop(kept.uid, None)
        self._asked_at_t.pop(kept.uid, None)


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()[:16]


def opened(pool: PoolConfig, place: Place) -> KubernetesPool | Problem:
    try:
        return KubernetesPool(pool, place)
    except BadInput as error:
        return Problem(error)
