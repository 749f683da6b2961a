"""A cost function of another package, found by its entry point and named in nova.conf."""

from __future__ import annotations

import sys

import pytest

LARGE = {"vcpu": 8, "ram_mb": 16000}
PACKAGE = '''
import numpy as np
from windfall.placement import Count


class Oldest(Count, frozen=True):
    """A server costs less the longer it has run: the oldest goes first."""

    name: str = "oldest"
    unit: str = "h until a year"
    scale: int = 3_600_000_000

    def __call__(self, batch, now_us):
        return np.maximum(0, 8_760 * self.scale - (now_us - batch.start_us))

    def falls_at(self, batch, now_us):
        return np.full(batch.start_us.shape, now_us + 1, dtype=np.int64)
'''


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """An installed package: a module and what says which entry points it has."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "our_costs.py").write_text(PACKAGE)
    about = folder / "our_costs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: our-costs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[windfall_nova.costs]\noldest = our_costs:Oldest\n")
    sys.path.insert(0, str(folder))
    yield {("windfall", "cost"): "oldest"}
    sys.path.remove(str(folder))


def test_the_cost_of_another_package_chooses_the_victim(cloud, said):
    cloud.hosts("host-A", "host-B")
    old = cloud.boot("old", LARGE, preemptible=True, host="host-A")
    young = cloud.boot("young", LARGE, preemptible=True, host="host-B")
    cloud.age(old["id"], 3600 * 50 + 3000)  # dearer than the other by the period, the cost that Nova gets by default
    cloud.age(young["id"], 3600 * 5 + 60)
    cloud.boot("n", LARGE)
    assert cloud.names() == {"young": "host-B", "n": "host-A"}
    assert any("h until a year" in line for line in said())
