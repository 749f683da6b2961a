"""A server with a front for BOINC clients, for tests of its protocol."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.support.pools.fake_volunteer import FakeVolunteer
from tests.support.server.cluster import Cluster

ROUND = "import sys; print(round(float(open(sys.argv[1] + '/stdout').read()), 3))"
"""A validator: numbers agree if they round to the same."""


class World:
    """A server with a front, and what the tests ask of it."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.cluster = Cluster(directory, lease_s=20.0)
        self.cluster.start_server()
        self.url = f"{self.cluster.url}/grid/"
        self.client = self.cluster.client()
        front = {"name": "boinc", "kind": "boinc", "limit": 1000, "url": self.url, "ask_again": 1, **settings}
        self.client.add_pools([{**front, "validators": {"round": shlex.join([sys.executable, "-c", ROUND])}}])
        self.made = 0

    def volunteer(self, name: str, **agreed: bool) -> FakeVolunteer:
        self.made += 1
        key = self.client.tell_front("boinc", "add-account", name=name, **agreed)["key"]
        return FakeVolunteer(self.url, key, f"{self.made:032x}")

    def submit(self, count: int, **settings: object):
        settings = {"quorum": 1, "estimate": "1h", **settings}
        return self.client.submit(["echo", "task", "{}"], range(count), **settings)

    def credit(self, name: str) -> float:
        """Of the last account of this name."""
        rows = self.client.tell_front("boinc", "show")["accounts"]
        return float(next(row["credit"] for row in reversed(rows) if row["name"] == name))

    @property
    def log(self) -> str:
        return (self.directory / "server.log").read_text()
