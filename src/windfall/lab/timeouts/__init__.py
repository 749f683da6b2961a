"""The Timeouts paper's figures, run again. Touches traces and the folder `--out`."""
