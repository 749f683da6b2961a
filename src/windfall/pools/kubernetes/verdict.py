"""What a Job and its pods say about one worker: its phase, the cause of its end, its last words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from windfall.pools.contract import ENDED, FAILED, PENDING, RUNNING, TAKEN
from windfall.pools.kubernetes.answers import Condition, Job, Pod, Terminated, unix_t
from windfall.pools.starting.shipped import one_line

_TAKEN = (
    "Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity", "DeadlineExceeded",
    "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage",
)  # fmt: skip
"""Reasons for which Kubernetes ends a pod that did nothing wrong."""
_HOPELESS = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError", "RunContainerError")
"""Reasons for which a container waits and will not start by itself."""
_SIGNALLED = 128
DELETED = "its pod was deleted"


class Verdict(Struct, frozen=True):
    """`cause` and `about` as in `contract.Seen`. Of a pending worker, `about` says what it waits for."""

    phase: str
    since_t: float = 0.0
    cause: str = ""
    about: str = ""
    taken_at_t: float | None = None
    is_lost: bool = False
    """Its pod is being deleted although nobody here asked for it: the Job must not make another one."""


def judge(host: str, job: Job, pods: Sequence[Pod]) -> Verdict:
    """One order is one pod. A pod that Kubernetes deletes ends the worker, even if the Job makes another."""
    leaving = [pod for pod in pods if pod.metadata.is_deleting]
    pod = leaving[0] if leaving else pods[0] if pods else None
    if leaving and pod is not None and pod.status.phase in ("Succeeded", "Failed"):
        # It heeded SIGTERM, and that is no good end: there was more to do.
        return Verdict(ENDED, _ended_t(pod), TAKEN, f"worker {host} was taken away: {disruption(pod) or DELETED}")
    if complete := job.status.condition("Complete"):
        return Verdict(ENDED, unix_t(complete.last_transition_time))
    if failed := job.status.condition("Failed"):
        return _failed(host, failed, pod)
    if pod is None:
        return Verdict(PENDING, job.metadata.created_t, about=_suspended(job))
    if pod.status.phase in ("Succeeded", "Failed"):
        return _over(host, pod)
    if leaving:
        at_t = unix_t(pod.metadata.deletion_timestamp)
        return Verdict(RUNNING, unix_t(pod.status.start_time), about=disruption(pod), taken_at_t=at_t, is_lost=True)
    if pod.status.phase == "Running":
        return Verdict(RUNNING, unix_t(pod.status.start_time))
    return _pending(host, job, pod)


def _suspended(job: Job) -> str:
    suspended = job.status.condition("Suspended")
    return "its Job is suspended" if suspended else ""


def _pending(host: str, job: Job, pod: Pod) -> Verdict:
    waiting = pod.status.container.waiting
    if waiting is not None and waiting.reason in _HOPELESS:
        about = f"worker {host} cannot start: {waiting.reason}: {one_line(waiting.message)}"
        return Verdict(ENDED, 0.0, FAILED, about)
    unscheduled = next(
        (one for one in pod.status.conditions or [] if one.type == "PodScheduled" and not one.holds), None
    )
    about = _words(unscheduled) if unscheduled else waiting.reason if waiting else ""
    return Verdict(PENDING, job.metadata.created_t, about=about)


def _words(condition: Condition) -> str:
    return one_line(f"{condition.reason}: {condition.message}" if condition.message else condition.reason)


def _failed(host: str, condition: Condition, pod: Pod | None) -> Verdict:
    since_t = unix_t(condition.last_transition_time)
    if condition.reason == "DeadlineExceeded":
        return Verdict(ENDED, since_t, TAKEN, f"worker {host} was ended: {_words(condition)}")
    if pod is not None and pod.status.phase == "Failed":
        return _over(host, pod, since_t)
    return Verdict(ENDED, since_t, FAILED, f"worker {host}: {_words(condition)}")


def _over(host: str, pod: Pod, since_t: float = 0.0) -> Verdict:
    ended = pod.status.container.terminated
    since_t = _ended_t(pod) or since_t
    if pod.status.phase == "Succeeded":
        return Verdict(ENDED, since_t)
    if why := disruption(pod):
        return Verdict(ENDED, since_t, TAKEN, f"worker {host} was taken away: {why}")
    return Verdict(ENDED, since_t, FAILED, f"worker {host} ended with {_how(ended)}")


def _ended_t(pod: Pod) -> float:
    ended = pod.status.container.terminated
    return unix_t(ended.finished_at if ended else None)


def disruption(pod: Pod) -> str:
    """Why Kubernetes took the pod away; empty if it gives no reason."""
    if target := pod.status.condition("DisruptionTarget"):
        return _words(target)
    if pod.status.reason in _TAKEN:
        return one_line(f"{pod.status.reason}: {pod.status.message}")
    return ""


def _how(ended: Terminated | None) -> str:
    if ended is None:
        return "its pod, which says nothing about it"
    number = ended.exit_code - _SIGNALLED if ended.exit_code > _SIGNALLED else ended.signal
    how = f"signal {number}" if number else f"exit code {ended.exit_code}"
    reason = f" ({ended.reason})" if ended.reason not in ("", "Error") else ""
    said = one_line(ended.message)
    return f"{how}{reason}: {said}" if said else f"{how}{reason}"
