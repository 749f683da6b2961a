"""Fields of a pool of kind `kubernetes`, and what is wrong with them. Touches nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from windfall.errors import BadInput
from windfall.pools.kinds import PoolConfig
from windfall.units import parse_duration

Quantity = str | int | float
Table = dict[str, Any]
_QUANTITY = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?\Z")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
OURS = ("activeDeadlineSeconds", "containers", "restartPolicy", "volumes")
"""Fields of a pod's specification that the pool writes itself."""


class Toleration(Struct, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """As in a pod's specification, in TOML's way of writing: `toleration_seconds` or `tolerationSeconds`."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class KubernetesSettings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `kubernetes`."""

    image: str = "python:3.12-slim"
    """Any image with Python 3.8 or newer."""
    python: str = "python3"
    namespace: str = ""
    """Default: that of the context, or `default`."""
    kubeconfig: str = ""
    """Default: KUBECONFIG, then ~/.kube/config; in a pod, its service account."""
    context: str = ""
    cpu: Quantity = 0
    """Cores that a pod requests; 0: as many as it has slots."""
    memory: Quantity = ""
    """Memory that a pod requests, and its limit: "4Gi"."""
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    resource_requests: dict[str, Quantity] = {}
    """More resources that a pod requests: {"ephemeral-storage" = "10Gi"}."""
    resource_limits: dict[str, Quantity] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    priority_class: str = ""
    service_account: str = ""
    image_pull_secrets: list[str] = []
    env: dict[str, str] = {}
    labels: dict[str, str] = {}
    """More labels of Job and pod, as a queue may want them."""
    annotations: dict[str, str] = {}
    pod: Table = {}
    """More fields of the pod's specification, as Kubernetes spells them: {hostNetwork = true}."""
    lifetime: str | float = "1d"
    """activeDeadlineSeconds of a pod; the worker ends in good order before."""
    pending: str | float = "15m"
    """A pod that has not started by then is given up."""
    grace: str | float = "30s"
    """Time between SIGTERM and SIGKILL when a pod is deleted."""
    keep: str | float = "0s"
    """Time for which the Job of a worker that has ended stays, for `kubectl logs`."""
    server: str = ""
    """Address of the server as pods see it; default: the one on which it listens."""
    interval: str | float = "5s"
    """Time between two looks at what the watch has told, if it tells nothing."""
    time_limit: str | float = "30s"
    """A call of the API that takes longer has failed."""


def seconds(settings: KubernetesSettings, name: str) -> float:
    return parse_duration(getattr(settings, name), name)


def check(pool: PoolConfig, where: str) -> None:
    """BadInput says which field is wrong."""
    settings: KubernetesSettings = pool.settings
    if not settings.image.strip():
        raise BadInput(f"{where}: it has no image", hint='as in image = "python:3.12-slim": any with Python 3.8')
    if settings.namespace and not _NAMESPACE.match(settings.namespace):
        raise BadInput(f"{where}: '{settings.namespace}' is no name of a namespace", hint="as in `kubectl get ns`")
    _check_quantities(settings, where)
    for name, least in (
        ("lifetime", 10.0), ("pending", 1.0), ("grace", 1.0), ("keep", 0.0), ("interval", 0.1), ("time_limit", 0.1),
    ):  # fmt: skip
        if seconds(settings, name) < least:
            raise BadInput(f"{where}: {name} = {getattr(settings, name)}", hint=f"at least {least:g} seconds")
    if taken := next((name for name in settings.pod if name in OURS), None):
        raise BadInput(f"{where}: pod.{taken} is written by the pool itself", hint=f"leave out {', '.join(OURS)}")
    if taken := next((name for name in (*settings.labels, *settings.annotations) if _is_ours(name)), None):
        raise BadInput(f"{where}: '{taken}' is a label of the pool's own", hint="choose another name")
    if settings.kubeconfig and not _is_file(_kubeconfig(settings, pool.base)):
        raise BadInput(f"{where}: there is no {_kubeconfig(settings, pool.base)}", hint="kubeconfig names a file")


def _check_quantities(settings: KubernetesSettings, where: str) -> None:
    if not 0 <= settings.gpus <= 1024:
        raise BadInput(f"{where}: gpus = {settings.gpus}", hint="it is a number from 0 to 1024")
    named = {"cpu": settings.cpu, "memory": settings.memory or 0}
    named |= {f"resource_requests.{name}": value for name, value in settings.resource_requests.items()}
    named |= {f"resource_limits.{name}": value for name, value in settings.resource_limits.items()}
    for name, value in named.items():
        if not _QUANTITY.match(str(value)):
            raise BadInput(f"{where}: {name} = {value!r} is no quantity", hint='as in 2, 0.5, "500m" or "4Gi"')


def _is_ours(label: str) -> bool:
    return label.startswith("windfall/") or label == "app.kubernetes.io/managed-by"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _kubeconfig(settings: KubernetesSettings, base: Path) -> Path:
    return base.resolve() / Path(settings.kubeconfig).expanduser()


def kubeconfig_of(pool: PoolConfig) -> str:
    """Path of the configuration file; empty for the default."""
    settings: KubernetesSettings = pool.settings
    return str(_kubeconfig(settings, pool.base)) if settings.kubeconfig else ""
