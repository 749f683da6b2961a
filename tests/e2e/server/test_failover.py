"""The database below a server fails over to its synchronous standby; `make failovers` has 20 of them."""

from __future__ import annotations

import pytest

from tests.e2e.server.failovers import campaign
from tests.support.server import postgres

pytestmark = pytest.mark.slow


def test_nothing_is_lost_when_the_database_fails_over_and_its_old_primary_comes_back(tmp_path):
    postgres.require()
    report = campaign(tmp_path, 1)
    assert report["results"] > 0
