"""What placement talks about: hosts, instances, requests, decisions. Pure values.

Amounts are plain numbers here. Inside `Site` they are integers of 1/UNITS, so that sums are exact after any number of
changes: 0.3 - 0.1 - 0.1 still has room for 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

UNITS = 1_000_000
LARGEST_AMOUNT = 1e12  # of any resource on one host; times UNITS it still fits into 64 bits with room to add up


class Instance(Struct, frozen=True):
    """One running instance. `run_s`: for how long by now. `checkpoint_s`: the run time that its last checkpoint saved.

    `price_usd_per_h` is what its user pays, `bid_usd_per_h` the most that the user would pay (the market reads it).
    """

    id: str
    preemptible: bool
    run_s: float
    resources: Mapping[str, float]
    price_usd_per_h: float | None = None
    bid_usd_per_h: float | None = None
    checkpoint_s: float = 0.0
    group: str = ""


class Host(Struct, frozen=True):
    """One physical host and what runs on it. `attributes` are free, for expressions to read."""

    name: str
    capacity: Mapping[str, float]
    instances: tuple[Instance, ...] = ()
    tags: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)


class Request(Struct, frozen=True):
    """A request for one instance.

    A host must carry all of `tags`, belong to one of `aggregates` (if any are named), run an instance of every
    `affinity` and of no `anti_affinity` (each an instance's id or group), and satisfy `expression`.
    """

    preemptible: bool
    resources: Mapping[str, float]
    tags: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    expression: str = ""


class Decision(Struct, frozen=True):
    """The host of a request and its victims. `host` is None if the request fits nowhere, even after evictions.

    `cost` is in the units of the cost function (see `costs`). `proved`: no cheaper set exists on that host; false only
    for a cost that is not additive and whose search ran into its limit.
    """

    host: str | None
    victims: tuple[str, ...] = ()
    cost: int = 0
    proved: bool = True


def to_units(amount: float) -> int:
    return round(amount * UNITS)


def from_units(units: int) -> float:
    """The amount as a person wrote it: 4, not 4.0."""
    whole, part = divmod(int(units), UNITS)
    return whole if part == 0 else int(units) / UNITS
