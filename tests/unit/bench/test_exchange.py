"""How `windfall bench exchange` counts what exchanges wait."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

from windfall.bench.live import pullers
from windfall.bench.live.exchange import quantiles
from windfall.wire import frames

NO_TASKS = frames.join(json.dumps({"tasks": []}).encode(), [])
STALL_S = 0.3


class Clock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += max(0.0, seconds)


class Stalls:
    """A server that answers at once, but the first exchange only after `STALL_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._asked = clock, 0

    async def ask(self, *_: object) -> bytes:
        self._asked += 1
        await self._clock.sleep(STALL_S if self._asked == 1 else 0.0)
        return NO_TASKS


def test_at_a_rate_an_exchange_that_waits_for_a_slow_one_before_it_has_waited_too(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(pullers, "time", clock)
    monkeypatch.setattr(pullers, "asyncio", SimpleNamespace(sleep=clock.sleep, gather=asyncio.gather))
    worker = pullers.Pullers({"host": "h", "port": 1, "token": "t", "hosts": 1})
    worker._connections = [Stalls(clock)]
    seen = asyncio.run(worker.part({"seconds": 0.5, "rate": 100.0, "want": 1, "each": True}))
    # Of those due every 10 ms while the server stood still, the last waited for 10 ms and the first for all of it.
    late = [round(waited_ms) for waited_ms in seen["latencies_ms"] if waited_ms > 1.0]
    assert late == [*range(10, 310, 10)]


def test_quantiles_are_told_for_exchanges_with_and_without_a_snapshot_under_way():
    told = quantiles([float(each) for each in range(1000, 0, -1)], [5.0], 2)
    assert told["snapshots"] == 2
    assert (told["exchanges_alone"], told["exchanges_beside_snapshot"]) == (1000, 1)
    assert (told["p50_ms_alone"], told["p99_ms_alone"], told["p99.9_ms_alone"]) == (501.0, 991.0, 1000.0)
    assert told["p99.9_ms_beside_snapshot"] == 5.0


def test_a_server_that_took_no_snapshot_in_time_is_told_without_quantiles():
    told = quantiles([1.0], [], 0)
    assert told["exchanges_beside_snapshot"] == 0
    assert not any(name.endswith("_ms_beside_snapshot") for name in told)
