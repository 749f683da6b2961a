"""A real control plane of Kubernetes on loopback ports: etcd, API server, controller manager, scheduler.

They are built by tools/kubernetes.sh. There is no node: tests/support/pools/kubelet.py plays one. Everything here
speaks plain HTTP to the API server, so that what tests see does not depend on the code under test.
"""

from __future__ import annotations

import atexit
import functools
import http.client
import importlib.util
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
HOWTO = ROOT / "docs" / "howto" / "kubernetes.md"
RUN = "WINDFALL_TEST_KUBERNETES"
ADMIN, BOT = "admin-secret", "bot-secret"
BOT_USER = "system:serviceaccount:windfall:windfall"
"""The account of the how-to: it may do what the manifest there allows, and nothing else."""
CONTROLLERS = "job,garbagecollector,namespace,podgc,resourcequota,ttl-after-finished"


def folder_of_programs() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return Path(os.environ.get("WINDFALL_KUBERNETES", f"{cache}/windfall/kubernetes")) / "bin"


def skip_unless_here() -> None:
    """Building takes ten minutes: these tests run where somebody has done it, and nowhere else, not even in CI."""
    if os.environ.get(RUN) != "1":
        pytest.skip("tests against a real Kubernetes run in `make test-kubernetes`")
    missing = [name for name in ("etcd", "kube-apiserver") if not (folder_of_programs() / name).exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)} not in {folder_of_programs()}: sh tools/kubernetes.sh builds them")
    if importlib.util.find_spec("kubernetes") is None:
        pytest.skip("the Kubernetes client is missing: pip install 'windfall[kubernetes]'")


class Refused(Exception):
    """An answer of the API server that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Cluster:
    """`call` acts as the administrator. `kubeconfig` is that of the account that the how-to makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._etcd, peer = (_free_port() for _ in range(3))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "tokens.csv").write_text(f"{ADMIN},admin,1,system:masters\n{BOT},{BOT_USER},2\n")
        key = str(folder / "sa.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        etcd = f"http://127.0.0.1:{self._etcd}"
        peers = f"http://127.0.0.1:{peer}"
        self._commands = {
            "etcd": [
                "--data-dir", str(folder / "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                "--initial-cluster", f"default={peers}", "--unsafe-no-fsync",
            ],
            "kube-apiserver": [
                f"--etcd-servers={etcd}", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1", f"--cert-dir={folder}/certs",
                f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/24", f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}", "--service-account-issuer=https://windfall",
                "--disable-admission-plugins=ServiceAccount", "--feature-gates=TTLAfterFinished=true",
            ],
            "kube-controller-manager": [
                f"--kubeconfig={folder}/admin.kubeconfig", "--leader-elect=false", f"--controllers={CONTROLLERS}",
                "--port=0", "--secure-port=0", "--feature-gates=TTLAfterFinished=true",
                "--resource-quota-sync-period=2s",
            ],
            "kube-scheduler": [
                f"--kubeconfig={folder}/admin.kubeconfig", "--leader-elect=false", "--port=0", "--secure-port=0",
            ],
        }  # fmt: skip
        self.kubeconfig = self._write_kubeconfig("bot", BOT)
        self._write_kubeconfig("admin", ADMIN)

    def _write_kubeconfig(self, user: str, token: str, namespace: str = "default") -> Path:
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": f"{self.folder}/certs/apiserver.crt",
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": user, "namespace": namespace}}],
            "current-context": "c",
        }
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    # --- programs ---

    def start(self) -> None:
        for program in self._commands:
            self.run(program)
            if program == "kube-apiserver":
                self.await_api()

    def run(self, program: str) -> None:
        with open(self.folder / f"{program}.log", "a") as log:
            command = [str(folder_of_programs() / program), *self._commands[program]]
            self._processes[program] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, program: str) -> None:
        """SIGKILL; `run` starts it again."""
        process = self._processes.pop(program)
        process.kill()
        process.wait()

    def await_api(self) -> None:
        until(self._answers, 120.0, self._api_log)

    def _api_log(self) -> str:
        return (self.folder / "kube-apiserver.log").read_text()[-2000:]

    def _answers(self) -> bool:
        assert self._processes["kube-apiserver"].poll() is None, self._api_log()
        try:
            self.call("GET", "/api/v1/namespaces/default")
            return True
        except (OSError, Refused):
            return False

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the API, as the administrator ---

    def call(self, method: str, path: str, body: Json | None = None, token: str = ADMIN) -> Json:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._tls()) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")) from None
        except http.client.HTTPException as error:  # an answer that was cut short
            raise OSError(str(error)) from None

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))

    def items(self, path: str) -> list[Json]:
        found: list[Json] = self.call("GET", path)["items"]
        return found

    def names(self, namespace: str, kind: str) -> list[str]:
        """Names of all `jobs`, `pods` or `secrets` of a namespace, whoever made them."""
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        return [item["metadata"]["name"] for item in self.items(f"{group}/namespaces/{namespace}/{kind}")]

    def left(self, namespace: str) -> list[str]:
        return [f"{kind}/{name}" for kind in ("jobs", "pods", "secrets") for name in self.names(namespace, kind)]

    def namespace(self, name: str) -> str:
        """A namespace in which the account of the how-to may do what the how-to says."""
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for document in manifest_of_the_howto():
            if document["kind"] not in ("Role", "RoleBinding"):
                continue
            document["metadata"]["namespace"] = name
            plural = document["kind"].lower() + "s"
            self.call("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/{plural}", document)
        return name


def manifest_of_the_howto() -> list[Json]:
    """The documents of the YAML block that users are told to apply."""
    import yaml  # comes with the Kubernetes client

    blocks = re.findall(r"```yaml\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    return [document for block in blocks if "RoleBinding" in block for document in yaml.safe_load_all(block)]


def until(condition: Callable[[], object], seconds: float = 60.0, words: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not come: {words()}"
        time.sleep(0.1)


def _free_port() -> int:
    """Below the ephemeral ports: one of those may be taken by anybody while a program is restarted."""
    for port in range(15000 + os.getpid() % 10000, 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _taken:
            _taken.add(port)
            return port
    raise AssertionError("no port is free")


_taken: set[int] = set()


@functools.cache
def cluster() -> Cluster:
    """One for all tests of this process; skips where there is none."""
    made = Cluster(Path(tempfile.mkdtemp(prefix="windfall-kubernetes-")))
    atexit.register(made.stop)
    made.start()
    return made
