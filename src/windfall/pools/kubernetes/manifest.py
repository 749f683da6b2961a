"""The Job and the Secret of one worker, made from the pool's settings. Pure.

The Job's name is made from the state, the pool and the name of the order: the same order gives the same name, and the
API refuses the second Job. The Secret belongs to the Job, and goes with it.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windfall.pools.contract import Order
from windfall.pools.kinds import PoolConfig
from windfall.pools.kubernetes.settings import KubernetesSettings, seconds
from windfall.pools.starting.shipped import CERTIFICATE, TOKEN, worker_options

Json = dict[str, Any]

MANAGED_BY, OWNER, POOL, HOST = "app.kubernetes.io/managed-by", "windfall/owner", "windfall/pool", "windfall/host"
US = "windfall"
GIVEN, WORK = "/windfall/given", "/windfall/work"
"""Where the Secret is mounted, and the folder of the worker."""
RUN = "run.py"
FORGOTTEN_S = 3600
"""A Job that has ended is removed by Kubernetes after this time, should no server do it."""
_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


class Worker(Struct, frozen=True):
    """Whose worker it is. `owner` is the id of the state."""

    owner: str
    pool: str
    host: str

    @property
    def name(self) -> str:
        """Name of its Job: readable, and unique by a digest. At most 45 characters: those of pods are longer."""
        digest = sha256("\0".join((self.owner, self.pool, self.host)).encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", self.host.lower()).strip("-")[:23].strip("-")
        return f"windfall-{readable}-{digest}" if readable else f"windfall-{digest}"

    @property
    def labels(self) -> dict[str, str]:
        return {MANAGED_BY: US, OWNER: label_value(self.owner), POOL: label_value(self.pool)}

    @property
    def annotations(self) -> dict[str, str]:
        """In full, what labels may hold only as a digest."""
        return {OWNER: self.owner, POOL: self.pool, HOST: self.host}


def label_value(text: str) -> str:
    """The text if it is a valid value of a label, else a digest of it."""
    return text if _VALUE.match(text) else "x" + sha256(text.encode()).hexdigest()[:32]


def selector(owner: str, pool: str) -> str:
    """Selects what one state has started for one pool."""
    return ",".join(f"{name}={value}" for name, value in Worker(owner, pool, "").labels.items())


def job(pool: PoolConfig, worker: Worker, order: Order, server: str, has_certificate: bool) -> Json:
    settings: KubernetesSettings = pool.settings
    lifetime_s, pending_s = seconds(settings, "lifetime"), seconds(settings, "pending")
    labels = {**settings.labels, **worker.labels}
    annotations = {**settings.annotations, **worker.annotations}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": worker.name, "labels": labels, "annotations": annotations},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": int(pending_s + lifetime_s),
            "ttlSecondsAfterFinished": int(max(FORGOTTEN_S, seconds(settings, "keep"))),
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod(pool, worker, order, server, has_certificate),
            },
        },
    }


def trial_pod(made: Json) -> Json:
    """The pod that a Job would make: a dry run of it meets quotas and admission, which the Job itself does not."""
    template = made["spec"]["template"]
    metadata = {**template["metadata"], "generateName": f"{made['metadata']['name']}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _pod(pool: PoolConfig, worker: Worker, order: Order, server: str, has_certificate: bool) -> Json:
    settings: KubernetesSettings = pool.settings
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Another process is number 1 then, and collects what tasks leave behind.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": int(seconds(settings, "grace")),
        "nodeSelector": settings.node_selector,
        "tolerations": [msgspec.to_builtins(one) for one in settings.tolerations],
        "priorityClassName": settings.priority_class,
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    spec = {name: value for name, value in spec.items() if value not in ("", [], {})}
    if settings.service_account:
        del spec["automountServiceAccountToken"]
    return {
        **spec,
        **settings.pod,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(seconds(settings, "lifetime")),
        "containers": [_container(pool, order, server, has_certificate)],
        "volumes": [
            {"name": "given", "secret": {"secretName": worker.name, "defaultMode": 0o444}},
            {"name": "work", "emptyDir": {}},
        ],
    }


def _container(pool: PoolConfig, order: Order, server: str, has_certificate: bool) -> Json:
    settings: KubernetesSettings = pool.settings
    options = ["--dir", WORK]
    options += ["--cafile", f"{GIVEN}/{CERTIFICATE}"] if has_certificate else []
    options += worker_options(order, pool)
    lifetime = str(int(seconds(settings, "lifetime")))
    return {
        "name": "worker",
        "image": settings.image,
        "command": [settings.python, f"{GIVEN}/{RUN}", lifetime, server, f"{GIVEN}/{TOKEN}", *options],
        "env": [{"name": name, "value": value} for name, value in settings.env.items()],
        "resources": resources(settings, order.slots),
        # Images often run as root: without this capability root cannot read the memory of the worker, either.
        "securityContext": {"capabilities": {"drop": ["SYS_PTRACE"]}},
        # The end of its log stands in the pod's status then: nobody needs the right to read logs.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "given", "mountPath": GIVEN, "readOnly": True},
            {"name": "work", "mountPath": WORK},
        ],
    }


def resources(settings: KubernetesSettings, slots: int) -> Json:
    """What a pod requests and its limits. Memory and GPUs are limits too: Kubernetes wants that of GPUs."""
    limits: dict[str, str] = {}
    if settings.memory:
        limits["memory"] = str(settings.memory)
    if settings.gpus:
        limits[settings.gpu_resource] = str(settings.gpus)
    more = {name: str(value) for name, value in settings.resource_requests.items()}
    requests = {"cpu": str(settings.cpu or slots), **limits, **more}
    limits |= {name: str(value) for name, value in settings.resource_limits.items()}
    return {"requests": requests, "limits": limits}


def secret(worker: Worker, job_uid: str, token: str, certificate: str = "") -> Json:
    """What the worker is given, owned by its Job. Kubernetes removes it with the Job."""
    given = {TOKEN: token, RUN: run_script()} | ({CERTIFICATE: certificate} if certificate else {})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": worker.name, "uid": job_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": worker.name,
            "labels": worker.labels,
            "annotations": worker.annotations,
            "ownerReferences": [owner],
        },
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in given.items()},
    }


def renewed(token: str) -> Json:
    """The change to a Secret that puts another token into it."""
    return {"data": {TOKEN: base64.b64encode(token.encode()).decode()}}


@cache
def run_script() -> str:
    return Path(__file__).with_name("pod_main.py").read_text()
