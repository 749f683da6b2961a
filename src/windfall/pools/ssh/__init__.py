"""Kind `ssh`: `pool` logs in to hosts and out again, `remote` is what it runs there. Touches ssh processes."""

from windfall.pools.ssh.pool import KIND

__all__ = ["KIND"]
