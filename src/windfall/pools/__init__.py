"""Pools start workers and rent machines. They carry out decisions and take none; the drivers call them.

May touch: the outside world of one provider. Must not: the store, other pools, the clock of the engine.
Contract of every pool: `contract.py`, held to by tests/contract/test_pool.py.
"""
