"""What scenario files may say: their keys, random laws, traces and shapes of workflows. Touches the files named there.

Called by `sim.scenario`, which reads and checks whole scenarios, and by `sim.clouds`.
"""
