"""`windfall bench place`: placements per second on a saturated and on a half-empty site, beside the paper's schedulers.

Touches the clock and the file it draws. Peers run in the same process on the same site: a pass that rebuilds its states
for every request (`one-pass`), the paper's retry scheduler (`retry`), and the plain filter scheduler (`default`).
"""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Protocol, cast

import click
import msgspec
import numpy as np
from msgspec import Struct

from windfall.cli.show.output import folder_option
from windfall.lab.opie.tables import SIZES
from windfall.lab.opie.world import saturated_site
from windfall.placement import Decision, Instance, Period, Request, Scheduler, Site
from windfall.placement.baseline import Mode, PlainScheduler

NORMAL_GOAL_PER_S = 2_000
PREEMPTIBLE_GOAL_PER_S = 5_000
GROWTH = (100, 1_000, 10_000, 100_000)
SECONDS_BETWEEN_REQUESTS = 0.001  # of the site's clock, as if a thousand requests came per second


class Decides(Protocol):
    def decide(self, request: Request, now_s: float = 0.0) -> Decision: ...


class Rate(Struct, frozen=True):
    """One measured stream of requests. Deciding, evicting and booting count; restoring the site does not."""

    scheduler: str
    requests: str
    hosts: int
    placements: int
    evicted: int
    per_s: float
    per_cpu_s: float  # the same by processor time, which other load on the machine does not change
    median_us: float
    p99_us: float


