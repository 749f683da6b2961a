"""Windfall's own planner of fleets. Pure."""

from windfall.planning.fleet.scs import plan

__all__ = ["plan"]
