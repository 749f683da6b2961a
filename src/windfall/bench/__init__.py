"""Benchmarks: each prints its own floor or peer, measured in the same run."""
