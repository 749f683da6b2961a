"""Kind `kubernetes`: workers as Jobs of a cluster, a pod a worker. Touches the API server and one folder.

`settings`, `manifest`, `answers` and `verdict` are pure; `api` calls the API server, `mirror` watches it, `pool` is the
provider, `doctor` examines it, and `pod_main` is what runs in a pod.
"""

from windfall.pools.contract import Pool
from windfall.pools.kinds import WORKERS, Kind, Place, PoolConfig
from windfall.pools.kubernetes.settings import KubernetesSettings, check


def _open(pool: PoolConfig, place: Place) -> Pool:
    from windfall.pools.kubernetes.pool import opened

    return opened(pool, place)


KIND = Kind(gives=WORKERS, settings=KubernetesSettings, open=_open, check=check, limit=10, backlog=5)

__all__ = ["KIND"]
