"""OPIE's experiments, run again. Touches the clock, traces and the folder `--out`."""
