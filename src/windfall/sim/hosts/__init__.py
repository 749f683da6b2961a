"""Simulated hosts, and where they come from: arrivals, pools asked for workers, sites of owned hosts. Touches nothing.

Called by `sim.world`.
"""
