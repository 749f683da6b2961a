"""When to give a silent job up (Timeouts): latencies in, a law and its best timeout out. Pure; numpy and scipy only."""
