"""Pools rent machines and start pull clients on them. They carry decisions out; they take none."""
