"""Copy, back up, check and repair a state, with or without a server on it. Touches the states that are named.

Called by `windfall state`. A check replays the log with the engine; nothing here decides.
"""
