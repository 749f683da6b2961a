"""How long a simulated attempt takes, and how it ends: the law of its task, its host and its pool. Touches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core.events import Key
from windfall.sim.hosts import checkpoints
from windfall.sim.hosts.host import Host, Running
from windfall.sim.inputs.laws import rounded
from windfall.wire.messages import CAUSES, DONE, EXIT

if TYPE_CHECKING:
    from windfall.sim.world import World

DONE_CODE, EXIT_CODE = CAUSES.index(DONE), CAUSES.index(EXIT)


def begin(world: World, host: Host, key: Key) -> Running:
    """Begin an attempt. Its run time and its end are drawn now and hold unless it is interrupted."""
    job, task, attempt = key
    work, ground = world.jobs[job], host.pool
    pool, now = ground.pool, world.driver.now
    if host.warm_t > now:
        now = host.warm_t
    offer = host.offer
    if offer is not None and work.sent:
        now = work.begins_s(task, attempt, host.index, now)
    if host.black_hole:
        return Running(now, now + pool.black_hole_after_s, 0.0, EXIT_CODE)
    work_s = work.run_s(task)
    if work.unfinished:
        work_s = max(work_s, work.unfinished.get((task, attempt), 0.0))
    cpu_s = work_s / (host.speed if offer is None else offer.speed_for(work.class_of(task)))
    if pool.stragglers and work.drag(task, attempt) < pool.stragglers:
        cpu_s *= max(1.0, ground.drag(work.drag(task, -attempt)))
    saves = None
    if work.bag.checkpoint_mb and cpu_s > 0:
        saved_s = world.saver.saved.get((job, task), 0.0)
        bag = work.bag
        every_s = host.every_s.pop(key, bag.checkpoint_every_s)
        cpu_s, saves = checkpoints.begin(work_s, cpu_s, saved_s, bag.checkpoint_mb, every_s)
    cause = DONE_CODE
    if host.errors and work.luck(task, attempt) < host.errors:
        cause = EXIT_CODE
        cpu_s *= work.moment(task, attempt)
    wall_s = cpu_s
    if ground.notes_presence:
        presence = host.presence
        if pool.presence_of == "attempt":
            presence = max(0.01, min(1.0, ground.presence(work.delay(task, attempt))))
        wall_s = cpu_s / presence
    return Running(now, now + rounded(wall_s), cpu_s, cause, 0.0, saves)
