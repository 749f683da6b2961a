"""`windfall bench`: one sub-command per benchmark, each in its own module, each with a floor or a peer beside it."""

from __future__ import annotations

import click

from windfall.cli import LazyGroup

BENCHES: dict[str, tuple[str, str, str]] = {
    "all": ("windfall.bench.everything", "command", "Every benchmark with its defaults."),
    "start": ("windfall.bench.live.start", "command", "How soon help, status and a run answer, beside python -c pass."),
    "spawn": ("windfall.bench.live.spawn", "command", "Real processes through the whole system, beside posix_spawn."),
    "noop": ("windfall.bench.live.noop", "command", "Python calls through the executor, beside ProcessPoolExecutor."),
    "queue": ("windfall.bench.live.queue", "command", "A million queued tasks: time, memory, restart, dispatch."),
    "stored": ("windfall.bench.live.stored", "command", "Memory of queued tasks, log of finished ones, restarts."),
    "bag": ("windfall.bench.live.bag", "command", "20,000 tasks of 50 ms on 64 slots, beside ProcessPoolExecutor."),
    "exchange": ("windfall.bench.live.exchange", "command", "25,000 workers over real HTTP."),
    "boinc": ("windfall.bench.live.boinc", "command", "10,000 volunteers' BOINC clients, beside GridBot's rate."),
    "console": ("windfall.bench.in_process.console", "command", "Pages of the console for a million tasks."),
    "simulate": ("windfall.bench.in_process.simulate", "command", "2.2 million tasks on 25,000 hosts in virtual time."),
    "match": (
        "windfall.bench.in_process.match",
        "command",
        "Hosts matched with bags, beside one ClassAd evaluation a bag.",
    ),
    "growth": (
        "windfall.bench.in_process.growth",
        "command",
        "What a finished task costs the engine, by tasks, hosts, machines and jobs.",
    ),
    "scale": (
        "windfall.bench.in_process.scale",
        "command",
        "Very many hosts and tasks: memory, time, snapshot, start.",
    ),
    "plan": ("windfall.bench.in_process.plan", "command", "A simulated run of a plan, by tasks, up to 50,000."),
    "view": ("windfall.bench.in_process.view", "command", "What a planner is shown of 16,000 running tasks."),
    "fleet": ("windfall.bench.in_process.fleet", "command", "A planning round of a fleet with 100,000 waiting jobs."),
    "snapshot": (
        "windfall.bench.in_process.snapshot",
        "command",
        "How long the loop stands still for a snapshot of 10 million tasks.",
    ),
    "timeout": (
        "windfall.bench.in_process.timeout",
        "command",
        "Best timeout of a million samples; one online update.",
    ),
    "peers": (
        "windfall.bench.peers.command",
        "command",
        "Calls and processes beside Ray, Dask, Parsl, HyperQueue and GNU parallel.",
    ),
    "place": ("windfall.bench.in_process.place", "command", "Placements per second, with and without eviction."),
    "workflow": (
        "windfall.bench.in_process.workflow",
        "command",
        "Workflows in the engine: growth with tasks and instances.",
    ),
    "scs": ("windfall.bench.in_process.scs", "command", "One control loop of SCS over up to 100,000 workflows."),
}


@click.group(cls=LazyGroup, table=BENCHES)
def bench() -> None:
    """Measure Windfall beside a floor or a peer, in the same run."""
