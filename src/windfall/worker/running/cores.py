"""Cores of this host for tasks that want to keep theirs (`--pin`): one for each slot, NUMA node by node. Reads /sys."""

from __future__ import annotations

import contextlib
import os
import re
from glob import glob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODES = "/sys/devices/system/node/node*/cpulist"


def read_list(text: str) -> list[int]:
    """The numbers of a list such as `0-3,8`."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def nodes() -> list[list[int]]:
    """The cores of each NUMA node that this process may use; one node where the kernel names none."""
    mine = sorted(os.sched_getaffinity(0))
    found: list[list[int]] = []
    for path in sorted(glob(_NODES), key=lambda path: [int(number) for number in re.findall(r"\d+", path)]):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            listed = set(read_list(file.read()))
            found.append([core for core in mine if core in listed])
    found = [node for node in found if node]
    left = [core for core in mine if not any(core in node for node in found)]
    return [*found, left] if left else found


class Cores:
    """The core of each slot. With more slots than cores, slots share cores: the worker was asked to oversubscribe."""

    def __init__(self, slots: int, by_node: Sequence[Sequence[int]]) -> None:
        in_order = [(core, node) for node, cores in enumerate(by_node) for core in cores]
        self.all = sorted(core for core, _ in in_order)
        self._core = [in_order[slot % len(in_order)][0] for slot in range(slots)]
        self._node = [in_order[slot % len(in_order)][1] for slot in range(slots)]

    def of(self, slots: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({self._core[slot] for slot in slots}))

    def together(self, free: Sequence[int], width: int) -> list[int]:
        """`width` of the free slots, of one NUMA node if one has as many: of the one with the fewest that do."""
        by_node: dict[int, list[int]] = {}
        for slot in free:
            by_node.setdefault(self._node[slot], []).append(slot)
        fitting = [slots for slots in by_node.values() if len(slots) >= width]
        if fitting:
            return min(fitting, key=len)[:width]
        # Whole nodes first, so that a task lies on as few of them as can be.
        spread = [slot for slots in sorted(by_node.values(), key=len, reverse=True) for slot in slots]
        return spread[:width]
