"""The default planner of fleets: the loop of SCS, until there is one that does better. Pure."""

from windfall.planning.fleet.scs import plan

__all__ = ["plan"]
