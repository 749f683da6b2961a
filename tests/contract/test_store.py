"""What every store promises (windfall.store.contract), held by SQLite, PostgreSQL and memory alike."""

import random
import threading

import pytest

from tests.support.server.stores import append, record, seqs
from windfall.errors import WindfallError
from windfall.store.contract import (
    BadValue,
    Batch,
    ChunkHead,
    ChunkRow,
    JobRow,
    OutputRow,
    Record,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from windfall.store.pacing import SLICE_BYTES

# The log


def test_a_new_store_is_empty(store):
    loaded = store.load()
    assert (loaded.snapshot, list(loaded.records), loaded.warnings) == (None, [], [])
    assert store.last_seq() == 0
    assert store.records() == store.chunks(1) == store.outputs(1) == store.tokens() == []
    assert store.job_spec(1) is store.output(1, 1, 1) is store.blob_size("a" * 64) is None


def test_what_was_appended_is_there_when_the_store_is_opened_again(kit):
    kit.store.append(
        Batch(
            records=[record(1), record(2, job=7, data=bytes(range(256)))],
            jobs=[JobRow(7, b"spec")],
            chunks=[ChunkRow(7, 0, 3, 1, "lines", b"\0chunk")],
            outputs=[OutputRow(7, 2, 1, b"out\xff")],
        )
    )
    store = kit.reopen()
    assert list(store.load().records) == [(1, b"record 1"), (2, bytes(range(256)))]
    assert store.records() == [record(1), record(2, job=7, data=bytes(range(256)))]
    assert store.job_spec(7) == b"spec"
    assert (store.chunks(7), store.chunk(7, 0)) == ([ChunkHead(0, 3, 1, "lines")], b"\0chunk")
    assert store.output(7, 2, 1) == b"out\xff"
    assert store.last_seq() == 2


def test_the_very_same_batch_may_be_appended_again_and_is_kept_once(store):
    batch = Batch(
        [record(1, job=3)], [ChunkRow(3, 0, 1, 0, "lines", b"c")], [OutputRow(3, 0, 1, b"o")], [JobRow(3, b"s")]
    )
    store.append(batch)
    store.append(batch)
    store.append(Batch(records=[record(1, job=3), record(2)]))
    assert seqs(store.load()) == [1, 2]
    assert (len(store.chunks(3)), len(store.outputs(3))) == (1, 1)


def test_a_record_with_the_number_of_another_is_refused_and_nothing_of_its_batch_is_kept(store):
    append(store, 1)
    with pytest.raises(WindfallError, match=r"record 1 .* another content"):
        store.append(Batch(records=[record(1, data=b"other"), record(2)], outputs=[OutputRow(1, 1, 1, b"o")]))
    assert store.records() == [record(1)]
    assert store.output(1, 1, 1) is None
    append(store, 2)


def test_a_batch_that_cannot_be_appended_leaves_nothing_behind(store):
    with pytest.raises(Exception, match=r"bytes|NoneType|null"):
        store.append(
            Batch(
                records=[record(1), Record(2, 0.0, None, "x", None)],
                outputs=[OutputRow(1, 1, 1, b"o")],
                jobs=[(1, b"s")],
            )
        )
    assert store.records() == store.outputs(1) == []
    assert store.job_spec(1) is None
    append(store, 1, 2)
    assert seqs(store.load()) == [1, 2]


def test_of_a_forgotten_job_only_records_are_kept(kit):
    rows = [
        Batch(
            [record(seq, job=job)], [ChunkRow(job, 0, 1, 0, "lines", b"c")], [OutputRow(job, 0, 1, b"o")],
            [JobRow(job, b"s")],
        )
        for seq, job in enumerate((7, 8), 1)
    ]  # fmt: skip
    for batch in rows:
        kit.store.append(batch)
    forgetting = Batch([record(3, job=7)], outputs=[OutputRow(7, 1, 1, b"late")], forgotten=[7])
    kit.store.append(forgetting)
    kit.store.append(forgetting)
    for reopened in (False, True):
        store = kit.reopen() if reopened else kit.store
        assert (store.job_spec(7), store.chunks(7), store.outputs(7)) == (None, [], [])
        assert (store.job_spec(8), len(store.chunks(8)), len(store.outputs(8))) == (b"s", 1, 1)
        assert [row.seq for row in store.records(job=7)] == [1, 3]


def test_nothing_is_forgotten_by_a_batch_that_is_refused(store):
    store.append(Batch([record(1, job=7)], outputs=[OutputRow(7, 0, 1, b"o")], jobs=[JobRow(7, b"s")]))
    with pytest.raises(StoreConflict):
        store.append(Batch([record(1, data=b"other")], forgotten=[7]))
    with pytest.raises(BadValue, match="forgotten job"):
        store.append(Batch([record(2)], forgotten=[2**70]))
    assert (store.job_spec(7), store.output(7, 0, 1)) == (b"s", b"o")


# Errors: whether a retry can help


def test_a_conflict_is_no_matter_for_a_retry(store):
    append(store, 1)
    with pytest.raises(StoreConflict) as error:
        append(store, 1, data=b"other")
    assert not error.value.retryable


def test_what_stands_in_the_way_for_a_while_is_worth_a_retry_and_the_same_batch_is_then_taken(kit):
    append(kit.store, 1)
    clear = kit.make_busy()
    with pytest.raises(StoreError) as error:
        append(kit.store, 2)
    assert error.value.retryable
    clear()
    append(kit.store, 2)
    assert seqs(kit.store.load()) == [1, 2]


def test_a_read_only_store_is_said_and_is_no_matter_for_a_retry(kit):
    append(kit.store, 1)
    kit.make_read_only()
    with pytest.raises(StoreReadOnly) as error:
        append(kit.store, 2)
    assert not error.value.retryable
    assert seqs(kit.store.load()) == [1]


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**5000], ids=["63", "64", "-63", "5000 digits"])
@pytest.mark.parametrize(
    "batch",
    [
        lambda n: Batch(records=[record(1, job=n)]),
        lambda n: Batch(records=[Record(n, 0.0, None, "event", b"r")]),
        lambda n: Batch(records=[record(1)], outputs=[OutputRow(1, n, 1, b"o")]),
        lambda n: Batch(outputs=[OutputRow(n, 1, 1, b"o")]),
        lambda n: Batch(outputs=[OutputRow(1, 1, n, b"o")]),
        lambda n: Batch(chunks=[ChunkRow(1, n, 1, 0, "lines", b"c")]),
        lambda n: Batch(chunks=[ChunkRow(1, 0, n, 0, "lines", b"c")]),
        lambda n: Batch(chunks=[ChunkRow(1, 0, 1, n, "lines", b"c")]),
        lambda n: Batch(jobs=[JobRow(n, b"s")]),
    ],
)
def test_an_integer_that_no_column_holds_is_refused_by_its_value(store, batch, number):
    with pytest.raises(BadValue) as error:
        store.append(batch(number))
    assert not error.value.retryable
    assert (str(number) if number < 10**30 else "bits") in error.value.message
    assert store.records() == store.outputs(1) == store.chunks(1) == []
    append(store, 1)


