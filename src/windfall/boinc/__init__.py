"""Volunteers: the standard BOINC client as a host of the pool `boinc`. Touches the front's folder of the state.

The server mounts the front (`front.py`) on the path of its own; it turns a client's messages into the events that a
worker's exchange becomes, and words the engine's answers. It decides nothing.
"""
