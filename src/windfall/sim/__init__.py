"""The world that the simulated driver acts on: hosts, clouds, arrivals, failures, traces. Touches files only to read traces."""
