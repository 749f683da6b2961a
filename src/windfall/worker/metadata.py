"""Notices of the cloud, read from the metadata service of EC2 (version 2, with tokens). Touches the network.

A thread asks every few seconds, because a request may hang; the worker only looks at what it has found.
"""

from __future__ import annotations

import calendar
import contextlib
import http.client
import json
import os
import threading
import time
from typing import Any
from urllib.parse import urlsplit

EC2 = "ec2"
ENDPOINT = "http://169.254.169.254"
ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
RECLAIMED = 75
"""Exit code of a worker that left because its machine is being reclaimed: the machine must not end itself."""
TERMINATE, STOP, HIBERNATE = "terminate", "stop", "hibernate"
DRAIN, LEAVE, IGNORE = "drain", "leave", "ignore"
EVERY_S = 5.0
_TOKEN_S = 21600
_TIMEOUT_S = 2.0
_ACTION = "/latest/meta-data/spot/instance-action"
_REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


class Watch:
    """What the metadata service has announced so far."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._url = os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT
        self._token, self._token_until_s = "", 0.0
        self.action = ""
        """terminate, stop or hibernate, once the provider has announced that it will reclaim the machine."""
        self.at_t = 0.0
        """Unix time of that."""
        self.rebalance = False
        """The provider recommends to move the work elsewhere: the machine may be reclaimed soon."""
        self._thread = threading.Thread(target=self._watch, name="metadata", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while True:
            # Whatever goes wrong is tried again: a worker works without notices, too.
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                self.look()
            time.sleep(self._every_s)

    def look(self) -> None:
        """Ask once. Raises OSError, ValueError or HTTPException if there is no usable answer."""
        found = self._get(_ACTION)
        self.action = str(found.get("action", "")) if found else ""
        self.at_t = _unix(str(found["time"])) if found and "time" in found else 0.0
        self.rebalance = self.rebalance or self._get(_REBALANCE) is not None

    def _get(self, path: str) -> dict[str, Any] | None:
        """The document at a path; None if there is none."""
        status, body = self._request("GET", path, {"X-aws-ec2-metadata-token": self._session()})
        if status == 401:
            self._token_until_s = 0.0
        if status != 200:
            return None
        found = json.loads(body)
        return found if isinstance(found, dict) else None

    def _session(self) -> str:
        now_s = time.monotonic()
        if now_s >= self._token_until_s:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            status, body = self._request("PUT", "/latest/api/token", headers)
            if status != 200:
                raise ValueError(f"the metadata service gives no token: {status}")
            self._token, self._token_until_s = body.decode("ascii"), now_s + _TOKEN_S / 2
        return self._token

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(self._url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=_TIMEOUT_S)
        try:
            connection.request(method, parts.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536)
        finally:
            connection.close()


def _unix(text: str) -> float:
    """Unix time of 2026-11-16T16:00:00Z."""
    return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))
