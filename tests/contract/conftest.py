"""The stores that a test of the contract runs on, one after the other: memory, SQLite and PostgreSQL."""

from itertools import count

import pytest

from tests.support.server import postgres
from tests.support.server.stores import MemoryKit, PostgresKit, SqliteKit

_names = count(1)


@pytest.fixture(scope="session")
def server():
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kit(request, tmp_path):
    if request.param == "memory":
        kit = MemoryKit()
    elif request.param == "sqlite":
        kit = SqliteKit(tmp_path / "state")
    else:
        url = request.getfixturevalue("server")
        kit = PostgresKit(postgres.new_database(url, f"test_{next(_names)}"))
    yield kit
    kit.close()


@pytest.fixture
def store(kit):
    return kit.store
