"""A simulated cloud: its offers, their markets, and the machines rented from them. Touches nothing.

Called by `sim.world`; `sim.scenario` reads the clouds of a scenario file with `sim.clouds.cloud`.
"""