@pytest.mark.parametrize(
    "batch",
    [
        Batch(chunks=[ChunkRow(1, 0, 1, 2**31, "lines", b"c")]),
        Batch(records=[Record(1, float("nan"), None, "event", b"r")]),
        Batch(records=[Record(1, None, None, "event", b"r")]),
        Batch(records=[Record(1, 0.0, None, "event", None)]),
        Batch(records=[Record("1", 0.0, None, "event", b"r")]),
        Batch(outputs=[OutputRow(1, "x", 1, b"o")]),
        Batch(outputs=[OutputRow(1, 1, 1, None)]),
        Batch(jobs=[JobRow(1, "text")]),
    ],
    ids=str,
)
def test_a_value_of_a_wrong_kind_is_a_store_error_that_no_retry_cures(store, batch):
    with pytest.raises(BadValue) as error:
        store.append(batch)
    assert not error.value.retryable
    assert store.records() == store.outputs(1) == store.chunks(1) == []


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize(
    "look",
    [
        lambda store, n: store.job_spec(n),
        lambda store, n: store.chunks(n),
        lambda store, n: store.chunk(1, n),
        lambda store, n: store.output(1, n, 1),
        lambda store, n: store.outputs(n),
        lambda store, n: store.outputs(1, after=(n, 0)),
        lambda store, n: store.outputs(1, limit=n),
        lambda store, n: store.outputs(1, tasks=[1, n]),
        lambda store, n: store.records(after_seq=n),
        lambda store, n: store.records(job=n),
        lambda store, n: store.records_about(n, 0, 1, ["event"], 1),
        lambda store, n: store.records_about(1, 0, n, ["event"], 1),
    ],
)
def test_looking_for_a_number_that_no_column_holds_is_refused_by_its_value(store, look, number):
    with pytest.raises(BadValue, match=str(number)) as error:
        look(store, number)
    assert not error.value.retryable


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_some_store_cannot_hold_is_refused_by_all(store, text):
    with pytest.raises(BadValue, match=r"the name .* cannot be stored"):
        store.add_token("a", "h", "read", text, 1.0)
    assert store.tokens() == []


