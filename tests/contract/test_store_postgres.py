"""What can happen to a store in PostgreSQL alone: the connection breaks, the database is not there."""

import threading

import pytest

from tests.support.server import postgres
from tests.support.server.stores import PostgresKit, append
from windfall.errors import BadInput
from windfall.store import open_store
from windfall.store.contract import Batch, OutputRow, Record, StoreError, StoreFenced
from windfall.store.pacing import SLICE_BYTES

END_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
)


@pytest.fixture(scope="module")
def server():
    with postgres.server() as url:
        yield url


def batch(seq):
    return Batch(records=[Record(seq, 0.0, None, "event", b"r")], outputs=[OutputRow(1, seq, 1, b"o")])


def test_a_broken_connection_is_said_and_the_same_batch_is_taken_afterwards(server):
    kit = PostgresKit(postgres.new_database(server, "broken"))
    kit.store.append(batch(1))
    assert kit.store.last_seq() == 1
    kit.execute(END_CONNECTIONS, "broken")
    with pytest.raises(StoreError) as error:
        kit.store.append(batch(2))
    assert error.value.retryable
    kit.store.append(batch(2))
    kit.store.append(batch(2))
    assert kit.store.last_seq() == 2, "the reader's connection was cut, too: it makes another one"
    assert len(kit.store.outputs(1)) == 2
    with pytest.raises(BadInput, match="in use"):
        open_store(kit.where)
    kit.close()


def test_reading_goes_on_after_a_database_was_away_for_several_attempts(server):
    """A standby died of the second attempt: the broken connection was to be removed twice."""
    kit = PostgresKit(postgres.new_database(server, "away"))
    assert kit.store.last_seq() == 0
    url, kit.store._url = kit.store._url, "postgresql://windfall@127.0.0.1:1/away"
    kit.execute(END_CONNECTIONS, "away")
    for _ in range(3):
        with pytest.raises(StoreError) as error:
            kit.store.last_seq()
        assert error.value.retryable
    kit.store._url = url
    assert kit.store.last_seq() == 0
    kit.close()


def test_another_server_that_took_the_database_meanwhile_keeps_it(server):
    kit = PostgresKit(postgres.new_database(server, "taken"))
    kit.execute(END_CONNECTIONS, "taken")
    with pytest.raises(StoreError):
        kit.store.append(batch(1))
    other = open_store(kit.where)
    with pytest.raises(StoreFenced, match="taken this state over"):
        kit.store.append(batch(1))
    other.append(batch(1))
    other.close()
    with pytest.raises(StoreFenced, match="epoch"):
        kit.store.append(batch(1))
    kit.close()


def test_a_database_that_cannot_be_reached_is_refused_in_one_line(server, tmp_path):
    with pytest.raises(BadInput, match='database "nosuch" does not exist'):
        open_store(server.format(name="nosuch"))
    with pytest.raises(BadInput, match="cannot do it now"):
        open_store(f"postgresql://windfall@/x?host={tmp_path}")


def test_a_lock_that_is_let_go_in_a_moment_is_waited_for(server):
    kit = PostgresKit(postgres.new_database(server, "handover"))
    letting_go = threading.Timer(0.3, kit.store.close)
    letting_go.start()
    after = open_store(kit.where)
    after.append(batch(1))
    letting_go.join()
    assert after.last_seq() == 1
    after.close()


def test_a_session_of_ours_that_lives_on_in_the_database_is_ended_and_replaced(server):
    """As after a partition: our end of the connection broke, the database has not noticed and keeps its lock."""
    kit = PostgresKit(postgres.new_database(server, "halfopen"))
    kit.store.append(batch(1))
    lost = kit.store._writer
    kit.store._writer = None
    kit.store.append(batch(2))
    assert kit.store.last_seq() == 2
    lost.close()
    kit.close()


def test_a_server_stopped_in_the_middle_of_a_transaction_does_not_keep_another_from_taking_over(server):
    kit = PostgresKit(postgres.new_database(server, "stopped"))
    kit.store.append(batch(1))
    kit.store._writer.execute("BEGIN")
    kit.store._writer.execute("SELECT value FROM windfall.meta WHERE key = 'epoch' FOR SHARE")
    kit.store._writer.execute("INSERT INTO windfall.jobs VALUES (7, 'half')")
    other = open_store(kit.where, take_over=True)
    assert other.job_spec(7) is None
    other.append(batch(2))
    other.close()
    kit.close()


def test_a_snapshot_of_a_version_before_parts_is_read_and_the_parts_of_old_ones_are_removed(server):
    kit = PostgresKit(postgres.new_database(server, "parts"))
    append(kit.store, 1, 2, 3, 4)
    kit.store.save_snapshot(1, b"before")
    kit.store.filled(lambda writer: _as_before_parts(writer))
    assert kit.reopen().load().snapshot == (1, b"before")
    for seq in (2, 3, 4):
        kit.store.save_snapshot(seq, b"state %d" % seq)
    asked = "SELECT seq FROM windfall.snapshot_parts ORDER BY 1"
    rows = kit.store.filled(lambda writer: writer.execute(asked).fetchall())
    assert rows == [(3,), (4,)]
    kit.close()


def _as_before_parts(writer):
    writer.execute("UPDATE windfall.snapshots SET data = 'before'")
    writer.execute("DROP TABLE windfall.snapshot_parts")
    writer.execute("UPDATE windfall.meta SET value = '2' WHERE key = 'schema'")


def test_a_snapshot_without_its_parts_is_not_said_to_be_there(server):
    """As if the database that took the parts were another one than that which takes the head."""
    kit = PostgresKit(postgres.new_database(server, "lost"))
    append(kit.store, 1)

    class Losing:
        def wait(self, _):
            kit.store.filled(lambda writer: writer.execute("DELETE FROM windfall.snapshot_parts"))

    with pytest.raises(StoreError, match="parts of snapshot 1 are missing"):
        kit.store.save_snapshot(1, bytes(3 * SLICE_BYTES), Losing())
    assert kit.reopen().load().snapshot is None
    kit.close()
