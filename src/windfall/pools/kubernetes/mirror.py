"""A copy of the objects that a selector chooses, kept up to date by a watch. Touches the network, by a thread.

A list is read once; then the API server tells what changes. Only if a watch fails is the list read again.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from windfall.pools.contract import TRANSIENT, PoolError
from windfall.pools.kubernetes.answers import GONE, ApiError, Change, Listed, Metadata, Status, decoded, failure
from windfall.pools.kubernetes.api import Api, Stream

log = logging.getLogger(__name__)

PAGE = "500"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 15.0
_END_S = 2.0
T = TypeVar("T", bound=Any)


class _Head(Struct):
    metadata: Metadata


class Mirror(Generic[T]):
    """`changed` is called after each change, in the mirror's thread, with all objects."""

    def __init__(
        self, api: Api, path: str, selector: str, type: type[T], changed: Callable[[list[T]], None] = lambda _: None
    ) -> None:
        self._api, self._path, self._selector, self._type, self._changed = api, path, selector, type, changed
        self._objects: dict[str, T] = {}
        self._error: PoolError | None = PoolError("nothing has been heard from the API server yet", TRANSIENT)
        self._tries = 0
        """Lists that were read or could not be read."""
        self._again = threading.Event()
        self._told = threading.Condition()
        self._closed = threading.Event()
        self._version = ""
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="kubernetes-watch", daemon=True)
        self._thread.start()

    def objects(self, wait_s: float = 0.0) -> list[T] | PoolError:
        """All objects; the error if they are not known now.

        `wait_s`: if they are not, have the API server asked again now, and wait for that at most so long.
        """
        with self._told:
            if wait_s and self._error is not None:
                tries = self._tries
                self._again.set()
                self._told.wait_for(lambda: self._tries != tries or self._closed.is_set(), wait_s)
            return self._error if self._error is not None else [*self._objects.values()]

    def close(self) -> None:
        self._closed.set()
        self._again.set()
        with self._told:
            self._told.notify_all()
        if self._stream is not None:
            self._stream.stop()
        self._thread.join(_END_S)

    # --- the thread ---

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._closed.is_set():
            try:
                error = self._follow()
            except Exception as problem:
                log.exception("a watch of Kubernetes failed where it must not; trying again")
                error = PoolError(f"{type(problem).__name__}: {problem}", TRANSIENT)
            if error is None:
                wait_s = _FIRST_WAIT_S
                continue
            if isinstance(error, ApiError) and error.code == GONE and self._version:
                self._version = ""  # what happened since is not known any more: read the list again
                continue
            with self._told:
                self._error, self._tries = error, self._tries + 1
                self._told.notify_all()
            self._version = ""
            # Many servers whose API server comes back must not ask at the same moment.
            self._again.wait(wait_s * random.uniform(0.5, 1.0))
            self._again.clear()
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _follow(self) -> PoolError | None:
        """One list if there is none, then one watch to its end; None if the watch can go on from there."""
        if not self._version:
            found = self._read_list()
            if isinstance(found, PoolError):
                return found
            with self._told:
                self._objects, self._error, self._tries = found, None, self._tries + 1
                self._told.notify_all()
            self._changed([*self._objects.values()])
        query = {"labelSelector": self._selector, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        stream = self._api.watch(self._path, **query)
        if isinstance(stream, ApiError):
            return stream
        self._stream = stream
        if self._closed.is_set():
            stream.stop()
        for line in stream:
            if self._closed.is_set():
                return None
            problem = line if isinstance(line, ApiError) else self._take(line)
            if problem is not None:
                return problem
        return None

    def _read_list(self) -> dict[str, T] | PoolError:
        objects: dict[str, T] = {}
        query = {"labelSelector": self._selector, "limit": PAGE}
        while True:
            answer = self._api.call("GET", self._path, None, **query)
            page = answer if isinstance(answer, ApiError) else decoded(answer, Listed)
            if isinstance(page, PoolError):
                if isinstance(page, ApiError) and page.code == GONE and "continue" in query:
                    objects, query = {}, {"labelSelector": self._selector}  # too slow: all in one page
                    continue
                return page
            for raw in page.items:
                one = decoded(raw, self._type)
                if isinstance(one, PoolError):
                    return one
                objects[one.metadata.uid] = one
            self._version = page.metadata.resource_version
            if not page.metadata.continue_:
                return objects
            query["continue"] = page.metadata.continue_

    def _take(self, line: bytes) -> PoolError | None:
        change = decoded(line, Change)
        if isinstance(change, PoolError):
            return change
        if change.type == "ERROR":
            status = decoded(change.object, Status)
            return failure(status.code if isinstance(status, Status) else 0, bytes(change.object))
        head = decoded(change.object, _Head)
        if isinstance(head, PoolError):
            return head
        self._version = head.metadata.resource_version
        if change.type == "BOOKMARK":
            return None
        one = decoded(change.object, self._type)
        if isinstance(one, PoolError):
            return one
        with self._told:
            if change.type == "DELETED":
                self._objects.pop(one.metadata.uid, None)
            else:
                self._objects[one.metadata.uid] = one
        self._changed([*self._objects.values()])
        return None
