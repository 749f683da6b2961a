"""Keepers of the live driver: they hold plans, pools and machines to what the engine wants. Touch pools, processes."""
