"""What every store promises (windfall.store.contract) of tokens, versions and formats."""

import os

import pytest

from tests.support.server.stores import append, seqs
from windfall.store import formats, open_store
from windfall.store.contract import (
    StoreCorrupt,
    StoreInUse,
    StoreNewer,
    TokenRow,
)

# Tokens, and who may open


def test_tokens_are_kept_listed_and_removed(kit):
    kit.store.add_token("b", "hash-b", "worker", "for the cluster", 2.0)
    kit.store.add_token("a", "hash-a", "admin", "", 1.0)
    store = kit.reopen()
    assert store.tokens() == [
        TokenRow("a", "hash-a", "admin", "", 1.0),
        TokenRow("b", "hash-b", "worker", "for the cluster", 2.0),
    ]
    assert store.remove_token("a") is True
    assert store.remove_token("a") is False
    assert [token.id for token in store.tokens()] == ["b"]


def test_a_second_server_is_refused_and_told_who_is_there(kit):
    if not kit.keeps:
        pytest.skip("memory belongs to one process")
    with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()} on ") as error:
        open_store(kit.where)
    assert error.value.code == "state-in-use"
    assert not error.value.retryable
    append(kit.store, 1)
    assert seqs(kit.reopen().load()) == [1]


def test_what_a_newer_version_wrote_is_refused(kit):
    if not kit.keeps:
        pytest.skip("memory is never older than its process")
    kit.store.close()
    kit.set_version(99)
    with pytest.raises(StoreNewer, match=r"written by a newer Windfall \(schema 99") as error:
        open_store(kit.where)
    assert not error.value.retryable
    kit.set_version(1)
    kit.reopen()


# Formats


def test_a_new_store_is_in_todays_format(kit):
    append(kit.store, 1)
    assert kit.reopen().load().formats == [(1, formats.FORMAT)]


def test_a_store_of_an_older_format_is_read_and_says_from_which_record_on_it_is_in_the_newer_one(kit, monkeypatch):
    if not kit.keeps:
        pytest.skip("memory is never older than its process")
    append(kit.store, 1, 2)
    monkeypatch.setattr(formats, "FORMAT", formats.FORMAT + 1)
    store = kit.reopen()
    assert (seqs(store.load()), store.load().formats) == ([1, 2], [(1, formats.FORMAT - 1)])
    assert kit.reopen().load().formats == [(1, formats.FORMAT - 1)], "looking does not change it"
    append(kit.store, 3)
    append(kit.store, 4)
    both = [(1, formats.FORMAT - 1), (3, formats.FORMAT)]
    assert kit.store.load().formats == both
    assert kit.reopen().load().formats == both
    kit.store.close()
    monkeypatch.undo()
    with pytest.raises(StoreNewer, match=f"newer Windfall .format {formats.FORMAT + 1}; .* up to {formats.FORMAT}"):
        open_store(kit.where)


def test_a_store_from_before_formats_were_counted_is_of_the_first(kit):
    if not kit.keeps:
        pytest.skip("memory is never older than its process")
    append(kit.store, 1)
    kit.set_format()
    assert kit.reopen().load().formats == [(1, 1)]


def test_what_a_newer_format_wrote_is_refused_with_what_to_do(kit):
    if not kit.keeps:
        pytest.skip("memory is never older than its process")
    append(kit.store, 1)
    kit.store.close()
    kit.set_format(("format 1", "1"), ("format 99", "7"))
    with pytest.raises(StoreNewer, match=r"written by a newer Windfall \(format 99") as error:
        open_store(kit.where)
    assert not error.value.retryable
    assert "use that version" in error.value.hint
    kit.set_format(("format 1", "1"))
    assert seqs(kit.reopen().load()) == [1]


# A damaged store is never an empty one


def test_a_log_that_ends_before_its_snapshot_is_damaged(kit):
    append(kit.store, 1, 2, 3)
    kit.store.save_snapshot(3, b"state")
    kit.lose_records()
    with pytest.raises(StoreCorrupt, match="log ends with record 0, but a snapshot holds 3") as error:
        kit.reopen().load()
    assert not error.value.retryable


@pytest.mark.parametrize("rows", [[("format x", "1")], [("format 1", "")]])
def test_a_store_that_does_not_say_who_wrote_it_is_damaged(kit, rows):
    if not kit.keeps:
        pytest.skip("memory is never older than its process")
    kit.store.close()
    kit.set_format(*rows)
    with pytest.raises(StoreCorrupt, match="is damaged: it does not say"):
        open_store(kit.where)
    kit.forget_version()
    with pytest.raises(StoreCorrupt, match="is damaged: it does not say"):
        open_store(kit.where)
