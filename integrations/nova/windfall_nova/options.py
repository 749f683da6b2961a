"""The group [windfall] of nova.conf, and the rules of policy. Touches Nova's configuration."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from windfall_nova.words import SOURCES

GROUP = cfg.OptGroup("windfall", title="Preemptible servers")
OPTIONS = [
    cfg.BoolOpt("enabled", default=True, help="Evict preemptible servers for normal requests that find no room."),
    cfg.StrOpt(
        "cost",
        default="period",
        help="What an eviction costs: period, count, revenue, work, or an entry point of windfall_nova.costs.",
    ),
    cfg.DictOpt(
        "weighers",
        default={"cheapest": "1.0"},
        help="Multipliers of weighers among hosts on which something must be evicted: cheapest, overcommit, pack, "
        "period, revenue, spread, and nova (the sum of Nova's own).",
    ),
    cfg.FloatOpt(
        "grace",
        default=30.0,
        min=0.0,
        max=1200.0,
        help="Seconds that a victim has to shut down after it was told, in its metadata and by ACPI. 0: deleted at "
        "once. The request waits meanwhile, so keep it below [DEFAULT] long_rpc_timeout.",
    ),
    cfg.FloatOpt(
        "gone_timeout",
        default=60.0,
        min=1.0,
        max=1200.0,
        help="Seconds to wait, after the grace, for a victim to be gone; then the claim is taken back.",
    ),
    cfg.IntOpt(
        "attempts",
        default=3,
        min=1,
        max=20,
        help="How often to choose again for one request, after another one was faster or a victim did not go.",
    ),
    cfg.FloatOpt(
        "poll_interval", default=0.25, min=0.01, max=60.0, help="Seconds between two looks whether a victim is gone."
    ),
    cfg.IntOpt(
        "refresh_interval",
        default=60,
        min=1,
        help="Seconds between two looks at all hosts and servers, so that a request finds them known.",
    ),
]
RULES = [
    policy.RuleDefault(
        f"windfall:preemptible:{source}", "@", description=f"Servers may be made preemptible, or not, by their {source}"
    )
    for source in SOURCES
]


def register(conf: Any) -> None:
    """Make [windfall] known to Nova's configuration; more than once does no harm."""
    conf.register_group(GROUP)
    conf.register_opts(OPTIONS, group=GROUP)


def list_options() -> list[tuple[str, list[cfg.Opt]]]:
    """For oslo-config-generator."""
    return [(GROUP.name, OPTIONS)]
