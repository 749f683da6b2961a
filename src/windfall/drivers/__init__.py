"""Drivers of the one engine: realtime (asyncio) and simulated (virtual time). They hold the clock and carry out."""