class Stream:
    """Requests of mixed sizes to one site, which is restored after each."""

    def __init__(self, site: Site, preemptible: bool, rng: np.random.Generator) -> None:
        self.site, self.preemptible, self.rng = site, preemptible, rng
        self.requests = [Request(preemptible, SIZES[size]) for size in "SML"]
        self.now_s = 0.0
        self.count = 0
        self.alive: deque[str] = deque()

    def run(self, scheduler: Decides, name: str, placements: int, limit_s: float) -> Rate:
        for request in self.requests:  # warm up: the first request of a size fills caches
            scheduler.decide(request, self.now_s)
        times: list[float] = []
        evicted, cpu_s = 0, 0.0
        while len(times) < placements and sum(times) < limit_s:
            self.now_s += SECONDS_BETWEEN_REQUESTS
            self.count += 1
            request = self.requests[int(self.rng.integers(3))]
            instance = Instance(f"{name}-{self.count}", self.preemptible, 0.0, request.resources)
            begun, cpu_begun = time.perf_counter(), time.process_time()
            decision = scheduler.decide(request, self.now_s)
            for victim in decision.victims:
                self.site.remove(victim)
            if decision.host is not None:
                self.site.boot(decision.host, instance, self.now_s)
            times.append(time.perf_counter() - begun)
            cpu_s += time.process_time() - cpu_begun
            evicted += len(decision.victims)
            if decision.host is not None:
                self._put_back(decision.host, instance.id)
        what = "preemptible" if self.preemptible else "normal, evicting"
        took = np.array(times)
        return Rate(
            name,
            what,
            len(self.site.names),
            len(times),
            evicted,
            float(len(times) / took.sum()),
            len(times) / cpu_s,
            float(np.median(took) * 1e6),
            float(np.quantile(took, 0.99) * 1e6),
        )

    def _put_back(self, host: str, identity: str) -> None:
        """End the instance some time later. On a saturated site, preemptible instances fill every gap at once."""
        hosts = {host}
        self.alive.append(identity)
        if len(self.alive) > min(200, len(self.site.names) // 2):
            ended = self.alive.popleft()
            hosts.add(self.site.names[self.site.instances[ended].host])
            self.site.remove(ended)
        if not self.preemptible:
            for name in sorted(hosts):
                self._fill(name)

    def _fill(self, host: str) -> None:
        h, vcpu = self.site.index[host], self.site.resources.index("vcpu")
        unit = self.site.units(SIZES["S"])[vcpu]
        while (free := int(self.site.free_f[vcpu, h] // unit)) > 0:
            size = "SM"[int(self.rng.integers(2))] if free > 1 else "S"
            self.count += 1
            self.site.boot(host, Instance(f"fill-{self.count}", True, 0.0, SIZES[size]), self.now_s)


def measure(hosts: int, placements: int, limit_s: float, seed: int, peers: bool) -> list[Rate]:
    """Ours and, where asked, the peers, on sites made from the same seed."""
    rates = []
    for preemptible in (False, True):
        names = ["windfall"] + (["one-pass", "retry"] if peers else []) + (["default"] if peers and preemptible else [])
        for name in names:
            if sys.stderr.isatty():
                click.echo(f"{hosts:,} hosts, {'preemptible' if preemptible else 'normal'} requests, {name}", err=True)
            site = saturated_site(hosts, np.random.default_rng(seed), full=0.5 if preemptible else 1.0)
            stream = Stream(site, preemptible, np.random.default_rng(seed))
            rates.append(stream.run(_scheduler(name, site), name, placements, limit_s))
    return rates


def _scheduler(name: str, site: Site) -> Decides:
    if name == "windfall":
        return Scheduler(site, Period())
    return PlainScheduler(site, cast(Mode, name))


@click.command()
@click.option("--hosts", type=click.IntRange(min=4), default=5_000, show_default=True, help="Hosts of the site.")
@click.option("--placements", type=click.IntRange(min=1), default=4_000, show_default=True, help="Requests per stream.")
@click.option("--limit", "limit_s", type=float, default=10.0, show_default=True, help="Seconds per stream, at most.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--growth", is_flag=True, help="Also from 100 to 100,000 hosts, drawn.")
@folder_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(hosts: int, placements: int, limit_s: float, seed: int, growth: bool, out: Path, as_json: bool) -> None:
    """Placements per second, with eviction on a saturated site and without on a half-empty one.

    \b
    windfall bench place --hosts 5000 --json
    windfall bench place --growth --out lab
    """
    rates = measure(hosts, placements, limit_s, seed, peers=True)
    document: dict[str, object] = {
        "hosts": hosts,
        "seed": seed,
        "rates": [msgspec.structs.asdict(rate) for rate in rates],
        "goals": _goals(rates),
    }
    grown: list[Rate] = []
    if growth:
        for count in GROWTH:
            grown += measure(count, min(placements, 1_000), min(limit_s, 5.0), seed, peers=count <= 10_000)
        document["growth"] = [msgspec.structs.asdict(rate) for rate in grown]
        document["drawing"] = str(_draw(grown, out))
    if as_json:
        click.echo(msgspec.json.encode(document))
        return
    _print(rates + grown)
    for goal in _goals(rates):
        click.echo(
            f"{goal['requests']}: {goal['per_s']:,.0f}/s ({goal['per_cpu_s']:,.0f} per second of processor time); "
            f"the goal is {goal['goal_per_s']:,}/s"
        )
    if growth:
        click.echo(f"drawn: {document['drawing']}")


def _goals(rates: list[Rate]) -> list[dict[str, object]]:
    goals = {"normal, evicting": NORMAL_GOAL_PER_S, "preemptible": PREEMPTIBLE_GOAL_PER_S}
    return [
        {
            "requests": r.requests,
            "per_s": r.per_s,
            "per_cpu_s": r.per_cpu_s,
            "goal_per_s": goals[r.requests],
            "met": r.per_s >= goals[r.requests],
        }
        for r in rates
        if r.scheduler == "windfall"
    ]


def _print(rates: list[Rate]) -> None:
    click.echo(
        f"{'hosts':>8}  {'requests':<17} {'scheduler':<10} {'per second':>11} {'per CPU s':>10} "
        f"{'median':>10} {'p99':>10} evicted"
    )
    for rate in rates:
        click.echo(
            f"{rate.hosts:>8,}  {rate.requests:<17} {rate.scheduler:<10} {rate.per_s:>11,.1f} {rate.per_cpu_s:>10,.1f} "
            f"{rate.median_us:>7,.0f} us {rate.p99_us:>7,.0f} us {rate.evicted:>7,}"
        )


def _draw(rates: list[Rate], out: Path) -> Path:
    from windfall.figures.sheet import Line, Panel, sheet, write

    panels = []
    for what in ("normal, evicting", "preemptible"):
        lines = []
        for hue, name in enumerate(("windfall", "one-pass", "retry", "default")):
            mine = [rate for rate in rates if rate.scheduler == name and rate.requests == what]
            x, y = [float(rate.hosts) for rate in mine], [rate.median_us / 1e3 for rate in mine]
            lines.append(Line(x=x, y=y, name=name, hue=hue, dots=True))
        y_name = "median time of a placement (ms)"
        panels.append(
            Panel(title=f"{what} requests", lines=lines, x_name="hosts", y_name=y_name, x_log=True, y_log=True)
        )
    return write(out / "bench-place.svg", sheet(panels, "Median time of a placement by the number of hosts."))
