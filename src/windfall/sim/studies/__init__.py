"""Questions answered by many simulated runs: sweeps, forecasts and their calibration, replays of live logs.

Called by `windfall simulate`, `windfall plan` and the laboratories. Touches the executor that it is given; a replay
reads the state of a live server.
"""
