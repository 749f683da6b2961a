"""The API server as a few dictionaries: what `windfall.pools.kubernetes.api.Api` promises, and failures on demand."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from windfall.pools.kubernetes.answers import ApiError, failure

Json = dict[str, Any]


class FakeStream:
    """A watch: ends when it is told to, or when the API server goes."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.lines: queue.Queue[bytes | ApiError | None] = queue.Queue()

    def __iter__(self) -> Iterator[bytes | ApiError]:
        while (line := self.lines.get()) is not None:
            yield line

    def stop(self) -> None:
        self.lines.put(None)


class FakeApi:
    """`fail` holds answers for calls to come: (method, resource) -> error. It is answered once."""

    namespace = "ns"
    address = "https://fake"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.fail: dict[tuple[str, str], list[ApiError]] = {}
        self.calls: list[tuple[str, str]] = []
        self.streams: list[FakeStream] = []
        self._version = 0
        self._lock = threading.RLock()

    # --- what tests do ---

    def put(self, resource: str, name: str, change: Json) -> None:
        """Change an object, or make it, as a controller would."""
        with self._lock:
            there = self.objects.get((resource, name), {"metadata": {"name": name, "uid": f"uid-{resource}-{name}"}})
            kind = "MODIFIED" if (resource, name) in self.objects else "ADDED"
            metadata = there["metadata"] | change.pop("metadata", {})
            self._store(resource, name, {**there, **change, "metadata": metadata}, kind)

    def names(self, resource: str) -> list[str]:
        return [name for kind, name in self.objects if kind == resource]

    def count(self, method: str, resource: str) -> int:
        return self.calls.count((method, resource))

    def break_watches(self, error: ApiError) -> None:
        with self._lock:
            for stream in self.streams:
                stream.lines.put(error)
            self.streams.clear()

    # --- the promise of Api ---

    def call(self, method: str, path: str, body: Json | None = None, **query: str) -> bytes | ApiError:
        resource, name = _parts(path)
        if query.get("dryRun"):
            method = "TRY"
        with self._lock:
            self.calls.append((method, resource))
            if errors := self.fail.get((method, resource)):
                return errors.pop(0)
            return getattr(self, f"_{method.lower()}")(resource, name, body)

    def watch(self, path: str, **query: str) -> FakeStream | ApiError:
        with self._lock:
            stream = FakeStream(_parts(path)[0])
            self.streams.append(stream)
            return stream

    def close(self) -> None:
        pass

    def _try(self, resource: str, name: str, body: Json) -> bytes:
        return msgspec.json.encode(body)

    def _post(self, resource: str, name: str, body: Json) -> bytes | ApiError:
        name = body["metadata"]["name"]
        if (resource, name) in self.objects:
            return _error(409, f'{resource} "{name}" already exists')
        body = msgspec.json.decode(msgspec.json.encode(body))
        body["metadata"] |= {"uid": f"uid-{resource}-{name}", "creationTimestamp": "1970-01-01T00:16:40Z"}
        return msgspec.json.encode(self._store(resource, name, {"status": {}, **body}, "ADDED"))

    def _get(self, resource: str, name: str, body: Json | None) -> bytes | ApiError:
        if name:
            there = self.objects.get((resource, name))
            return _error(404, f'{resource} "{name}" not found') if there is None else msgspec.json.encode(there)
        items = [there for (kind, _), there in self.objects.items() if kind == resource]
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    def _patch(self, resource: str, name: str, body: Json) -> bytes:
        there = self.objects[resource, name]
        there["data"] |= body["data"]
        return msgspec.json.encode(there)

    def _delete(self, resource: str, name: str, body: Json) -> bytes | ApiError:
        there = self.objects.get((resource, name))
        if there is None:
            return _error(404, f'{resource} "{name}" not found')
        if body["preconditions"]["uid"] != there["metadata"]["uid"]:
            return _error(409, "the uid in the precondition does not match")
        del self.objects[resource, name]
        self._tell("DELETED", resource, there)
        for kind, other in [*self.objects]:
            owners = self.objects[kind, other]["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == there["metadata"]["uid"] for owner in owners):
                self._tell("DELETED", kind, self.objects.pop((kind, other)))
        return b"{}"

    def _store(self, resource: str, name: str, there: Json, kind: str) -> Json:
        self._version += 1
        there["metadata"]["resourceVersion"] = str(self._version)
        self.objects[resource, name] = there
        self._tell(kind, resource, there)
        return there

    def _tell(self, kind: str, resource: str, there: Json) -> None:
        for stream in self.streams:
            if stream.resource == resource:
                stream.lines.put(msgspec.json.encode({"type": kind, "object": there}))


def _parts(path: str) -> tuple[str, str]:
    resource, _, name = path.partition("{ns}/")[2].partition("/")
    return resource, name


def _error(code: int, message: str) -> ApiError:
    return failure(code, msgspec.json.encode({"message": message}))
