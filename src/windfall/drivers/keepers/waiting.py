"""A keeper's pause between two looks. Touches the event loop."""

from __future__ import annotations

import asyncio
import contextlib


async def pause(changed: asyncio.Event, seconds: float) -> None:
    """Return when something has changed or `seconds` have passed, and forget the change.

    Not `asyncio.wait_for`: up to Python 3.11 it loses a cancellation that comes together with the change, and a keeper
    that was told to stop would go on for ever.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()
    changed.clear()