def test_records_are_found_by_number_job_and_kind(store):
    for seq in range(1, 11):
        append(store, seq, job=seq % 3 or None, kind="even" if seq % 2 == 0 else "odd")
    assert [r.seq for r in store.records(after_seq=4, limit=3)] == [5, 6, 7]
    assert [r.seq for r in store.records(after_seq=4, until_seq=6)] == [5, 6]
    assert [r.seq for r in store.records(until_seq=0)] == []
    assert [r.seq for r in store.records(job=1)] == [1, 4, 7, 10]
    assert [r.seq for r in store.records(kinds=["even"], after_seq=2)] == [4, 6, 8, 10]
    assert [r.seq for r in store.records(job=2, kinds=("odd", "even"), limit=2)] == [2, 5]
    assert store.records(kinds=[]) == []


def test_records_about_a_job_are_found_wherever_they_may_mention_it(store):
    for seq, job in enumerate((1, 2, 0, None, -1, -2, None), 1):
        append(store, seq, job=job, kind="odd" if seq % 2 else "even")
    assert [r.seq for r in store.records_about(1, 0, 9, ["odd", "even"], 9)] == [1, 3, 4, 5, 7]
    assert [r.seq for r in store.records_about(2, 2, 6, ["odd", "even"], 9)] == [3, 4, 6]
    assert [r.seq for r in store.records_about(1, 0, 9, ["odd"], 2)] == [1, 3]
    assert [r.seq for r in store.records(job=1)] == [1]
    assert store.records(job=-1) == store.records(job=0) == []
    assert store.records_about(1, 0, 9, [], 9) == store.records_about(1, 7, 9, ["odd"], 9) == []


def test_many_records_are_read_back_one_after_the_other(store):
    store.append(Batch(records=[record(seq) for seq in range(1, 5001)]))
    assert list(store.load().records) == [(seq, b"record %d" % seq) for seq in range(1, 5001)]


# Snapshots and damage


def test_a_restart_begins_with_the_newest_snapshot_and_the_records_behind_it(kit):
    append(kit.store, *range(1, 8))
    for seq in (2, 4, 6):
        kit.store.save_snapshot(seq, b"state %d" % seq)
    loaded = kit.reopen().load()
    assert loaded.snapshot == (6, b"state 6")
    assert seqs(loaded) == [7]


class Appending:
    """Stands for an event that says when to hurry: records are appended whenever a snapshot waits for it."""

    def __init__(self, store) -> None:
        self.store = store

    def wait(self, _: float) -> bool:
        thread = threading.Thread(target=append, args=(self.store, self.store.last_seq() + 1))
        thread.start()
        thread.join(60)
        return True


