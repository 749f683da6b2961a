"""The kind `openstack`: workers on normal or preemptible servers of OpenStack Nova, rented by the plans of jobs.

Touches the compute API of one cloud, through openstacksdk, and one folder. Called by the keeper of machines.
"""

from windfall.pools.openstack.kind import KIND

__all__ = ["KIND"]
