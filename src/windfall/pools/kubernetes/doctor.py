"""What a pool of kind `kubernetes` needs, looked at one by one. Touches the API server; starts and leaves nothing."""

from __future__ import annotations

from msgspec import Struct, field

from windfall.pools.contract import CREDENTIALS, QUOTA, Check, Order, PoolError
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.kubernetes import manifest
from windfall.pools.kubernetes.answers import ApiError, decoded
from windfall.pools.kubernetes.api import Api, core, jobs
from windfall.pools.kubernetes.manifest import Worker
from windfall.pools.starting.shipped import is_loopback

PAGE = "docs/howto/kubernetes.md"
RIGHTS = (
    ("batch", "jobs", ("create", "get", "list", "watch", "delete")),
    ("", "secrets", ("create", "get", "patch")),
    ("", "pods", ("create", "list", "watch", "delete")),
    ("", "events", ("list",)),
)
"""What the pool does: API group, resource, verbs."""


class Version(Struct, rename="camel"):
    git_version: str = ""


class Allowed(Struct):
    allowed: bool = False
    reason: str = ""


class Review(Struct):
    """Answer to a SelfSubjectAccessReview."""

    status: Allowed = field(default_factory=Allowed)


def examine(api: Api, pool: PoolConfig, place: Place, server: str) -> list[Check]:
    """Stops at the first thing without which nothing else can be told."""
    version = _version(api)
    if version.error:
        return [version]
    rights = [_right(api, *right) for right in RIGHTS]
    checks = [version, *rights, _token(place), _reach(pool, place, server)]
    return checks if rights[0].error else [*checks, *_dry_runs(api, pool, place, server)]


def _version(api: Api) -> Check:
    answer = api.call("GET", "/version")
    what = f"the API server {api.address} answers"
    if isinstance(answer, ApiError):
        hint = "`kubectl version` must work as the user who runs the server; see kubeconfig and context"
        return Check(what, answer.error, hint)
    found = decoded(answer, Version)
    if isinstance(found, PoolError):
        return Check(what, found.error, "is that the address of an API server?")
    return Check(f"{what}: Kubernetes {found.git_version}")


def _right(api: Api, group: str, resource: str, verbs: tuple[str, ...]) -> Check:
    what = f"namespace {api.namespace}: may {', '.join(verbs)} {resource}"
    missing = []
    for verb in verbs:
        about = {"namespace": api.namespace, "verb": verb, "group": group, "resource": resource}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = api.call(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {**body, "spec": {"resourceAttributes": about}},
        )
        if isinstance(answer, ApiError):
            hint = "the credentials are refused: log in again" if answer.kind == CREDENTIALS else ""
            return Check(what, answer.error, hint)
        review = decoded(answer, Review)
        if isinstance(review, PoolError) or not review.status.allowed:
            missing.append(verb)
    if not missing:
        return Check(what)
    return Check(what, f"not allowed: {', '.join(missing)}", f"apply the Role and RoleBinding of {PAGE}")


def _token(place: Place) -> Check:
    what = "the token for workers can be read"
    try:
        place.token_file.read_text()
    except OSError as error:
        return Check(what, f"{place.token_file}: {error.strerror}", "restart the server: it makes one")
    return Check(what)


def _reach(pool: PoolConfig, place: Place, server: str) -> Check:
    """As far as it can be told from here; the trial worker tells the rest."""
    what = f"pods may reach the server at {server}"
    if not is_loopback(server) or pool.settings.pod.get("hostNetwork"):
        return Check(what)
    hint = 'say how pods reach it: server = "http://head.example.org:7272"'
    if not place.outside_url and not pool.settings.server:
        hint = "the server listens on this machine only: start it with --listen 0.0.0.0:7272"
    return Check(what, "in a pod that address is the pod itself", hint)


def _dry_runs(api: Api, pool: PoolConfig, place: Place, server: str) -> list[Check]:
    worker = Worker(place.owner, pool.name, f"{pool.name}-doctor")
    made = manifest.job(pool, worker, Order(worker.host, pool.slots), server, bool(place.cafile))
    secret = manifest.secret(worker, "00000000-0000-0000-0000-000000000000", "none")
    tries = (
        ("its Job would be accepted", jobs(), made),
        ("its Secret would be accepted", core("secrets"), secret),
        ("its pod would be accepted: quotas, admission", core("pods"), manifest.trial_pod(made)),
    )
    return [_dry_run(api, *one) for one in tries]


def _dry_run(api: Api, what: str, path: str, body: manifest.Json) -> Check:
    answer = api.call("POST", path, body, dryRun="All")
    if not isinstance(answer, ApiError) or cannot_dry_run(answer):
        return Check(what)
    if answer.kind == QUOTA:
        return Check(what, answer.error, "wait until the quota has room, ask for more, or request less: cpu, memory")
    if answer.code == 404:
        return Check(what, answer.error, "name a namespace that is there: namespace = ...")
    return Check(what, answer.error, f"correct the settings; {PAGE} has them all")


def cannot_dry_run(error: ApiError) -> bool:
    """Whether it is only that an admission webhook knows no dry runs."""
    return "does not support dry run" in error.error
