"""A keeper's pause ends by a change, by its time and by a cancellation, also where two of these come together."""

from __future__ import annotations

import asyncio

import pytest

from windfall.drivers.keepers.waiting import pause


@pytest.mark.parametrize("turns", range(5))
def test_a_cancellation_that_comes_together_with_a_change_is_not_lost(turns):
    async def story() -> bool:
        changed = asyncio.Event()

        async def keep() -> None:
            while True:
                await pause(changed, 3600.0)

        task = asyncio.create_task(keep())
        for _ in range(5):
            await asyncio.sleep(0)
        changed.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ended

    assert asyncio.run(story())


def test_a_pause_ends_by_a_change_and_by_its_time_and_forgets_the_change():
    async def story() -> None:
        changed = asyncio.Event()
        changed.set()
        await pause(changed, 3600.0)
        assert not changed.is_set()
        await pause(changed, 0.001)

    asyncio.run(story())
