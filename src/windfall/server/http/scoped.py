"""What a request may see: all jobs, or those of one user; and the blobs that a worker may read. Decides nothing else.

A token of one user (`windfall token create --user`) reaches the routes below alone. A job of another user is not there
for it: neither by number, nor by name, nor as `last`.
"""

from __future__ import annotations

from starlette.requests import Request

from windfall.bags.rendering import Renderer
from windfall.core.events import Key
from windfall.core.jobs.attempts import last_holder
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import Bag
from windfall.drivers.following import Following
from windfall.errors import WindfallError
from windfall.server.auth import Bearer, Forbidden
from windfall.server.host_secrets import hashed, shows_none
from windfall.server.pool_tokens import PoolToken, TicketUsed
from windfall.server.queries.by_reference import bag_of, decimal
from windfall.server.service import Service
from windfall.store.contract import StoreError
from windfall.wire import ATTEMPT, HOST_SECRET, WITH_SECRET

JOB = "/v1/jobs/{job}"
WITHOUT_JOB = frozenset(
    {
        "/v1/jobs", "/v1/events", "/v1/hosts", "/v1/pools", "/v1/stream", "/v1/blobs/{sha}", "/v1/console/links",
        "/v1/console/session", "/v1/fleets/{fleet}/admission",
    }
)  # fmt: skip
"""Routes that show nothing of other users' jobs, by themselves or because they ask `sees`."""
WORKERS = frozenset({"worker", "pool"})


def admit(service: Service, request: Request, path: str, bearer: Bearer) -> None:
    """Remember who asks; of a token of one user, refuse what is not that user's. `path`: that of the route."""
    request.state.bearer = bearer
    if bearer.role in WORKERS and service.intake.limits.protocol >= WITH_SECRET and HOST_SECRET not in request.headers:
        raise Forbidden("this server asks every host for its secret", hint=f"show it: {HOST_SECRET}")
    if bearer.of is not None and bearer.of.once:
        _check_ticket(service, request, bearer.of)
    if not bearer.user:
        return
    if path == JOB or path.startswith(JOB + "/"):
        request.path_params["job"] = str(bag_of(service.state, request.path_params["job"], bearer.user).number)
    elif path not in WITHOUT_JOB or (path == "/v1/events" and not request.query_params.get("job")):
        raise Forbidden(
            f"a token of user '{bearer.user}' sees the jobs of that user alone",
            hint="ask the operator for a token without --user",
        )


def _check_ticket(service: Service, request: Request, ticket: PoolToken) -> None:
    """Of a ticket, refuse whatever comes without the secret of its host: tasks can read tickets."""
    secret, host = request.headers.get(HOST_SECRET, ""), service.state.host(ticket.host)
    if secret and host is not None and host.access.secret == hashed(secret):
        return
    if isinstance(service.driver, Following):
        raise service.driver.refusal()  # it may not know the host yet
    raise TicketUsed(f"this is not host '{ticket.host}'", hint="a ticket is good with the secret of its host alone")


def user_of(request: Request) -> str:
    """The only user whose jobs this request sees; empty if it sees all."""
    bearer: Bearer | None = getattr(request.state, "bearer", None)
    return "" if bearer is None else bearer.user


def sees(request: Request, bag: Bag) -> bool:
    user = user_of(request)
    return not user or bag.rules.owner == user


def may_read(service: Service, request: Request, sha256: str) -> bool:
    """Whether the sender of a request may read a blob. A worker may if its host holds a task that takes the blob."""
    bearer: Bearer = request.state.bearer
    if bearer.role not in WORKERS:
        return True
    secret = request.headers.get(HOST_SECRET, "")
    shown, hosts = hashed(secret), (host for host in service.state.hosts.values() if host.held)
    # Workers that show no secret cannot be told from each other here: they read the files of all of them.
    asking = (host for host in hosts if (host.access.secret == shown if secret else shows_none(host)))
    return any(takes(service, host, sha256) for host in asking)


def is_of_host(service: Service, request: Request) -> bool:
    """Whether the secret that a worker shows, if it shows one, is that of a host that has come."""
    bearer: Bearer = request.state.bearer
    secret = request.headers.get(HOST_SECRET, "")
    if bearer.role not in WORKERS or not secret:
        return True
    shown = hashed(secret)
    return any(host.access.secret == shown for host in service.state.hosts.values())


def attempt_of(service: Service, request: Request) -> Key | None:
    """The attempt that a file is sent for, if its sender has it; None of other senders, and of what names none."""
    numbers = [decimal(part) for part in request.headers.get(ATTEMPT, "").split(".")]
    secret = request.headers.get(HOST_SECRET, "")
    if len(numbers) != 3 or None in numbers or not secret:
        return None
    job, task, attempt = (number or 0 for number in numbers)
    bag = service.state.bags.get(job)
    if bag is None:
        return None
    host = service.state.hosts.get(last_holder(bag, task, attempt) or 0)
    return (job, task, attempt) if host is not None and host.access.secret == hashed(secret) else None


def takes(service: Service, host: Host, sha256: str) -> bool:
    """Whether a task that the host holds has the blob as an input or as its checkpoint."""
    seen: set[int] = set()
    for job, task, attempt in host.held:
        bag, renderer = service.state.bags[job], service.renderer(job)
        if bag.progress.checkpoints.get(task) == sha256:
            return True
        if job not in seen:
            seen.add(job)
            if any(file.sha256 == sha256 for file in renderer.spec.inputs):
                return True
        if renderer.spec.source.kind == "tasks" and sha256 in _inputs(renderer, task, attempt):
            return True
    return False


def _inputs(renderer: Renderer, task: int, attempt: int) -> set[str]:
    """The blobs that a task of a workflow takes; none of one that cannot be rendered."""
    try:
        overrides = renderer.task(task, attempt).overrides or {}
    except (WindfallError, LookupError, ValueError, TypeError) as error:
        if isinstance(error, StoreError):
            raise
        return set()
    return {file[1] for file in overrides.get("inputs") or ()}
