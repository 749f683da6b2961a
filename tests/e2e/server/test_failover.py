"""The database below a server fails over to its synchronous standby; `make failovers` has 20 of them.

`make double-faults` has more of those in which the server fails, too.
"""

from __future__ import annotations

import pytest

from tests.e2e.server import double_faults, failovers
from tests.support.server import postgres

pytestmark = pytest.mark.slow


def test_nothing_is_lost_when_the_database_fails_over_and_its_old_primary_comes_back(tmp_path):
    postgres.require()
    counts = failovers.campaign(tmp_path, 1, seed=1).counts
    assert counts["primary killed"] == 1 and counts["results"] > 0


def test_nothing_is_lost_when_the_server_is_stopped_while_its_database_fails_over(tmp_path):
    postgres.require()
    counts = double_faults.campaign(tmp_path, 1, seed=1, faults=("server stopped",)).counts
    assert counts["server stopped"] == 1 and counts["results"] > 0
    assert counts["results lost"] == counts["results twice"] == counts["attempts lost"] == 0
