"""The world that the simulated driver acts on: hosts, clouds, arrivals, failures. Reads scenario and trace files.

Called by `windfall simulate`, `windfall plan` and the laboratories of GridBot and HADS. `scenario` reads a
file, `world` acts it out, `run` makes one run of it; `studies/` makes many.
"""
