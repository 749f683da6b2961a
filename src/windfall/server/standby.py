"""A second server on a state: it follows the first one's log, answers questions, and takes over when that is silent.

Touches the store. Safety does not hang on this module: opening a store begins a new epoch, and the server before can
commit nothing more (windfall.store.contract).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windfall.drivers.following import Following
from windfall.errors import WindfallError
from windfall.server.http.app import Application
from windfall.server.service import Service
from windfall.store import open_store
from windfall.store.contract import Store, StoreError, StoreInUse
from windfall.store.location import StateLocation

log = logging.getLogger(__name__)

TOKENS_S = 2.0
"""Seconds after which a standby knows a token that was made or revoked."""


class Front:
    """What the web server calls: the application of a standby, and from the take-over on that of the server."""

    app: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def exchange(self, body: bytes, headers: dict[bytes, bytes]) -> Coroutine[Any, Any, bytes | Response]:
        return self.app.exchange(body, headers)


async def stand_by(
    following: Following, service: Service, where: StateLocation, silence_s: float, stopping: asyncio.Event
) -> Store | None:
    """Follow until the state is ours: its store, opened in a new epoch. None if `stopping` was set first."""
    tokens = asyncio.create_task(_know_tokens(service))
    taking = asyncio.create_task(_taken(following, where, silence_s))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return taking.result() if taking.done() else None
    finally:
        for task in (tokens, taking, stopped):
            task.cancel()
        await asyncio.gather(tokens, taking, stopped, return_exceptions=True)


async def _taken(following: Following, where: StateLocation, silence_s: float) -> Store:
    while True:
        await following.until_silent(silence_s, forces=bool(where.url))
        log.warning("the server %s is silent: taking over", _name(following))
        try:
            return await asyncio.to_thread(open_store, where, True)
        except StoreInUse as error:
            log.warning("another server was quicker: %s", error.message)
        except StoreError as error:
            if not error.retryable:
                raise
            log.warning("the state cannot be taken over yet: %s", error.message)
        except WindfallError as error:  # a database that cannot be reached
            log.warning("the state cannot be taken over yet: %s", error.message)
        await asyncio.sleep(0.5)


async def _know_tokens(service: Service) -> None:
    while True:
        await asyncio.sleep(TOKENS_S)
        with contextlib.suppress(WindfallError):
            await asyncio.to_thread(service.tokens.reload)


def _name(following: Following) -> str:
    return following.leader.url or following.leader.process or "before"
