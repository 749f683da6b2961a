"""Tables 3 to 6 of the OPIE paper as booted servers: Nova evicts whom the paper evicts."""

from __future__ import annotations

import pytest
from windfall_nova.cloud.cloud import Cloud

from windfall.lab.opie.tables import TABLES


@pytest.mark.parametrize("number", TABLES)
def test_the_paper_s_victims_go(cloud: Cloud, number):
    table = TABLES[number]
    cloud.stage(table.hosts)
    before = set(cloud.names())
    server = cloud.boot("new", table.request.resources)
    assert server["OS-EXT-SRV-ATTR:hypervisor_hostname"] == table.host
    assert before - set(cloud.names()) == set(table.victims)
