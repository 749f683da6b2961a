"""Pools rent machines and start pull clients on them. They carry decisions out; they take none.

May touch: the outside world of one provider. Must not: the store, other pools, the clock of the engine.
Contract of every pool: `contract.py`, held to by tests/contract/test_pool.py.
"""
