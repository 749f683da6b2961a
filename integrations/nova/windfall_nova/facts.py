"""What placement and Nova's databases say of hosts and servers. Touches both, and changes nothing there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from keystoneauth1.exceptions import ClientException
from nova import context as nova_context
from nova import exception, objects, policy
from nova.compute import vm_states
from oslo_log import log as logging

from windfall_nova import words
from windfall_nova.options import RULES
from windfall_nova.site import Inventory, KeptSite, Provider, Server

LOG = logging.getLogger(__name__)
VERSION = "1.36"  # of placement: the one that Nova's scheduler speaks
MOST_PER_QUERY = 500
EVICTABLE = (vm_states.ACTIVE, vm_states.STOPPED, vm_states.PAUSED, vm_states.SUSPENDED, vm_states.ERROR)
_IMAGE_PREFIX = "image_"


class PlacementDown(Exception):
    """Placement gave no answer that can be used."""


class Placement:
    """Reads and writes allocations through Nova's own client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def get(self, context: Any, url: str) -> Any:
        """The document; None if there is no such thing."""
        try:
            answer = self._client().get(url, version=VERSION, global_request_id=context.global_id)
        except ClientException as error:  # it is away, or the catalogue does not know it
            raise PlacementDown(f"GET {url}: {error}") from None
        if answer is not None and answer.status_code == 404:
            return None
        if answer is None or answer.status_code != 200:
            raise PlacementDown(f"GET {url}: {answer.status_code if answer is not None else 'no answer'}")
        return answer.json()

    def rows(self, context: Any, restrictions: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
        """Roots of provider trees that satisfy traits, aggregates and the like."""
        url = "/resource_providers" + (f"?{urlencode(restrictions)}" if restrictions else "")
        found = self.get(context, url)
        return [row for row in found["resource_providers"] if row["root_provider_uuid"] == row["uuid"]]

    def provider(self, context: Any, row: Mapping[str, Any]) -> Provider | None:
        base = f"/resource_providers/{row['uuid']}"
        inventories = self.get(context, f"{base}/inventories")
        allocations = self.get(context, f"{base}/allocations")
        if inventories is None or allocations is None:
            return None
        return Provider(
            row["uuid"],
            row["generation"],
            {name: Inventory.of(one) for name, one in inventories["inventories"].items()},
            {uuid: one["resources"] for uuid, one in allocations["allocations"].items()},
        )

    def of_consumer(self, context: Any, uuid: str) -> dict[str, Any]:
        """Its allocations, generation and owner; `allocations` is empty if it has none."""
        found: dict[str, Any] = self.get(context, f"/allocations/{uuid}")
        return found

    def post(self, context: Any, body: Mapping[str, Any]) -> str:
        """Write several consumers' allocations at once; return why that was refused, or nothing."""
        try:
            answer = self._client().post("/allocations", body, version=VERSION, global_request_id=context.global_id)
        except ClientException as error:
            return f"placement cannot be reached: {error}"
        if answer is None:
            return "placement does not answer"
        if answer.status_code == 204:
            return ""
        try:
            return str(answer.json()["errors"][0]["detail"]).strip()
        except (ValueError, LookupError):
            return f"placement answered {answer.status_code}"


class Facts:
    """Keeps a `KeptSite` in step with the world. Not safe for threads: callers hold a lock."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.kept = KeptSite()
        self._stale: set[str] = set()

    def gone(self, server: str) -> None:
        """A server was deleted: placement does not tell that by a new generation of its provider."""
        self._stale.add(server)

    def touched(self, provider: str) -> None:
        """We changed allocations there."""
        if provider in self.kept.providers:
            self._stale.update(self.kept.providers[provider].consumers or [provider])
            self._stale.add(provider)

    def refresh(self, context: Any, restrictions: Sequence[tuple[str, Any]], now_t: float) -> list[str]:
        """Read what changed; return the providers that satisfy the restrictions."""
        rows = self.placement.rows(context, restrictions)
        if not restrictions:
            self.kept.drop(set(self.kept.providers) - {row["uuid"] for row in rows})
            self.kept.forget_unused()
        changed = [row for row in rows if self._is_stale(row)]
        read = [one for one in (self.placement.provider(context, row) for row in changed) if one is not None]
        self.kept.learn(self.servers(self.kept.unknown(read)))
        for one in read:
            self.kept.put(one, now_t)
        if not restrictions:
            self._stale.clear()
        return [row["uuid"] for row in rows if row["uuid"] in self.kept.providers]

    def _is_stale(self, row: Mapping[str, Any]) -> bool:
        known = self.kept.providers.get(row["uuid"])
        if known is None or known.generation != row["generation"] or row["uuid"] in self._stale:
            return True
        unsettled = any(uuid not in self.kept.servers for uuid in known.consumers)
        return unsettled or not self._stale.isdisjoint(known.consumers)

    def servers(self, uuids: Sequence[str]) -> list[Server]:
        """Facts of consumers. One that is being built or changed is left out, and asked for again next time."""
        result = []
        for start in range(0, len(uuids), MOST_PER_QUERY):
            result += self._servers(uuids[start : start + MOST_PER_QUERY])
        return result

    def _servers(self, uuids: Sequence[str]) -> Iterable[Server]:
        found = {instance.uuid: instance for instance in instances(uuids)}
        for uuid in uuids:
            instance = found.get(uuid)
            if instance is None:
                if not _is_building(uuid):
                    yield Server(uuid)  # a migration, or somebody else's consumer
                continue
            if instance.launched_at is None or (instance.task_state is not None and not is_leaving(instance)):
                continue
            yield server_of(instance)


def instances(uuids: Sequence[str]) -> list[Any]:
    """Instances of all cells that exist, with what `server_of` reads."""
    admin = nova_context.get_admin_context()
    by_cell: dict[str, list[str]] = defaultdict(list)
    cells = {}
    for mapping in objects.InstanceMappingList.get_by_instance_uuids(admin, list(uuids)):
        if mapping.cell_mapping is not None:
            by_cell[mapping.cell_mapping.uuid].append(mapping.instance_uuid)
            cells[mapping.cell_mapping.uuid] = mapping.cell_mapping
    result: list[Any] = []
    for cell, members in by_cell.items():
        with nova_context.target_cell(admin, cells[cell]) as targeted:
            wanted = {"uuid": members, "deleted": False}
            extra = ["flavor", "metadata", "system_metadata"]
            result.extend(objects.InstanceList.get_by_filters(targeted, wanted, expected_attrs=extra))
    return result


def is_leaving(instance: Any) -> bool:
    """It is being evicted: what it still holds may be claimed, too."""
    return words.EVICTED_KEY in (instance.metadata or {})


def server_of(instance: Any) -> Server:
    preemptible = instance_says(instance).preemptible
    flavor, metadata = instance.flavor.extra_specs or {}, instance.metadata or {}
    return Server(
        instance.uuid,
        preemptible and instance.vm_state in EVICTABLE and not instance.disable_terminate,
        instance.launched_at.timestamp(),
        words.number(metadata.get(words.CHECKPOINT_KEY)) or 0.0,
        words.number(flavor.get(words.PRICE_KEY)),
        instance.project_id or "",
    )


def instance_says(instance: Any) -> words.Said:
    """Of a server that exists. Its hints are in its request specification; read only if nothing else says anything."""
    image = _image_properties(instance.system_metadata)
    first = words.said(instance.flavor.extra_specs, image, {})
    if first.source:
        return first
    try:
        admin = nova_context.get_admin_context()
        spec = objects.RequestSpec.get_by_instance_uuid(admin, instance.uuid)
    except exception.RequestSpecNotFound:
        return first
    return words.said(instance.flavor.extra_specs, image, _hints(spec))


def request_says(context: Any, spec: Any, uuid: str) -> words.Said:
    """Of a server that is asked for. Nova drops unknown image properties from the request: its build request has
    them."""
    try:
        built = objects.BuildRequest.get_by_instance_uuid(context.elevated(), uuid)
        image = _image_properties(built.instance.system_metadata)
    except (exception.BuildRequestNotFound, NotImplementedError, AttributeError):
        image = {}
    answer = words.said(
        spec.flavor.extra_specs if "extra_specs" in spec.flavor else {},
        image,
        _hints(spec),
        lambda source: _allowed(context, source),
    )
    for source in answer.unclear:
        LOG.warning("windfall: %s of server %s says neither true nor false and is not heard", source, uuid)
    for source in answer.closed:
        LOG.warning("windfall: policy does not let the %s of server %s say whether it is preemptible", source, uuid)
    return answer


def _allowed(context: Any, source: str) -> bool:
    policy.init()
    for rule in RULES:
        if rule.name not in policy._ENFORCER.registered_rules:
            policy._ENFORCER.register_default(rule)
    target = {"project_id": context.project_id, "user_id": context.user_id}
    return bool(policy.authorize(context, f"windfall:preemptible:{source}", target, do_raise=False))


def _hints(spec: Any) -> Mapping[str, Any]:
    return (spec.scheduler_hints if "scheduler_hints" in spec else None) or {}


def _image_properties(system_metadata: Mapping[str, str] | None) -> dict[str, str]:
    items = (system_metadata or {}).items()
    return {key.removeprefix(_IMAGE_PREFIX): value for key, value in items if key.startswith(_IMAGE_PREFIX)}


def _is_building(uuid: str) -> bool:
    """An instance without a cell yet, or one that is not written there yet."""
    try:
        objects.InstanceMapping.get_by_instance_uuid(nova_context.get_admin_context(), uuid)
    except exception.InstanceMappingNotFound:
        return False
    return True
