"""Kind `kubernetes` for the contract suite: a namespace of its own for each test, and one node for all."""

from __future__ import annotations

import atexit
import functools
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.pools import kubernetes
from tests.support.pools.kubelet import Kubelet
from tests.support.pools.pool_worlds import World, kind_of_pool
from windfall.pools.contract import Pool
from windfall.pools.kinds import Place, PoolConfig

_numbers = itertools.count(1)


@functools.cache
def _node() -> Kubelet:
    made = Kubelet(kubernetes.cluster(), "node-of-the-contract", cpu="32")
    atexit.register(made.close)
    return made


@kind_of_pool("kubernetes", marks=(pytest.mark.kubernetes,))
@contextmanager
def world(directory: Path, url: str) -> Iterator[World]:
    kubernetes.skip_unless_here()
    from windfall.pools.kubernetes.pool import KubernetesPool
    from windfall.pools.kubernetes.settings import KubernetesSettings

    cluster, node = kubernetes.cluster(), _node()
    namespace = cluster.namespace(f"contract-{next(_numbers)}")
    settings = KubernetesSettings(
        namespace=namespace,
        kubeconfig=str(cluster.kubeconfig),
        python=sys.executable,
        node_selector={"kubernetes.io/hostname": node.node},
        pod={"hostNetwork": True},
        grace="10s",
    )

    def open_(place: Place, **fields: Any) -> Pool:
        return KubernetesPool(PoolConfig("p", "kubernetes", settings=settings, **fields), place)

    try:
        yield World(open_, directory, url)
    finally:
        cluster.call("DELETE", f"/api/v1/namespaces/{namespace}")
