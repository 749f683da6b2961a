"""Placement of normal and preemptible instances on the hosts one owns (OPIE). Pure: requests and hosts in, a host and its victims out."""
