"""What the engine knows: jobs, hosts and pools, rented machines, and how they are saved. Nothing here decides.

Only `apply` functions change it. Snapshots are written and read here; invariants.py says what must always hold.
"""
