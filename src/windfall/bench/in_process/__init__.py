"""Benchmarks in one process, without a network: the engine, the simulator, planners. Touches the clock."""
