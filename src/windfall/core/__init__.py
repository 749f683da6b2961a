"""The engine: events in, records and actions out. Pure: no clock, no I/O, no randomness of its own."""
