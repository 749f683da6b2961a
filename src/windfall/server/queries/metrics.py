"""`GET /metrics`: the server's figures for Prometheus. Reads the state only.

Behind the role `read`, unless the server was started with `--open-metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from windfall import __version__
from windfall.core.state.jobs.columns import STATE_NAMES
from windfall.drivers.timings import Timings
from windfall.server.service import Service

if TYPE_CHECKING:
    from prometheus_client import Metric


async def metrics(service: Service, request: Request) -> Response:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(_Figures(service))
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"content-type": kind})


class _Figures:
    """What is known at the moment of the scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import InfoMetricFamily

        service = self._service
        yield InfoMetricFamily("windfall_build", "The server's version.", {"version": __version__})
        yield from _of_jobs(service)
        yield from _of_hosts(service)
        driver = service.driver
        yield _gauge("windfall_store_in_trouble", "1 while nothing can be committed.", int(bool(driver.trouble)))
        yield _gauge("windfall_console_listeners", "Pages of the console that are told news.", service.listeners)
        yield _counter("windfall_log_records", "Records in the log.", service.state.seq)
        yield _histogram("windfall_exchange_seconds", "From a worker's request to its answer, without the time that it "
                         "waited for work.", service.exchange_times)  # fmt: skip
        yield _histogram("windfall_commit_seconds", "Writing one transaction of records.", driver.commit_times)
        yield _histogram("windfall_loop_seconds", "The event loop answers a call, asked once a second.",
                         service.loop_times)  # fmt: skip


def _of_jobs(service: Service) -> Iterator[Metric]:
    tasks, jobs, lost = [0] * len(STATE_NAMES), Counter[str](), Counter[str]()
    attempts = late = 0
    now = service.driver.clock()
    for bag in service.state.bags.values():
        jobs[bag.state] += 1
        attempts += bag.tally.attempts
        lost.update(bag.tally.lost_by_pool)
        for index, count in enumerate(bag.counts):
            tasks[index] += count
        deadline_s = bag.rules.deadline_s
        late += bag.finished_t is None and deadline_s is not None and now > bag.submitted_t + deadline_s
    yield _gauges("windfall_jobs", "Jobs by state.", "state", jobs)
    yield _gauge("windfall_jobs_late", "Unfinished jobs behind their deadline.", late)
    yield _gauges("windfall_tasks", "Tasks by state.", "state", dict(zip(STATE_NAMES, tasks, strict=True)))
    rising = service.rising
    yield _counter("windfall_attempts", "Attempts that were handed out.", rising.of("attempts", attempts))
    ever_lost = {pool: rising.of("lost", lost[pool], pool) for pool in {*lost, *rising.labels("lost")}}
    yield _counters("windfall_attempts_lost", "Attempts that were lost with their hosts, by pool.", "pool", ever_lost)


def _of_hosts(service: Service) -> Iterator[Metric]:
    hosts, fleet = service.state.hosts, service.state.fleet
    known = {"live": len(hosts.live), "unknown": len(hosts.unknown)}
    yield _gauges("windfall_hosts", "Hosts by state.", "state", known)
    yield _gauge("windfall_slots", "Slots of live hosts.", hosts.live_slots)
    there = [machine for machine in fleet.machines.values() if machine.there]
    yield _gauges("windfall_machines", "Rented machines by phase.", "phase", Counter(each.phase for each in there))
    yield _gauges(
        "windfall_pool_machines", "Rented machines by pool.", "pool", Counter(each.offer.pool for each in there)
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value)


def _gauges(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, text, value)


def _counters(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, text: str, times: Timings) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(name, text, buckets=times.cumulative(), sum_value=times.sum_s)