def test_commits_go_on_between_the_parts_of_a_snapshot(kit):
    append(kit.store, 1)
    data = random.Random(1).randbytes(3 * SLICE_BYTES + 1)
    kit.store.save_snapshot(1, data, Appending(kit.store))
    kit.store.save_snapshot(1, data[:-1])
    loaded = kit.reopen().load()
    assert loaded.snapshot == (1, data[:-1])
    assert seqs(loaded) == ([2, 3, 4, 5] if kit.keeps else [])


def test_a_snapshot_may_be_saved_again(store):
    append(store, 1)
    store.save_snapshot(1, b"old")
    store.save_snapshot(1, b"new")
    assert store.load().snapshot == (1, b"new")


def test_a_damaged_newest_snapshot_is_passed_over_for_the_older_one(kit):
    if not kit.keeps:
        pytest.skip("memory keeps no snapshot that could be damaged")
    append(kit.store, *range(1, 8))
    kit.store.save_snapshot(3, b"state 3")
    kit.store.save_snapshot(6, b"state 6")
    kit.damage_snapshot(6)
    loaded = kit.reopen().load()
    assert loaded.snapshot == (3, b"state 3")
    assert seqs(loaded) == [4, 5, 6, 7]
    assert len(loaded.warnings) == 1
    assert "6" in loaded.warnings[0]
    assert "damaged" in loaded.warnings[0]


def test_a_damaged_last_record_is_dropped_with_a_warning_and_its_number_is_free_again(kit):
    append(kit.store, 1, 2, 3)
    kit.damage_record(3)
    loaded = kit.reopen().load()
    assert seqs(loaded) == [1, 2]
    assert "last record of the log (3) was damaged" in loaded.warnings[0]
    append(kit.store, 3)
    again = kit.reopen().load()
    assert (seqs(again), again.warnings) == ([1, 2, 3], [])


def test_a_damaged_record_in_the_middle_stops_the_reading_with_its_number_and_a_command(kit):
    append(kit.store, 1, 2, 3)
    kit.damage_record(2)
    loaded = kit.reopen().load()
    with pytest.raises(StoreCorrupt, match="record 2 of the log is damaged") as error:
        list(loaded.records)
    assert "go on from record 1" in error.value.hint


def test_a_missing_record_stops_the_reading(kit):
    append(kit.store, 1, 2, 3)
    kit.drop_record(2)
    with pytest.raises(StoreCorrupt, match="the log lacks record 2") as error:
        list(kit.reopen().load().records)
    assert not error.value.retryable


def test_damage_that_a_snapshot_covers_does_no_harm(kit):
    append(kit.store, 1, 2, 3)
    kit.store.save_snapshot(2, b"state")
    kit.damage_record(1)
    assert seqs(kit.reopen().load()) == [3]


def test_pruning_drops_only_what_both_kept_snapshots_cover(store):
    for seq in range(1, 11):
        append(store, seq, kind="beat" if seq % 2 else "event")
    assert store.prune(10, ["beat"]) == 0
    store.save_snapshot(4, b"a")
    assert store.prune(10, ["beat"]) == 0
    store.save_snapshot(8, b"b")
    assert store.prune(10, ["beat"], 4) == 0
    assert store.prune(3, ["beat"], 2) == 0
    assert store.prune(4, ["beat"], 2) == store.prune(10, ["beat"]) == 1
    assert [r.seq for r in store.records()] == [2, 4, 5, 6, 7, 8, 9, 10]
    assert seqs(store.load()) == [9, 10]
    assert store.prune(3, ["event"]) == 1
    assert store.prune(10, []) == 0


# Jobs, chunks and outputs


def test_a_later_specification_of_a_job_replaces_the_earlier_one(store):
    store.append(Batch(jobs=[JobRow(1, b"a"), JobRow(2, b"b")]))
    store.append(Batch(jobs=[JobRow(1, b"c")]))
    assert (store.job_spec(1), store.job_spec(2)) == (b"c", b"b")


