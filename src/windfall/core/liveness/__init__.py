"""Silence: leases of hosts, learned timeouts of attempts, and how far a host is trusted. Pure."""
