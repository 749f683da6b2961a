"""Questions that take seconds of thought go to a process of their own. Touches that process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from windfall.errors import WindfallError
from windfall.server.http.problems import TooSlow

LIMIT_S = 90.0
"""Seconds after which it is ended."""


async def asked_process(module: str, question: bytes, limit_s: float = LIMIT_S) -> Any:
    """Ask a process, and end it when it takes too long or when nobody waits for it any more.

    The module reads the question from standard input and writes a JSON object.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit_s):
            out, err = await process.communicate(question)
    except TimeoutError:
        raise TooSlow(
            f"the simulation took longer than {limit_s:.0f} s", hint="ask for fewer deadlines, or use: windfall plan"
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        said = err.decode(errors="replace").strip().splitlines()
        raise WindfallError(f"the simulation failed: {said[-1] if said else process.returncode}", code="no-plan")
    return msgspec.json.decode(out)
