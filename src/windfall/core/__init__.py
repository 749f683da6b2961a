"""The engine: `decide` and `apply`, their events, and what drivers are asked to do. Pure: no clock, no I/O.

The server and the simulator drive it; every room below holds one subject. Entry point: engine.py.
"""
