"""Plays the kubelet of one node: runs each bound pod's command as a real process and reports what becomes of it.

The image is ignored. Volumes are folders, and their mount paths are replaced in the command line. An image whose name
begins with `missing/` cannot be pulled.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.support.pools.kubernetes import Cluster, Json, Refused

LOOK_S = 0.2
MARK = "WINDFALL_TEST_POD"


class Running(Struct):
    """A pod whose process was started."""

    name: str
    namespace: str
    process: Any
    started_t: float
    folder: Path
    kill_at: float | None = None
    why: tuple[str, str] = ("", "")
    """Reason and message of the status, if it was the kubelet who ended it."""


class Kubelet:
    """One node. `evict` takes a pod away as a real kubelet does when memory runs short."""

    def __init__(self, cluster: Cluster, node: str = "node-1", **capacity: str) -> None:
        self._cluster, self.node = cluster, node
        self.capacity = {"cpu": "8", "memory": "32Gi", "pods": "100"} | capacity
        self.pods: dict[str, Running] = {}
        self.started: list[str] = []
        """Names of all pods that ever ran."""
        self._folder = Path(tempfile.mkdtemp(prefix="windfall-kubelet-"))
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._register()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._thread.start()

    def _register(self) -> None:
        node = {"metadata": {"name": self.node, "labels": {"kubernetes.io/hostname": self.node}}}
        self._cluster.call("POST", "/api/v1/nodes", node)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        ready |= {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        status = {"capacity": self.capacity, "allocatable": self.capacity, "conditions": [ready]}
        self._cluster.call("PATCH", f"/api/v1/nodes/{self.node}/status", {"status": status})
        # The API server taints a new node as not ready, and no controller here takes that off.
        self._cluster.call("PATCH", f"/api/v1/nodes/{self.node}", {"spec": {"taints": None}})

    def close(self) -> None:
        self._closed.set()
        self._thread.join(30)
        for uid in [*self.pods]:
            _kill_all(uid)
            self.pods[uid].process.wait()
        with contextlib.suppress(OSError, Refused):
            self._cluster.call("DELETE", f"/api/v1/nodes/{self.node}")
        shutil.rmtree(self._folder, ignore_errors=True)

    def evict(self, name: str, message: str = "The node was low on resource: memory. ") -> None:
        with self._lock:
            uid, pod = next((uid, pod) for uid, pod in self.pods.items() if pod.name == name)
            pod.why, pod.kill_at = ("Evicted", message), 0.0
            _kill_all(uid)

    # --- the loop ---

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            # The API server may be down: what runs goes on.
            with contextlib.suppress(OSError, Refused), self._lock:
                self._look()

    def _look(self) -> None:
        there = self._cluster.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.node}")
        for pod in there:
            with contextlib.suppress(Refused):
                self._handle(pod)
        for uid in self.pods.keys() - {pod["metadata"]["uid"] for pod in there}:
            _kill_all(uid)  # deleted by force
            self.pods.pop(uid).process.wait()

    def _handle(self, pod: Json) -> None:
        metadata, status = pod["metadata"], pod["status"]
        running, is_leaving = self.pods.get(metadata["uid"]), "deletionTimestamp" in metadata
        if running is None:
            if is_leaving:
                self._remove(pod)
            elif status["phase"] == "Pending":
                self._start(pod)
            return
        now, limit_s = time.time(), pod["spec"].get("activeDeadlineSeconds")
        if limit_s is not None and now > running.started_t + limit_s and running.kill_at is None:
            running.why = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            self._tell(running, now + 2.0)
        if is_leaving:
            self._tell(running, now + float(metadata.get("deletionGracePeriodSeconds") or 0))
        if running.kill_at is not None and now >= running.kill_at and running.process.poll() is None:
            _kill_all(metadata["uid"])
            running.process.wait()
        if running.process.poll() is not None and status["phase"] == "Running":
            self._report_end(pod, running)
        if running.process.poll() is not None and is_leaving:
            self._remove(pod)

    def _tell(self, running: Running, kill_at: float) -> None:
        if running.kill_at is None:
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)
            running.kill_at = kill_at
        running.kill_at = min(running.kill_at, kill_at)

    def _remove(self, pod: Json) -> None:
        metadata = pod["metadata"]
        _kill_all(metadata["uid"])
        self.pods.pop(metadata["uid"], None)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._cluster.call("DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", body)

    # --- one pod ---

    def _start(self, pod: Json) -> None:
        metadata, container = pod["metadata"], pod["spec"]["containers"][0]
        if container["image"].startswith("missing/"):
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
            self._patch(pod, {"phase": "Pending", "containerStatuses": [_container(container, {"waiting": waiting})]})
            return
        folder = self._folder / metadata["uid"]
        folder.mkdir(exist_ok=True)
        mounts = self._mounts(pod, folder)
        if mounts is None:
            return  # a Secret is missing: tried again, as a kubelet does
        words = [_placed(word, mounts) for word in container["command"]]
        env = {one["name"]: one["value"] for one in container.get("env", [])}
        env |= {"PATH": os.environ["PATH"], "HOME": str(folder), MARK: metadata["uid"]}
        with open(folder / "log", "wb") as log:
            try:
                process = subprocess.Popen(words, stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True)
            except OSError as error:
                process = subprocess.Popen(["sh", "-c", f"echo '{error}' >&2; exit 127"], stdout=log, stderr=log)
        name = metadata["name"]
        self.pods[metadata["uid"]] = Running(name, metadata["namespace"], process, time.time(), folder)
        self.started.append(name)
        state = {"running": {"startedAt": _now()}}
        status = {"phase": "Running", "startTime": _now(), "containerStatuses": [_container(container, state)]}
        self._patch(pod, status)

    def _mounts(self, pod: Json, folder: Path) -> dict[str, Path] | None:
        paths: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes", []):
            made = folder / volume["name"]
            made.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                namespace = pod["metadata"]["namespace"]
                try:
                    name = volume["secret"]["secretName"]
                    secret = self._cluster.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
                except Refused:
                    return None
                for key, value in secret["data"].items():
                    (made / key).write_bytes(base64.b64decode(value))
                    (made / key).chmod(volume["secret"].get("defaultMode", 0o644))
            paths[volume["name"]] = made
        return {one["mountPath"]: paths[one["name"]] for one in pod["spec"]["containers"][0].get("volumeMounts", [])}

    def _report_end(self, pod: Json, running: Running) -> None:
        code = running.process.returncode
        code = 128 - code if code < 0 else code
        reason, message = running.why
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": _now()}
        if code:
            ended["message"] = (running.folder / "log").read_text(errors="replace")[-2048:]
        failed = bool(code or reason)
        status: Json = {"phase": "Failed" if failed else "Succeeded"}
        status["containerStatuses"] = [_container(pod["spec"]["containers"][0], {"terminated": ended})]
        self._patch(pod, status | ({"reason": reason, "message": message} if reason else {}))

    def _patch(self, pod: Json, status: Json) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        self._cluster.call("PATCH", path, {"metadata": {"uid": metadata["uid"]}, "status": status})


def _container(container: Json, state: Json) -> Json:
    is_running = "running" in state
    about = {"name": container["name"], "image": container["image"], "imageID": "none", "restartCount": 0}
    return {**about, "ready": is_running, "started": is_running, "state": state}


def _placed(word: str, mounts: dict[str, Path]) -> str:
    for path, folder in mounts.items():
        word = word.replace(path, str(folder))
    return word


def _kill_all(uid: str) -> None:
    """Every process of a pod, as a kubelet ends a whole control group."""
    for _ in range(3):
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"{MARK}={uid}".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
