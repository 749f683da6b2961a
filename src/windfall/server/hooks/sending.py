"""One delivery: a signed POST, or a command with the news on its standard input. Touches the network and processes."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http.client
import os
import signal
import ssl
import threading
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec

from windfall import __version__
from windfall.server.hooks.config import Hook

Json = dict[str, Any]
HASTY = (408, 425, 429)
"""Refusals of 400 to 499 that may be over later; the others are final."""


class Refused(Exception):
    """The delivery failed. `final`: trying again makes no sense."""

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def signature(secret: bytes, t: int, body: bytes) -> str:
    """What the receiver computes again: HMAC-SHA256 over the time, a dot and the body."""
    return hmac.new(secret, f"{t}.".encode() + body, sha256).hexdigest()


async def deliver(hook: Hook, news: Json, t: float) -> None:
    """Refused: it did not arrive, as far as we know."""
    body = msgspec.json.encode(news)
    if hook.url:
        await _in_thread(partial(_post, hook, news["delivery"], body, int(t)))
    else:
        await _run(hook, news, body)


async def _in_thread(call: Callable[[], None]) -> None:
    """Run a call in a thread that nobody waits for when the server stops: a receiver may hang."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(None) if error is None else ended.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="hook", daemon=True).start()
    await ended


def _post(hook: Hook, delivery: str, body: bytes, t: int) -> None:
    parts = urlsplit(hook.url)
    assert parts.hostname is not None
    headers = {
        "content-type": "application/json",
        "user-agent": f"windfall/{__version__}",
        "x-windfall-delivery": delivery,
        "x-windfall-time": str(t),
    }
    if hook.secret:
        headers["x-windfall-signature"] = f"sha256={signature(hook.secret, t, body)}"
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    more: Json = {"context": ssl.create_default_context()} if parts.scheme == "https" else {}
    try:
        connection = make(parts.hostname, parts.port, timeout=hook.timeout_s, **more)
        with contextlib.closing(connection):
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Refused(f"{type(error).__name__}: {error}") from None
    if not 200 <= status < 300:
        raise Refused(f"it answered {status}", final=300 <= status < 500 and status not in HASTY)


async def _run(hook: Hook, news: Json, body: bytes) -> None:
    env = {
        **os.environ, "WINDFALL_JOB": str(news["job"]), "WINDFALL_JOB_NAME": news["name"],
        "WINDFALL_JOB_STATE": news["state"],
    }  # fmt: skip
    try:
        process = await asyncio.create_subprocess_exec(
            *hook.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL, env=env, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise Refused(f"it cannot be started: {error}") from None
    try:
        async with asyncio.timeout(hook.timeout_s):
            await process.communicate(body)
    except TimeoutError:
        raise Refused(f"it took longer than {hook.timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        raise Refused(f"exit code {process.returncode}")
