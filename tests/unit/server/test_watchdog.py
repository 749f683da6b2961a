"""The watchdog tells of a loop that stands still, and of no other."""

from __future__ import annotations

import asyncio
import threading

from windfall.server.watchdog import Watchdog


def test_a_loop_that_stands_still_is_noticed():
    noticed = threading.Event()

    async def hang() -> bool:
        Watchdog(asyncio.get_running_loop(), noticed.set, limit_s=0.02, tick_s=0.01).start()
        await asyncio.sleep(0)
        return noticed.wait(60)  # the loop stands still until it is noticed

    assert asyncio.run(hang())


def test_a_loop_that_runs_or_has_ended_is_left_alone():
    noticed = threading.Event()

    async def runs() -> Watchdog:
        watchdog = Watchdog(asyncio.get_running_loop(), noticed.set, limit_s=3600.0, tick_s=0.001)
        watchdog.start()
        for _ in range(50):
            await asyncio.sleep(0.001)
        return watchdog

    watchdog = asyncio.run(runs())
    watchdog._thread.join(60)
    assert not watchdog._thread.is_alive()
    assert not noticed.is_set()


def test_a_loop_that_was_closed_before_it_answered_does_not_hang():
    noticed = threading.Event()
    loop = asyncio.new_event_loop()  # it never runs: what the watchdog asks of it is never answered
    watchdog = Watchdog(loop, noticed.set, limit_s=3600.0, tick_s=0.001)
    asked = threading.Event()
    call_soon = loop.call_soon_threadsafe

    def ask(*arguments):
        call_soon(*arguments)
        asked.set()

    loop.call_soon_threadsafe = ask
    watchdog.start()
    assert asked.wait(60)
    loop.close()
    watchdog._thread.join(60)
    assert not watchdog._thread.is_alive()
    assert not noticed.is_set()
