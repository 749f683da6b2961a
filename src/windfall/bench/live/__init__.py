"""Benchmarks of the live system: server and workers as processes. Touches processes."""
