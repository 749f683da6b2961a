"""The engine: events in, records and actions out. Pure: no clock, no I/O, no randomness but a seeded generator in the state."""
