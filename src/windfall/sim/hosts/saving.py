"""When running attempts save checkpoints, and what the next attempt of a task goes on from. Touches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core.events import CheckpointSaved, Key
from windfall.sim.hosts.host import Host, Running

if TYPE_CHECKING:
    from windfall.sim.world import World


class Saver:
    """The checkpoints of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.saved: dict[tuple[int, int], float] = {}
        """Progress in checkpoints by job and task, in seconds on a host of speed 1."""

    def plan(self, host: Host, key: Key, running: Running) -> None:
        """Schedule the next checkpoint of an attempt, if it writes one more."""
        saves = running.saves
        if saves is not None and saves.done < saves.count:
            at = running.start_s + running.slept_s + saves.next_s()
            self._world.driver.at(at, self._save, host, host.epoch, key)

    def _save(self, host: Host, epoch: int, key: Key) -> None:
        """Record a checkpoint, from which the next attempt of the task continues."""
        running = host.running.get(key)
        if host.epoch != epoch or running is None or running.saves is None:
            return
        self._keep(key, running.saves.save())
        self.plan(host, key, running)

    def notice(self, host: Host, left_s: float) -> None:
        """The provider will reclaim the host: running tasks that checkpoint save once more, if there is time."""
        driver = self._world.driver
        for key, running in host.running.items():
            saves = running.saves
            if saves is not None and saves.dump_s <= left_s:
                progress_s = saves.progress_s(driver.now - running.start_s - running.slept_s)
                driver.after(saves.dump_s, self._save_at_notice, host, host.epoch, key, progress_s)

    def save_and_go(self, host: Host) -> None:
        """The plan recalls a machine: running tasks save, the worker hands them back and ends."""
        saves = [running.saves for running in host.running.values() if running.saves is not None]
        save_s = max((each.dump_s for each in saves), default=0.0)
        self.notice(host, save_s)
        self._world.driver.after(save_s, self._go_saved, host, host.epoch)

    def _go_saved(self, host: Host, epoch: int) -> None:
        if host.epoch == epoch:
            self._world.preempt(host)

    def _save_at_notice(self, host: Host, epoch: int, key: Key, progress_s: float) -> None:
        if host.epoch == epoch and key in host.running and progress_s > self.saved.get(key[:2], 0.0):
            self._keep(key, progress_s)

    def _keep(self, key: Key, progress_s: float) -> None:
        """The server hears of a checkpoint unless the host cannot reach it."""
        world = self._world
        self.saved[key[:2]] = progress_s
        if world.driver.now >= world.cut_off_until:
            world.driver.submit(CheckpointSaved(world.driver.now, *key, progress_s))
