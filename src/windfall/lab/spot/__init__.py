"""Spot planners on recorded availability. Touches traces and the folder `--out`."""
