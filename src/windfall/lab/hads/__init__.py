"""HADS's experiments, run again. Touches the folder `--out`."""
