"""The end of victims: told, shut down, deleted, waited for. Touches Nova's compute API and the clock.

All victims of a request are shut down before the first is deleted: one that does not react costs the others a restart
and not their life.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nova import context as nova_context
from nova import exception, objects
from nova.compute import api as compute
from nova.compute import vm_states
from oslo_log import log as logging

from windfall_nova.words import EVICTED_KEY, FOR_KEY

LOG = logging.getLogger(__name__)


class Victim:
    """One instance that has to go."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.context = nova_context.get_admin_context()
        mapping = objects.InstanceMapping.get_by_instance_uuid(self.context, uuid)
        nova_context.set_target_cell(self.context, mapping.cell_mapping)
        self.stopped_by_us = False

    def instance(self) -> Any:
        """As it is now; None if it is gone."""
        try:
            return objects.Instance.get_by_uuid(
                self.context, self.uuid, expected_attrs=["metadata", "system_metadata", "flavor", "info_cache"]
            )
        except exception.InstanceNotFound:
            return None


class Evictor:
    """Ends victims through the compute API."""

    def __init__(
        self,
        grace_s: float,
        gone_s: float,
        poll_s: float,
        api: Any = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._grace_s, self._gone_s, self._poll_s = grace_s, gone_s, poll_s
        self._api = api if api is not None else compute.API()
        self._clock, self._sleep = clock, sleep

    def evict(self, uuids: Sequence[str], needed_by: str) -> str:
        """Return why a victim is still there, or nothing. Those that were only shut down run again then."""
        try:
            victims = [Victim(uuid) for uuid in uuids]
        except exception.InstanceMappingNotFound as error:
            return f"{error}"
        for victim in victims:
            self._tell(victim, needed_by)
        why = self._shut_down(victims) if self._grace_s > 0 else ""
        if why:
            self._take_back(victims)
            return why
        return self._delete(victims, needed_by)

    def _tell(self, victim: Victim, needed_by: str) -> None:
        instance = victim.instance()
        if instance is None:
            return
        at_t = self._clock() + self._grace_s
        instance.metadata = {**instance.metadata, EVICTED_KEY: f"{at_t:.0f}", FOR_KEY: needed_by}
        instance.save()
        LOG.info(
            "windfall: server %s is evicted for %s; it has %.0f s to shut down", victim.uuid, needed_by, self._grace_s
        )

    def _shut_down(self, victims: Sequence[Victim]) -> str:
        for victim in victims:
            instance = victim.instance()
            if instance is None or instance.vm_state != vm_states.ACTIVE or instance.task_state is not None:
                continue  # off already, or another eviction is at work on it
            try:
                self._api.stop(victim.context, instance, do_cast=True, clean_shutdown=True)
                victim.stopped_by_us = True
            except (exception.InstanceInvalidState, exception.InstanceNotReady, exception.InstanceIsLocked) as error:
                LOG.warning("windfall: server %s cannot be shut down: %s", victim.uuid, error)
        return self._wait(victims, self._grace_s + self._gone_s, self._is_off, "did not shut down")

    def _delete(self, victims: Sequence[Victim], needed_by: str) -> str:
        for victim in victims:
            instance = victim.instance()
            if instance is None:
                continue
            try:
                self._api.delete(victim.context, instance)
            except (exception.InstanceNotFound, exception.InstanceInvalidState, exception.InstanceIsLocked) as error:
                LOG.warning("windfall: server %s cannot be deleted: %s", victim.uuid, error)
        why = self._wait(victims, self._gone_s, lambda victim: victim.instance() is None, "was not deleted")
        for victim in victims:
            if victim.instance() is None:
                LOG.info("windfall: server %s is gone; its place is that of %s", victim.uuid, needed_by)
        return why

    def _is_off(self, victim: Victim) -> bool:
        instance = victim.instance()
        return instance is None or (instance.task_state is None and instance.vm_state != vm_states.ACTIVE)

    def _wait(self, victims: Sequence[Victim], limit_s: float, done: Callable[[Victim], bool], words: str) -> str:
        until_t = self._clock() + limit_s
        waiting = list(victims)
        while True:
            waiting = [victim for victim in waiting if not done(victim)]
            if not waiting:
                return ""
            if self._clock() >= until_t:
                return f"server {waiting[0].uuid} {words} within {limit_s:g} s"
            self._sleep(self._poll_s)

    def _take_back(self, victims: Sequence[Victim]) -> None:
        """The eviction is off: nobody is told any more, and those that we shut down start again."""
        for victim in victims:
            instance = victim.instance()
            if instance is None:
                continue
            instance.metadata = {
                key: text for key, text in instance.metadata.items() if key not in (EVICTED_KEY, FOR_KEY)
            }
            instance.save()
            if victim.stopped_by_us and instance.vm_state == vm_states.STOPPED and instance.task_state is None:
                self._api.start(victim.context, instance)
                LOG.info("windfall: server %s is not evicted after all and starts again", victim.uuid)
