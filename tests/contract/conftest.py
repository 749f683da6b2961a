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


def made(kind, request, tmp_path):
    """The kit of one kind of store."""
    if kind == "memory":
        return MemoryKit()
    if kind == "sqlite":
        return SqliteKit(tmp_path / "state")
    return PostgresKit(postgres.new_database(request.getfixturevalue("server"), f"test_{next(_names)}"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kit(request, tmp_path):
    kit = made(request.param, request, tmp_path)
    yield kit
    kit.close()


@pytest.fixture
def store(kit):
    return kit.store
