"""Placement of normal and preemptible instances on the hosts one owns (OPIE).

Pure: requests and hosts in, a host and its victims out. Start with `Site`, `Scheduler`, `Request`.
"""

from windfall.placement.evictions.costs import GROUPS, Cost, Count, Period, Revenue, SetCost, Work
from windfall.placement.model import Decision, Host, Instance, Request
from windfall.placement.scheduler import Scheduler
from windfall.placement.site import Site

__all__ = [
    "GROUPS",
    "Cost",
    "Count",
    "Decision",
    "Host",
    "Instance",
    "Period",
    "Request",
    "Revenue",
    "Scheduler",
    "SetCost",
    "Site",
    "Work",
]
