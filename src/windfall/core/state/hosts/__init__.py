"""Hosts and pools: what they said, how they behaved, and what attempts have taught. Nothing here decides."""
