"""Made-up sites for the placement lab and bench: the paper's blades, empty or filled. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windfall.lab.opie.tables import CAPACITY, SIZES
from windfall.placement import Host, Instance, Site


def empty_site(count: int) -> Site:
    return Site([Host(f"host-{h:06d}", CAPACITY) for h in range(count)])


def saturated_site(
    count: int, rng: np.random.Generator, sizes: Mapping[str, Mapping[str, float]] = SIZES, full: float = 1.0
) -> Site:
    """Every host filled with preemptible instances of random sizes that have run for up to ten hours.

    `full` < 1 leaves the rest of every host's vCPUs free.
    """
    names = sorted(sizes)
    hosts = []
    for h in range(count):
        left = int(CAPACITY["vcpu"] * full)
        instances: list[Instance] = []
        while left > 0:
            size = sizes[names[int(rng.integers(len(names)))]]
            if size["vcpu"] <= left:
                left -= int(size["vcpu"])
                run_s = float(rng.integers(0, 36_000))
                instances.append(Instance(f"p{h}-{len(instances)}", True, run_s, size))
        hosts.append(Host(f"host-{h:06d}", CAPACITY, tuple(instances)))
    return Site(hosts)
