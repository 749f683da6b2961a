"""Plays the hypervisor: runs the user data of instances as processes, serves their metadata, stops and freezes them."""

from __future__ import annotations

import contextlib
import email
import json
import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from windfall.pools.starting.process_tree import Tree

_SHUTDOWN = """\
#!/bin/sh
touch {folder}/shutdown
"""


class Instance:
    """One instance: its processes, and what its metadata say."""

    def __init__(self, id: str, user_data: str, folder: Path) -> None:
        self.id, self.user_data, self.folder = id, user_data, folder
        self.tree: Tree | None = None
        self.boots = 0
        self.action: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None
        self.ended = False

    def script(self) -> str:
        """The shell script of the user data, if cloud-init would run it at this boot."""
        parts = [part for part in email.message_from_string(self.user_data).walk() if not part.is_multipart()]
        texts = {part.get_content_type(): str(part.get_payload()) for part in parts}
        if self.boots and "[scripts-user, always]" not in texts.get("text/cloud-config", ""):
            return ""
        return texts.get("text/x-shellscript", "")


class Hypervisor:
    """Instances by id. `on_shutdown(id)` is called when an instance shuts itself down."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.instances: dict[str, Instance] = {}
        self.on_shutdown: Callable[[str], None] = lambda id: None
        self._tokens: set[str] = set()
        self.unsigned = 0
        """Requests without a token of the metadata service; version 2 refuses them."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True),
            threading.Thread(target=self._watch, daemon=True),
        ]
        self._closed = threading.Event()

    def __enter__(self) -> Hypervisor:
        self._folder.mkdir(parents=True, exist_ok=True)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(10)
        for instance in self.instances.values():
            self._kill(instance)

    # --- what is done to instances ---

    def boot(self, id: str, user_data: str = "") -> None:
        """Run the user data in a session of its own, with a `shutdown` that this hypervisor sees."""
        instance = self.instances.get(id)
        if instance is None:
            instance = self.instances[id] = Instance(id, user_data, self._folder / id)
        folder = instance.folder
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "shutdown").write_text(_SHUTDOWN.format(folder=folder))
        (folder / "bin" / "shutdown").chmod(0o755)
        (folder / "shutdown").unlink(missing_ok=True)
        script = instance.script()
        instance.boots += 1
        instance.action = None
        if not script:
            return
        (folder / "user-data.sh").write_text(script)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "WINDFALL"))},
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}/{id}",
        }
        with open(folder / "console.log", "ab") as console:
            process = subprocess.Popen(
                ["/bin/sh", str(folder / "user-data.sh")], stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip
        instance.tree = Tree(process.pid)
        process.returncode = 0  # the tree waits for it

    def console(self, id: str) -> str:
        with contextlib.suppress(OSError, KeyError):
            return (self.instances[id].folder / "console.log").read_text()
        return ""

    def kill(self, id: str, for_good: bool = True) -> None:
        """The power is off; for good if the instance is terminated."""
        instance = self.instances.get(id)
        if instance is not None:
            instance.ended = instance.ended or for_good
            self._kill(instance)

    def freeze(self, id: str) -> None:
        if (tree := self.instances[id].tree) is not None:
            tree.freeze()

    def thaw(self, id: str) -> None:
        self.instances[id].action = None
        if (tree := self.instances[id].tree) is not None:
            tree.thaw()

    def announce(self, id: str, action: str, at_t: float) -> None:
        """Show a notice of interruption in the metadata of an instance."""
        self.instances[id].action = {"action": action, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_t))}

    def recommend_rebalance(self, id: str) -> None:
        self.instances[id].rebalance = {"noticeTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def alive(self) -> list[str]:
        """Instances of which processes run."""
        return [id for id, each in self.instances.items() if each.tree is not None and each.tree.alive]

    def _kill(self, instance: Instance) -> None:
        if instance.tree is not None:
            instance.tree.kill()
            _ = instance.tree.alive  # collects the exit code
        if instance.ended:
            shutil.rmtree(instance.folder / "bin", ignore_errors=True)

    def _watch(self) -> None:
        """See instances that shut themselves down."""
        while not self._closed.wait(0.05):
            for id, instance in [*self.instances.items()]:
                if not instance.ended and (instance.folder / "shutdown").exists():
                    (instance.folder / "shutdown").unlink(missing_ok=True)
                    self._kill(instance)
                    self.on_shutdown(id)

    # --- the metadata service ---

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        _, id, path = path.split("/", 2)
        instance = self.instances.get(id)
        if instance is None:
            return 404, ""
        if (method, path) == ("PUT", "latest/api/token"):
            if not headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                return 400, ""
            token = secrets.token_urlsafe()
            self._tokens.add(token)
            return 200, token
        if headers.get("X-aws-ec2-metadata-token") not in self._tokens:
            self.unsigned += 1
            return 401, ""
        found = {
            "latest/meta-data/spot/instance-action": instance.action,
            "latest/meta-data/events/recommendations/rebalance": instance.rebalance,
        }.get(path)
        return (404, "") if found is None else (200, json.dumps(found))


def _handler(hypervisor: Hypervisor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, text = hypervisor.answer(self.command, self.path, self.headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(text.encode())

        do_GET = do_PUT = _answer

        def log_message(self, *_: object) -> None:
            pass

    return Handler
