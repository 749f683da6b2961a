"""The cloud as a process of its own: `python -m windfall_nova.cloud.serve --port N --hosts 4`. Touches one port.

Serves what OpenStack clients need, on one address: /identity (one user for each name that asks, in a project of the
same name), /compute (the real API), and /test, by which tests play the operator and the hypervisor. It prints `ready`
when it can be used, and ends when its input does.
"""

from __future__ import annotations

import argparse
import json
import os
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from windfall_nova.cloud.cloud import Cloud, Hypervisor

ADMIN = "admin"
Json = dict[str, Any]


class Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


class Quiet(WSGIRequestHandler):
    """Speaks HTTP/1.0 without a log: a line a call says nothing here."""

    def log_message(self, *_: object) -> None:
        pass


def project_of(user: str) -> str:
    """A project id as Nova likes it: 32 hexadecimal digits, the same for the same user."""
    return user.encode().hex()[:32].ljust(32, "0")


class Front:
    """One WSGI application for all of it."""

    def __init__(self, cloud: Cloud, url: str) -> None:
        self.cloud, self.url = cloud, url
        self._nova = cloud.nova.api_fixture.app()
        self._lock = threading.Lock()

    def __call__(self, environ: Json, start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/compute"):
            return self._compute(environ, start)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if path.startswith("/identity"):
            return self._identity(environ, body, start)
        return self._test(path.removeprefix("/test/"), body, start)

    def _compute(self, environ: Json, start: Callable[..., Any]) -> Iterable[bytes]:
        user = environ.get("HTTP_X_AUTH_TOKEN", "nobody")
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = "/compute", environ["PATH_INFO"].removeprefix("/compute")
        environ["HTTP_X_AUTH_USER"] = user
        environ["HTTP_X_AUTH_PROJECT_ID"] = project_of(user)
        environ["HTTP_X_ROLES"] = "reader,member,admin" if user == ADMIN else "reader,member"
        found: Iterable[bytes] = self._nova(environ, start)
        return found

    def _identity(self, environ: Json, body: bytes, start: Callable[..., Any]) -> Iterable[bytes]:
        if not environ["PATH_INFO"].endswith("/auth/tokens"):
            version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{self.url}/identity/v3"}]}
            many = environ["PATH_INFO"].rstrip("/") == "/identity"
            return _answer(start, {"versions": {"values": [version]}} if many else {"version": version}, "200 OK")
        user = json.loads(body)["auth"]["identity"]["password"]["user"]["name"]
        endpoint = {"interface": "public", "region": "here", "region_id": "here", "id": "1"}
        services = {"compute": f"{self.url}/compute/v2.1", "identity": f"{self.url}/identity"}
        catalogue = [
            {"type": name, "name": name, "id": name, "endpoints": [{**endpoint, "url": url}]}
            for name, url in services.items()
        ]
        token = {
            "methods": ["password"], "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2020-01-01T00:00:00.000000Z", "roles": [{"id": "m", "name": "member"}],
            "user": {"id": user, "name": user, "domain": {"id": "default", "name": "Default"}},
            "project": {"id": project_of(user), "name": user, "domain": {"id": "default", "name": "Default"}},
            "catalog": catalogue,
        }  # fmt: skip
        return _answer(start, {"token": token}, "201 Created", [("X-Subject-Token", user)])

    def _test(self, what: str, body: bytes, start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            with self._lock:
                found = getattr(self, f"do_{what}")(**json.loads(body or b"{}"))
        except Exception:
            return _answer(start, {"error": traceback.format_exc()}, "500 Error")
        return _answer(start, {"found": found}, "200 OK")

    # --- what tests may do ---

    def do_flavor(self, name: str, vcpu: int, ram_mb: int, preemptible: bool = False) -> str:
        specs = {"windfall:preemptible": "true"} if preemptible else {}
        made: str = self.cloud.nova._create_flavor(
            name=name, memory_mb=ram_mb, vcpu=vcpu, disk=1, ephemeral=0, swap=0, extra_spec=specs
        )
        return made

    def do_set(self, group: str, option: str, value: Any) -> None:
        self.cloud.set(group, **{option: value})

    def do_off(self, uuid: str) -> None:
        """A guest has shut itself down: Nova's computes see that at their next look, and so here at once."""
        from nova.compute import power_state, vm_states

        for service in self.cloud.computes.values():
            driver = service.manager.driver
            if uuid in driver.instances:
                driver.instances[uuid].state = power_state.SHUTDOWN
        with self.cloud._changing(uuid) as instance:
            instance.vm_state, instance.power_state, instance.task_state = vm_states.STOPPED, power_state.SHUTDOWN, None

    def do_console(self, uuid: str, text: str) -> None:
        Hypervisor.consoles[uuid] = text

    def do_clear(self) -> None:
        self.cloud.clear()


def _answer(start: Callable[..., Any], document: Json, status: str, headers: Any = ()) -> list[bytes]:
    data = json.dumps(document).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers])
    return [data]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--vcpus", type=int, default=8)
    parser.add_argument("--grace", type=float, default=0.0)
    options = parser.parse_args()
    Hypervisor.vcpus, Hypervisor.memory_mb = options.vcpus, 2000 * options.vcpus
    cloud = Cloud(settings={("windfall", "grace"): options.grace, ("api", "response_validation"): "ignore"})
    cloud.hosts(*(f"host-{number}" for number in range(options.hosts)))
    url = f"http://127.0.0.1:{options.port}"
    server = make_server("127.0.0.1", options.port, Front(cloud, url), Server, Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)  # threads of Nova would keep it for a while


if __name__ == "__main__":
    main()
