"""What the engine learns of a pool's latencies while it runs: the counts, and the timeout they advise. Pure."""
