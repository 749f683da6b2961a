"""The resources of this host: GPUs that are found, others that are told, and how a task sees its own. Runs two tools.

A GPU is found by `CUDA_VISIBLE_DEVICES` or `ROCR_VISIBLE_DEVICES` (a batch system has given the worker these), else by
`nvidia-smi` or `rocm-smi`. One that another worker on this host has is left to it: a lock says so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Units = Sequence[tuple[str, int, int]]
    """(resource, index, thousandths) that a task gets; the index -1 is counted for the whole server."""

GPUS = "gpus"
NVIDIA, AMD = "nvidia", "amd"
_VISIBLE = {NVIDIA: ("CUDA_VISIBLE_DEVICES",), AMD: ("ROCR_VISIBLE_DEVICES",)}
_TOLD = {NVIDIA: ("CUDA_VISIBLE_DEVICES",), AMD: ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}
"""What a worker reads, and what a task gets. HIP counts among what ROCR lets it see, so there it is 0, 1, ..."""
_TOOL_S = 20.0
_ROCM = "/opt/rocm/bin"
WHOLE = 1000
"""Thousandths of a unit, as the server counts them."""


class Gpu(NamedTuple):
    """One card: whose it is, and what its driver calls it (an index or a UUID)."""

    vendor: str
    id: str


def found_gpus(environment: dict[str, str], run: Callable[[list[str]], str | None]) -> list[Gpu]:
    """The cards of this host, or those that the worker was given. `run` gives what a tool prints, or None."""
    found = []
    for vendor, list_all in ((NVIDIA, _nvidia), (AMD, _amd)):
        given = next((environment[name] for name in _VISIBLE[vendor] if name in environment), None)
        ids = list_all(run) if given is None else _visible(given)
        found += [Gpu(vendor, id_) for id_ in ids]
    return found


def _visible(text: str) -> list[str]:
    """What a variable lists; as for the driver, nothing behind a -1 counts."""
    ids: list[str] = []
    for word in (word.strip() for word in text.split(",")):
        if not word or word == "-1" or word.lower() in ("none", "nodevfiles"):
            break
        ids.append(word)
    return ids


def _nvidia(run: Callable[[list[str]], str | None]) -> list[str]:
    text = run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"])
    return [line.strip() for line in (text or "").splitlines() if line.strip().isdigit()]


def _amd(run: Callable[[list[str]], str | None]) -> list[str]:
    # A card that sleeps or is partitioned makes the tool print warnings before its JSON.
    _, brace, rest = (run(["rocm-smi", "--showid", "--json"]) or "").partition("{")
    try:
        cards, _ = json.JSONDecoder().raw_decode(brace + rest)
    except ValueError:
        return []
    return [str(place) for place in range(sum(re.fullmatch(r"card\d+", card) is not None for card in cards))]


def run_tool(argv: list[str]) -> str | None:
    """What a tool prints; None if it is not here, fails (no card), or hangs (a card that is broken)."""
    # ROCm's packages put their tools into a folder that is in no PATH by default.
    found = shutil.which(argv[0]) or shutil.which(argv[0], path=_ROCM)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, *argv[1:]], capture_output=True, timeout=_TOOL_S, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


class Devices:
    """What this worker has: `counts` is its ad, `environment` what a task is told of its share."""

    def __init__(self, told: dict[str, int], gpus: list[Gpu]) -> None:
        if GPUS in told:
            # Said by hand: that many of those that are there; cards that were not found get their numbers.
            wanted = told[GPUS]
            vendor = gpus[0].vendor if gpus else NVIDIA
            gpus = gpus[:wanted] + [Gpu(vendor, str(index)) for index in range(len(gpus), wanted)]
        self._gpus = gpus
        counts = {**told, GPUS: len(gpus)}
        self.counts = {name: count for name, count in counts.items() if count}

    @property
    def vendors(self) -> list[str]:
        return sorted({gpu.vendor for gpu in self._gpus})

    def nvidia_ids(self, units: Units) -> list[str]:
        """The NVIDIA cards among these units, as their driver calls them."""
        return [gpu.id for gpu in self._cards(units) if gpu.vendor == NVIDIA]

    def has_amd(self, units: Units) -> bool:
        """Whether an AMD card is among these units."""
        return any(gpu.vendor == AMD for gpu in self._cards(units))

    def _cards(self, units: Units) -> list[Gpu]:
        return [self._gpus[index] for name, index, _ in units if name == GPUS and 0 <= index < len(self._gpus)]

    def environment(self, units: Units) -> dict[str, str]:
        """Variables of a task that has these units: all of them as JSON, its GPUs as their drivers want them named."""
        shares: dict[str, dict[str, Any]] = {}
        for name, index, amount in units:
            share = shares.setdefault(name, {"amount": 0.0})
            share["amount"] = round(share["amount"] + amount / WHOLE, 3)
            if index >= 0:
                share.setdefault("units", []).append(index)
        made = {"WINDFALL_RESOURCES": json.dumps(shares, sort_keys=True)}
        if GPUS in shares:
            mine = [self._gpus[index] for index in shares[GPUS].get("units", ()) if index < len(self._gpus)]
            for vendor in {gpu.vendor for gpu in self._gpus}:
                ids = [gpu.id for gpu in mine if gpu.vendor == vendor]
                for name in _TOLD[vendor]:
                    hip = name == "HIP_VISIBLE_DEVICES"
                    made[name] = ",".join(map(str, range(len(ids)))) if hip else ",".join(ids)
            made["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # nvidia-smi numbers cards in this order
        return made


def find(told: dict[str, int], claim: Callable[[str], bool]) -> Devices:
    """The resources of this host. `claim(name)`: whether this worker gets a card, or another has it."""
    gpus = [] if told.get(GPUS) == 0 else found_gpus(dict(os.environ), run_tool)
    return Devices(told, [gpu for gpu in gpus if claim(f"{gpu.vendor}-{gpu.id}")])


def conflict(units: Units, others: Iterable[Units]) -> bool:
    """Whether these units and those of others that run are more than there is of a unit."""
    used: dict[tuple[str, int], int] = {}
    for each in (units, *others):
        for name, index, amount in each:
            used[name, index] = used.get((name, index), 0) + amount
    return any(index >= 0 and used[name, index] > WHOLE for name, index, _ in units)
