"""Nova's scheduler, with a way out when no host has room: evict preemptible servers. Touches placement and the
compute API.

Hosts with room are Nova's own business: placement knows them, and Nova filters, weighs and claims as ever. Only when
there are none does a normal request look at the hosts without their preemptible servers (OPIE's h_n), once. The claim
comes first, in one atomic call that takes from the victims what is missing; the victims are told, shut down and deleted
while it holds; then the answer goes out, and the server is built.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import nova.conf
import oslo_messaging as messaging
from msgspec import Struct
from nova import exception, objects
from nova.compute import utils as compute_utils
from nova.scheduler import manager, utils
from oslo_log import log as logging
from oslo_service import periodic_task

from windfall_nova import options, swap
from windfall_nova.choose import Choice, Chooser, cost_named, weighers_named
from windfall_nova.evict import Evictor
from windfall_nova.facts import VERSION, Facts, Placement, PlacementDown, instances, is_leaving, request_says, server_of
from windfall_nova.hosts import without_preemptible
from windfall_nova.site import Amounts, Server

CONF = nova.conf.CONF
options.register(CONF)
LOG = logging.getLogger(__name__)


class Wanted(Struct, frozen=True):
    """One normal server that found no room: what it needs, and which providers may be asked for it."""

    uuid: str
    need: Amounts
    restrictions: Sequence[tuple[str, Any]]
    owner: Mapping[str, str]


class Claimed(Struct, frozen=True):
    """A claim that holds in placement while its victims still run."""

    wanted: Wanted
    choice: Choice
    selection: Any
    before: Mapping[str, Any]
    """Allocations of the victims before the claim."""


class PreemptingSchedulerManager(manager.SchedulerManager):
    """`SchedulerManager` that can evict; everything else is inherited."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._facts = Facts(Placement(lambda: self.placement_client))
        self._chooser = Chooser(cost_named(CONF.windfall.cost), weighers_named(CONF.windfall.weighers))
        self._lock = threading.Lock()

    @property
    def _evictor(self) -> Evictor:
        return Evictor(CONF.windfall.grace, CONF.windfall.gone_timeout, CONF.windfall.poll_interval)

    @periodic_task.periodic_task(spacing=CONF.windfall.refresh_interval, run_immediately=True)
    def _refresh_facts(self, context: Any) -> None:
        """Look at all hosts, so that a request finds them known."""
        try:
            with self._lock:
                self._facts.refresh(context, (), time.time())
        except PlacementDown as error:
            LOG.warning("windfall: hosts cannot be read: %s", error)

    def delete_instance_info(self, context: Any, host_name: str, instance_uuid: str) -> None:
        super().delete_instance_info(context, host_name, instance_uuid)
        with self._lock:
            self._facts.gone(instance_uuid)

    @messaging.expected_exceptions(exception.NoValidHost)
    def select_destinations(
        self, context: Any, request_spec: Any = None, filter_properties: Any = None,
        spec_obj: Any = manager.SchedulerManager._sentinel, instance_uuids: Any = None,
        return_objects: bool = False, return_alternates: bool = False,
    ) -> Any:  # fmt: skip
        def plainly(uuids: Any) -> Any:
            return super(PreemptingSchedulerManager, self).select_destinations(
                context, request_spec, filter_properties, spec_obj, uuids, return_objects, return_alternates
            )

        try:
            return plainly(instance_uuids)
        except messaging.ExpectedException as no_room:
            refused = no_room.exc_info[1]
            if spec_obj is self._sentinel or not self._may_evict(context, spec_obj, instance_uuids):
                raise refused from None
            answer = self._select_evicting(context, spec_obj, instance_uuids, plainly)
            return answer if return_objects else [one[0].to_dict() for one in answer]

    def _may_evict(self, context: Any, spec: Any, uuids: Sequence[str] | None) -> bool:
        """Only for a new, normal server; log why not."""
        if not CONF.windfall.enabled or not uuids or utils.request_is_rebuild(spec):
            return False
        said = request_says(context, spec, uuids[0])
        if said.preemptible:
            LOG.info(
                "windfall: no room for %s, which is preemptible (by its %s) and evicts nobody", uuids[0], said.source
            )
            return False
        if any(self._facts.placement.of_consumer(context, uuid)["allocations"] for uuid in uuids):
            LOG.info("windfall: nobody is evicted for %s: it exists, and only moves", uuids[0])
            return False
        return True

    def _select_evicting(self, context: Any, spec: Any, uuids: Sequence[str], plainly: Any) -> list[Any]:
        """All claims first, then all evictions: a request of many servers that fails has evicted nobody."""
        shunned: set[str] = set()
        for _ in range(CONF.windfall.attempts):
            claimed: list[Claimed] = []
            plain: list[str] = []
            try:
                answer = [self._one(context, spec, uuid, plainly, claimed, plain, shunned) for uuid in uuids]
            except exception.NoValidHost:
                self._give_back(context, claimed, plain, "not all servers of the request find a host")
                raise
            why = self._evict(context, claimed)
            if not why:
                return answer
            shunned.update(one.choice.provider for one in claimed)
            self._give_back(context, claimed, plain, why)
        raise exception.NoValidHost(reason="victims did not go")

    def _one(
        self, context: Any, spec: Any, uuid: str, plainly: Any, claimed: list[Claimed], plain: list[str],
        shunned: set[str],
    ) -> Any:  # fmt: skip
        """One server: by Nova itself where it has room by now, else by a claim on victims."""
        spec.instance_uuid = uuid
        spec.obj_reset_changes(["instance_uuid"])
        if len(claimed) + len(plain) or shunned:
            try:
                found = plainly([uuid])[0]
                plain.append(uuid)
                return found
            except messaging.ExpectedException:
                pass
        one = self._claim(context, spec, self._wanted(context, spec, uuid), shunned)
        claimed.append(one)
        return [one.selection]

    def _wanted(self, context: Any, spec: Any, uuid: str) -> Wanted:
        asked = utils.resources_from_request_spec(context, spec, self.host_manager, enable_pinning_translate=True)
        if asked.get_num_of_suffixed_groups() or spec.requested_resources or asked._same_subtree:
            LOG.info("windfall: nobody is evicted for %s: it asks for nested resources", uuid)
            raise exception.NoValidHost(reason="")
        self._check_quota(context, spec, uuid)
        group = asked.get_request_group(None)
        restrictions = [(name, value) for name, value in group.to_queryparams() if name != "resources"]
        roots = [*sorted(asked._root_required), *(f"!{trait}" for trait in sorted(asked._root_forbidden))]
        restrictions += [("required", ",".join(roots))] if roots else []
        need = {name: int(amount) for name, amount in group.resources.items()}
        user = spec.user_id if "user_id" in spec and spec.user_id else context.user_id
        return Wanted(uuid, need, restrictions, {"project_id": spec.project_id, "user_id": user})

    def _check_quota(self, context: Any, spec: Any, uuid: str) -> None:
        """The conductor checks again after us: too late for victims."""
        try:
            compute_utils.check_num_instances_quota(context, spec.flavor, 1, 1, project_id=spec.project_id)
        except exception.TooManyInstances as error:
            LOG.info("windfall: nobody is evicted for %s: its project is at its quota (%s)", uuid, error)
            raise exception.NoValidHost(reason="over quota") from None

    def _claim(self, context: Any, spec: Any, wanted: Wanted, shunned: set[str]) -> Claimed:
        """Choose and claim under the lock; again where somebody else was faster."""
        for _ in range(CONF.windfall.attempts):
            with self._lock:
                try:
                    found = self._choose(context, spec, wanted, shunned)
                except PlacementDown as error:
                    LOG.warning("windfall: nobody is evicted for %s: %s", wanted.uuid, error)
                    raise exception.NoValidHost(reason="") from None
                if found is None:
                    LOG.info("windfall: no host has room for %s, even without preemptible servers", wanted.uuid)
                    raise exception.NoValidHost(reason="")
                choice, state = found
                claimed = self._swap(context, wanted, choice, state)
            if claimed is not None:
                self._consume_selected_host(state, spec, instance_uuid=wanted.uuid)
                return claimed
        LOG.warning("windfall: others were faster %d times; %s gets no host", CONF.windfall.attempts, wanted.uuid)
        raise exception.NoValidHost(reason="")

    def _choose(self, context: Any, spec: Any, wanted: Wanted, shunned: set[str]) -> tuple[Choice, Any] | None:
        """The best provider that Nova's filters let pass, with victims that are as they were thought to be."""
        now_t = time.time()
        allowed = set(self._facts.refresh(context, wanted.restrictions, now_t)) - shunned
        states: dict[str, Any] = {}
        weights: dict[str, float] = {}
        filtered = False
        if self._chooser.filters_all_first:
            states, weights = self._filter(context, spec, allowed)
            allowed, filtered = set(states), True
        while True:
            choice = self._chooser.choose(self._facts.kept, wanted.need, allowed, now_t, weights)
            if choice is None:
                return None
            if not filtered and choice.provider not in states:
                states, _ = self._filter(context, spec, {choice.provider})
                if not states:  # rather than one by one, look at all that are left
                    states, _ = self._filter(context, spec, allowed - {choice.provider})
                    allowed, filtered = set(states), True
                    continue
            changed = self._changed(choice.victims)
            if not changed:
                return choice, states[choice.provider]
            self._facts.kept.learn(changed)

    def _changed(self, victims: Sequence[str]) -> list[Server]:
        """Victims that are no longer what they were: deleted, locked, moving."""
        found = {instance.uuid: instance for instance in instances(victims)}
        result = []
        for uuid in victims:
            instance = found.get(uuid)
            idle = instance is not None and (instance.task_state is None or is_leaving(instance))
            ready = idle and server_of(instance).victim
            if not ready:
                LOG.info("windfall: server %s cannot be evicted now", uuid)
                result.append(Server(uuid))
                self._facts.gone(uuid)
        return result

    def _filter(self, context: Any, spec: Any, uuids: set[str]) -> tuple[dict[str, Any], dict[str, float]]:
        """Hosts that pass Nova's filters without their preemptible servers (h_n), as they are (h_f), and weighed so."""
        found = self.host_manager.get_host_states_by_uuids(context.elevated(), list(uuids), spec)
        full = {state.uuid: state for state in found if self._is_up(state)}
        kept = self._facts.kept
        normal = [without_preemptible(full[uuid], kept.providers[uuid], kept.victims_on(uuid)) for uuid in full]
        passed = [full[state.uuid] for state in self.host_manager.get_filtered_hosts(normal, spec) or ()]
        weights = {}
        if self._chooser.filters_all_first:
            weights = {one.obj.uuid: one.weight for one in self.host_manager.get_weighed_hosts(passed, spec)}
        return {state.uuid: state for state in passed}, weights

    def _is_up(self, state: Any) -> bool:
        """A host that is down frees nothing, whatever filters are configured."""
        up = bool(self.servicegroup_api.service_is_up(state.service))
        if not up:
            LOG.info("windfall: nobody is evicted on %s: its compute service is down", state.host)
        return up

    def _swap(self, context: Any, wanted: Wanted, choice: Choice, state: Any) -> Claimed | None:
        """The claim; None if placement has changed meanwhile."""
        placement, provider = self._facts.placement, self._facts.kept.providers[choice.provider]
        before = {uuid: placement.of_consumer(context, uuid) for uuid in choice.victims}
        self._facts.touched(provider.uuid)
        if any(_here(now, provider.uuid) != provider.consumers[uuid] for uuid, now in before.items()):
            return None
        kept = swap.reduced(provider, wanted.need, choice.victims)
        body = swap.claim(provider.uuid, wanted.need, wanted.owner, wanted.uuid, before, kept)
        refused = placement.post(context, body)
        if refused:
            LOG.info("windfall: the claim of %s on %s was refused: %s", wanted.uuid, state.host, refused)
            return None
        LOG.info(
            "windfall: %s gets %s (%s) in place of %s, for a cost of %g %s",
            wanted.uuid, state.host, state.nodename, ", ".join(choice.victims) or "nobody", choice.cost, choice.unit,
        )  # fmt: skip
        request = {"allocations": {provider.uuid: {"resources": dict(wanted.need)}}, "mappings": {"": [provider.uuid]}}
        selection = objects.Selection.from_host_state(
            state, allocation_request=request, allocation_request_version=VERSION
        )
        return Claimed(wanted, choice, selection, before)

    def _evict(self, context: Any, claimed: Sequence[Claimed]) -> str:
        """End all victims; return why one of them is still there, or nothing."""
        for one in claimed:
            why = self._evictor.evict(one.choice.victims, one.wanted.uuid) if one.choice.victims else ""
            with self._lock:
                self._facts.touched(one.choice.provider)
            if why:
                return why
        return ""

    def _give_back(self, context: Any, claimed: Sequence[Claimed], plain: Sequence[str], why: str) -> None:
        """Undo claims: victims that exist get back what they had, and the room of those that are gone is free."""
        self._cleanup_allocations(context, list(plain))
        placement = self._facts.placement
        for one in claimed:
            alive = {instance.uuid for instance in instances(one.choice.victims)}
            before = {uuid: was for uuid, was in one.before.items() if uuid in alive}
            now = {uuid: placement.of_consumer(context, uuid) for uuid in [*before, one.wanted.uuid]}
            refused = placement.post(context, swap.undo(before, now, one.wanted.uuid))
            if refused:
                LOG.error("windfall: allocations of %s cannot be restored: %s", ", ".join(before), refused)
                self._cleanup_allocations(context, [one.wanted.uuid])
            LOG.warning("windfall: %s gives back its claim on %s: %s", one.wanted.uuid, one.selection.service_host, why)
            with self._lock:
                self._facts.touched(one.choice.provider)


def _here(now: Mapping[str, Any], provider: str) -> Mapping[str, int]:
    found: Mapping[str, int] = now["allocations"].get(provider, {}).get("resources", {})
    return found
