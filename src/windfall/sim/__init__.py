"""The world that the simulated driver acts on: hosts, clouds, arrivals, failures. Touches files to read traces only."""
