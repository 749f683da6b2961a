"""A host as a normal request sees it: without its preemptible servers (OPIE's h_n). Touches nothing."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from windfall_nova.site import Provider


def without_preemptible(state: Any, provider: Provider, victims: Collection[str]) -> Any:
    """A copy of Nova's HostState for filters to look at; the original stays as it is."""
    result = copy.copy(state)
    freed = [provider.consumers[uuid] for uuid in victims]
    result.free_ram_mb = state.free_ram_mb + sum(one.get("MEMORY_MB", 0) for one in freed)
    result.free_disk_mb = state.free_disk_mb + 1024 * sum(one.get("DISK_GB", 0) for one in freed)
    result.vcpus_used = state.vcpus_used - sum(one.get("VCPU", 0) + one.get("PCPU", 0) for one in freed)
    result.num_instances = max(0, state.num_instances - len(freed))
    result.instances = {uuid: one for uuid, one in state.instances.items() if uuid not in victims}
    return result
