"""What the server answers about sites, their hosts and the requests to them. Pure."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SiteRow(TypedDict):
    """`preemptible`, `normal` and `leaving` are instances that are there; `waiting` are requests."""

    site: str
    hosts_live: int
    instance: dict[str, float]
    slots: int
    limit: int
    grace_s: float
    cost: str
    idle_exit_s: float
    price_usd: float
    weighers: dict[str, float]
    only_tags: list[str]
    market: bool
    reserve_usd: float
    bid_usd: float
    consolidate_s: float | None
    power_usd: float
    review_s: float
    cycle_s: float
    market_price_usd: float | None
    preemptible: int
    normal: int
    leaving: int
    waiting: int
    room: int


class Sites(TypedDict):
    sites: list[SiteRow]


class InstanceRow(TypedDict):
    """What runs or ran on a host of a site: a worker of jobs, or the command of a request."""

    name: str
    site: str
    preemptible: bool
    state: str
    host: str | None
    resources: dict[str, float]
    asked_s: float
    placed_s: float | None
    started_s: float | None
    ended_s: float | None
    cause: str | None
    exit_code: int | None
    text: str
    evicted_by: NotRequired[str | None]
    """Of a worker; what follows is of a request."""
    command: NotRequired[list[str]]
    for_s: NotRequired[float | None]
    queue: NotRequired[bool]
    bid_usd: NotRequired[float | None]
    tags: NotRequired[list[str]]
    victims: NotRequired[list[str]]
    cost: NotRequired[float | None]
    cost_unit: NotRequired[str]
    grace_s: NotRequired[float]
    why: NotRequired[list[str]]
    rss_bytes: NotRequired[int | None]


class Requests(TypedDict):
    """The newest of each site first."""

    requests: list[InstanceRow]


class SiteHost(TypedDict):
    host: str
    state: str
    capacity: dict[str, float]
    used: dict[str, float]
    tags: list[str]
    seen_s_ago: float
    left: str
    instances: list[InstanceRow]


class Note(TypedDict):
    t: float
    text: str


class OneSite(SiteRow):
    hosts: list[SiteHost]
    notes: list[Note]
    evictions_per_h: float