def test_chunks_are_listed_in_the_order_of_their_tasks_without_their_data(store):
    for first in (8192, 0, 16384):
        store.append(Batch(chunks=[ChunkRow(5, first, 8192, 0, "rows", b"%d" % first)]))
    store.append(Batch(chunks=[ChunkRow(6, 0, 1, 2, "calls", b"")]))
    assert [head.first for head in store.chunks(5)] == [0, 8192, 16384]
    assert store.chunk(5, 8192) == b"8192"
    assert store.chunk(6, 0) == b""
    with pytest.raises(KeyError):
        store.chunk(5, 1)


def test_outputs_are_read_in_pages_by_task_and_attempt(store):
    rows = [OutputRow(1, task, attempt, b"%d.%d" % (task, attempt)) for task in (0, 1, 2) for attempt in (1, 2)]
    store.append(Batch(outputs=[*rows[::-1], OutputRow(2, 0, 1, b"other job")]))
    assert store.outputs(1) == rows
    assert store.outputs(1, limit=2) == rows[:2]
    assert store.outputs(1, after=(0, 2), limit=3) == rows[2:5]
    assert store.outputs(1, tasks=[2, 0]) == [rows[0], rows[1], rows[4], rows[5]]
    assert store.outputs(1, tasks=[]) == []
    assert store.output(1, 2, 2) == b"2.2"


def test_thousands_of_tasks_may_be_named_at_once(store):
    store.append(Batch(outputs=[OutputRow(1, task, 1, b"o") for task in range(0, 40_000, 2)]))
    found = store.outputs(1, tasks=range(30_000, 40_000), limit=10_000)
    assert len(found) == 5_000


def test_readers_in_other_threads_see_whole_batches_while_the_writer_writes(store):
    done, seen = threading.Event(), []

    def read():
        while not done.is_set():
            seen.append((len(store.outputs(1, limit=10**6)), store.last_seq()))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for seq in range(1, 41):
        outputs = [OutputRow(1, seq * 10 + k, 1, b"o") for k in range(10)]
        store.append(Batch(records=[record(seq)], outputs=outputs))
    done.set()
    for thread in threads:
        thread.join()
    assert all(outputs % 10 == 0 and outputs // 10 <= last for outputs, last in seen)
    assert len(store.outputs(1)) == 400


def test_the_beginning_of_the_log_can_be_dropped_as_far_as_both_snapshots_hold_it(kit):
    store = kit.store
    append(store, *range(1, 11), data=b"x" * 100)  # at 0.5 s, 1 s, ...
    assert store.log_before(None, None) == store.log_before(0.5, 1000) == 0
    assert store.log_before(2.5, None) == 4 and store.log_before(None, 250) == 8 and store.log_before(2.5, 250) == 8
    store.save_snapshot(3, b"three")
    assert store.cut_log(8) == 0  # a damaged snapshot would be missed
    store.save_snapshot(6, b"six")
    assert store.cut_log(8) == 3 and store.cut_log(8) == 0
    store = kit.reopen()
    assert [record.seq for record in store.records()] == list(range(4, 11))
    loaded = store.load()
    assert (loaded.snapshot.seq, seqs(loaded)) == (6, [7, 8, 9, 10])
    append(store, 11)


def test_bytes_are_told_by_job_and_given_back(store):
    rows = [OutputRow(1, task, 1, b"o" * 1000) for task in range(50)]
    store.append(Batch(jobs=[JobRow(1, b"spec"), JobRow(2, b"s")], chunks=[ChunkRow(1, 0, 3, 0, "lines", b"abc")]))
    store.append(Batch(outputs=rows))
    assert store.job_bytes() == {1: 50_007, 2: 1}
    store.append(Batch(forgotten=[1]))
    while store.shrink():
        pass
    assert store.job_bytes() == {2: 1}
