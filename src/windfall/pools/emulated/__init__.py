"""Kind `emulated`: a cloud on this host (`cloud`), and what a pools.toml says of it (`config`). Touches processes."""

from windfall.pools.emulated.cloud import KIND

__all__ = ["KIND"]
