"""Pools, machines, fleets and prices over HTTP. Hands everything on; touches pools through the server's PoolAdmin."""
