"""What ends, in the order in which it ends: for `for` and for `async for`. Touches nothing of its own.

asyncio is loaded where it is used: commands do without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from windfall.client.executor import Future

T = TypeVar("T")
_END = object()


class Completed(Generic[T]):
    """An iterator that may be iterated in an event loop, too, which it then does not block."""

    def __init__(self, items: Iterator[T], later: Callable[[], AsyncIterator[T]] | None = None) -> None:
        self._items = items
        self._later = later

    def __iter__(self) -> Iterator[T]:
        return self._items

    def __next__(self) -> T:
        return next(self._items)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._in_thread() if self._later is None else self._later()

    async def _in_thread(self) -> AsyncIterator[T]:
        """Wait for each item in a thread."""
        import asyncio

        while (item := await asyncio.to_thread(next, self._items, _END)) is not _END:
            yield item  # type: ignore[misc]


def completed_futures(futures: Iterable[Future], timeout: float | None) -> Completed[Future]:
    """Futures as they end. `TimeoutError` if `timeout` seconds were not enough."""
    from concurrent.futures import as_completed

    given = list(futures)
    items: Iterator[Any] = as_completed(given, timeout)
    return Completed(items, lambda: _in_loop(given, timeout))


async def _in_loop(futures: list[Future], timeout: float | None) -> AsyncIterator[Future]:
    import asyncio

    loop = asyncio.get_running_loop()
    ended: asyncio.Queue[Any] = asyncio.Queue()

    def tell(future: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.put_nowait, future)

    waited_for = set(futures)
    for future in waited_for:
        future.add_done_callback(tell)
    until_s = None if timeout is None else loop.time() + timeout
    for ended_before in range(len(waited_for)):
        left_s = None if until_s is None else max(0.0, until_s - loop.time())
        try:
            async with asyncio.timeout(left_s):  # not wait_for: before Python 3.12 it can lose a cancellation
                future = await ended.get()
        except TimeoutError:
            left = len(waited_for) - ended_before
            raise TimeoutError(f"{left} of {len(waited_for)} calls have not ended after {timeout:g} s") from None
        yield future
