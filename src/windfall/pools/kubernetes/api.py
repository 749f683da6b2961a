"""Calls of the API server, through the official client's configuration and transport. Touches the network.

The client is imported when it is needed: the kind is known without it. Only its configuration (credentials and their
renewal) and its transport are used, which are the same in all its versions; `answers.py` reads what matters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from windfall import __version__
from windfall.errors import BadInput
from windfall.pools.contract import CREDENTIALS, INVALID, TRANSIENT
from windfall.pools.kinds import PoolConfig
from windfall.pools.kubernetes.answers import ApiError, failure
from windfall.pools.kubernetes.settings import kubeconfig_of, seconds

Json = dict[str, Any]
_IN_A_POD = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_CREDENTIALS = ("certificate verify failed", "certificate_unknown", "tlsv1 alert", "unauthorized")
WATCH_S = 60
"""A watch is opened again after this time: a connection that has died unnoticed is found out."""


class Api:
    """One cluster and one namespace as one user sees them. Safe for several threads."""

    def __init__(self, pool: PoolConfig) -> None:
        """Reads the configuration; BadInput if there is none. No call is made."""
        try:
            from kubernetes import client, config
        except ImportError as error:
            hint = "install it: pip install 'windfall[kubernetes]'"
            raise BadInput(f"the Kubernetes client cannot be imported: {error}", hint=hint) from None
        configuration: Any = client.Configuration()
        namespace = _load(config, configuration, pool)
        self.namespace = pool.settings.namespace or namespace
        configuration.connection_pool_maxsize = 8
        self._configuration = configuration
        self._transport: Any = client.rest.RESTClientObject(configuration).pool_manager
        self._limit_s = seconds(pool.settings, "time_limit")

    @property
    def address(self) -> str:
        return str(self._configuration.host)

    def call(self, method: str, path: str, body: Json | None = None, **query: str) -> bytes | ApiError:
        """The body of the answer, or the error in the API's own words."""
        answer = self._request(method, path, body, query, self._limit_s)
        if isinstance(answer, ApiError):
            return answer
        try:
            content = bytes(answer.read())
        except Exception as error:
            return _unreachable(error)
        if 200 <= answer.status < 300:
            return content
        return failure(answer.status, content, answer.headers.get("Retry-After", ""))

    def watch(self, path: str, **query: str) -> Stream | ApiError:
        query |= {"watch": "1", "timeoutSeconds": str(WATCH_S)}
        answer = self._request("GET", path, None, query, WATCH_S + 15.0)
        if isinstance(answer, ApiError):
            return answer
        if answer.status == 200:
            return Stream(answer)
        try:
            return failure(answer.status, bytes(answer.read()))
        except Exception as error:
            return _unreachable(error)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._transport.clear()

    def _request(self, method: str, path: str, body: Json | None, query: Json, limit_s: float) -> Any:
        """The answer, whatever its status, its body unread; or why there is none."""
        url = f"{self.address}{path.replace('{ns}', self.namespace)}"
        url += f"?{urlencode(query)}" if query else ""
        headers = {"Accept": "application/json", "User-Agent": f"windfall/{__version__}"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else msgspec.json.encode(body)
        try:
            if bearer := self._configuration.auth_settings().get("BearerToken"):
                headers["Authorization"] = bearer["value"]
            # Whether to try again is decided by the keepers.
            return self._transport.request(
                method, url, body=content, headers=headers, timeout=limit_s, retries=False, preload_content=False
            )
        except Exception as error:
            return _unreachable(error)


class Stream:
    """The lines of a watch as they come, until it ends; an error is the last of them."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes | ApiError]:
        rest = b""
        try:
            for part in self._response.stream(1 << 16, decode_content=False):
                *whole, rest = (rest + part).split(b"\n")
                yield from (line for line in whole if line.strip())
        except Exception as error:
            yield _unreachable(error)
        finally:
            with contextlib.suppress(Exception):
                self._response.close()

    def stop(self) -> None:
        """End it, from another thread."""
        with contextlib.suppress(Exception):
            self._response.shutdown()


def _load(config: Any, configuration: Any, pool: PoolConfig) -> str:
    """Fill in the configuration; the namespace that it names."""
    file, context = kubeconfig_of(pool) or None, pool.settings.context or None
    with contextlib.suppress(config.ConfigException):
        if file is None and context is None:
            config.load_incluster_config(configuration)
            return _namespace_of_this_pod()
    try:
        config.load_kube_config(file, context, configuration, persist_config=False)
        contexts, active = config.list_kube_config_contexts(file)
    except Exception as error:  # exec plug-ins, YAML, missing files: each raises its own
        hint = "see that `kubectl get jobs` works, or set kubeconfig and context"
        raise BadInput(f"the cluster's configuration cannot be used: {error}", hint=hint) from None
    named = next((one for one in contexts if one["name"] == context), None) if context else active
    return str((named or {}).get("context", {}).get("namespace") or "default")


def _namespace_of_this_pod() -> str:
    try:
        with open(_IN_A_POD) as file:
            return file.read().strip() or "default"
    except OSError:
        return "default"


def _unreachable(error: Exception) -> ApiError:
    text = " ".join(str(error).split()) or type(error).__name__
    lowered = text.lower()
    kind = CREDENTIALS if any(words in lowered for words in _CREDENTIALS) else TRANSIENT
    if type(error).__name__ in ("LocationParseError", "LocationValueError"):
        kind = INVALID
    return ApiError(f"the API server cannot be reached: {text[:400]}", kind)


def jobs(name: str = "") -> str:
    return "/apis/batch/v1/namespaces/{ns}/jobs" + (f"/{name}" if name else "")


def core(kind: str, name: str = "") -> str:
    """Path of `pods`, `secrets` or `events` of the namespace."""
    return f"/api/v1/namespaces/{{ns}}/{kind}" + (f"/{name}" if name else "")


def deletion(uid: str, grace_s: int | None = None) -> Json:
    """Delete this very object, and only when all that belongs to it is gone."""
    body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    body["preconditions"] = {"uid": uid}
    return body if grace_s is None else {**body, "gracePeriodSeconds": grace_s}
