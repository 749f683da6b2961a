"""Benchmarks. Each also measures, in the same run, a floor (the least possible work) or a peer (another program)."""
