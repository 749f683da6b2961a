"""The worker's small parts: output windows, names, spool, channels, ids, the one file."""

from __future__ import annotations

import glob
import io
import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, lists

from windfall.pools.starting.workerfile import worker_pyz
from windfall.worker import __main__ as command
from windfall.worker import identity
from windfall.worker.running import workdir
from windfall.worker.running.channel import Queue, encode, message_of
from windfall.worker.running.window import OutputWindow, shrink
from windfall.worker.transport.link import Address
from windfall.worker.transport.outbox import Outbox, Result
from windfall.worker.transport.spool import Spool


@given(chunks=lists(binary(max_size=50), max_size=30), cap=integers(0, 200))
def test_a_window_keeps_head_and_tail_and_counts_the_rest(chunks, cap):
    whole = b"".join(chunks)
    window = OutputWindow(cap)
    for chunk in chunks:
        window.add(chunk)
    assert window.total_bytes == len(whole)
    if len(whole) <= cap:
        assert (window.value(), window.dropped_bytes) == (whole, 0)
        return
    head, tail = cap - cap // 2, cap // 2
    assert window.dropped_bytes == len(whole) - cap
    assert window.value().startswith(whole[:head]) and window.value().endswith(whole[len(whole) - tail :])
    assert f"[... {len(whole) - cap:,} bytes dropped ...]".encode() in window.value()
    assert all(whole[offset : offset + len(piece)] == piece for offset, piece in window.pieces())


def test_shrinking_says_how_much_it_dropped():
    assert shrink(b"abc", 3) == (b"abc", 0)
    assert shrink(b"a" * 100, 10)[1] == 90


@pytest.mark.parametrize("name", ["a", "a/b", ".hidden", "a..b", "...", "a b", "ä/ö"])
def test_a_plain_name_is_taken(name):
    assert workdir.safe_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "/a", "a/", "a/..", "../a", "a/../b", "a\0", "a\\b", "a/."])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(workdir.BadName):
        workdir.safe_name(name)


def test_an_untouched_directory_is_used_again_and_a_touched_one_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = workdir.OwnDirectory(str(tmp_path), "slot")
    first = own.enter()
    own.leave()
    assert own.enter() == first
    for spoil in (lambda: open("file", "w").close(), lambda: Path.cwd().chmod(0o500), lambda: Path(own.path).rmdir()):
        before = own.enter()
        spoil()
        own.leave()
        assert own.enter() != before and not Path(before).exists()


def test_a_call_that_went_elsewhere_is_followed_by_one_in_the_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = workdir.OwnDirectory(str(tmp_path), "slot")
    first = own.come_back()
    own.leave()
    os.chdir("/")
    assert own.come_back() == first and str(Path.cwd()) == first
    Path(first).rmdir()
    assert own.come_back() != first and str(Path.cwd()) == own.path


def test_a_directory_that_is_older_than_a_time_stamp_is_not_listed_and_a_touched_one_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = workdir.OwnDirectory(str(tmp_path), "slot")
    first = own.come_back()
    later_ns = time.time_ns() + 10 * workdir._TIMESTAMP_STEP_NS
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda path: pytest.fail("it was listed"))
        own.leave(later_ns)
        assert own.come_back() == first
    Path(first).chmod(0o500)
    own.leave(later_ns)
    assert own.come_back() != first and not Path(first).exists()


def test_outputs_are_found_by_name_by_pattern_and_below_a_folder(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("a.txt", "b.txt", "d/c"):
        (tmp_path / name).write_text(name)
    files, missing = workdir.find_outputs(str(tmp_path), ["*.txt", "d", "e", "a.txt"])
    assert [name for name, _, _ in files] == ["a.txt", "b.txt", "d/c"] and missing == ["e"]


PATTERNS = "* ** **/* d/** d/*/c **/c .* *.txt d/.h/* [ab].txt d/ none/* ?.txt d/**/x"


@pytest.mark.parametrize("pattern", PATTERNS.split())
def test_patterns_match_what_pythons_own_glob_matches(tmp_path, pattern):
    for name in ("a.txt", "b.txt", ".hidden", "d/c", "d/.h/x", "d/e/c", "d/e/f/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    expected = set()
    matched = glob.glob(pattern.rstrip("/"), root_dir=tmp_path, recursive=True, include_hidden=True)  # noqa: PTH207
    for path in (tmp_path / match for match in matched):
        below = [path] if path.is_file() else path.rglob("*")
        expected |= {str(file.relative_to(tmp_path)) for file in below if file.is_file()}
    assert {name for name, _, _ in workdir.find_outputs(str(tmp_path), [pattern])[0]} == expected


def result(task: int, stdout: bytes = b"") -> Result:
    return Result(1, task, 1, "done", 0, 0.0, 0.1, 0.1, 1, stdout, b"", b"", None)


def test_the_spool_gives_back_whole_records_and_leaves_a_torn_one_out(tmp_path):
    spool = Spool(str(tmp_path), "boot")
    spool.save([tuple(result(1)), tuple(result(2))])
    path = tmp_path / "boot.spool"
    path.write_bytes(path.read_bytes()[:-3])
    assert Spool(str(tmp_path), "later").load() == [tuple(result(1))]


def test_a_result_leaves_the_outbox_only_when_it_is_acknowledged(tmp_path):
    outbox = Outbox(Spool(str(tmp_path), "boot"))
    outbox.add(result(1))
    assert outbox.take() == [result(1)] and len(outbox) == 1
    outbox.save()
    assert len(Outbox(Spool(str(tmp_path), "next"))) == 1
    outbox.acknowledged()
    assert len(outbox) == 0 and Spool(str(tmp_path), "next").load() == []


def test_too_large_an_exchange_goes_again_in_halves_and_a_single_result_is_cut(tmp_path):
    outbox = Outbox(Spool(str(tmp_path), "boot"))
    for task in range(4):
        outbox.add(result(task, b"x" * 1000))
    assert len(outbox.take()) == 4
    outbox.too_large(None)
    assert [r.task for r in outbox.take()] == [0, 1]
    outbox.too_large(None)
    assert [r.task for r in outbox.take()] == [0]
    outbox.too_large(400)
    (cut,) = outbox.take()
    assert len(cut.stdout) < 200 and cut.more["dropped"][0] == 900


def test_what_was_not_read_from_a_queue_can_be_taken_back():
    queue = Queue()
    for number in range(3):
        assert queue.put(("task", number), "/no/folder")
    assert queue.read_end.recv(1000) == encode(("task", 0))
    assert queue.take_back() == [encode(("task", 1)), encode(("task", 2))]
    queue.close()


def test_a_message_too_large_for_a_packet_goes_through_a_file_that_is_removed(tmp_path):
    queue, large = Queue(), ("spec", 1, {"env": {"X": "x" * 1_000_000}})
    assert queue.put(large, str(tmp_path)) and queue.put(large, str(tmp_path))
    assert message_of(queue.read_end.recv(1 << 18)) == large
    assert [message_of(packet) for packet in queue.take_back()] == [large]
    assert list(tmp_path.iterdir()) == []
    queue.close()


def test_a_message_that_finds_no_room_leaves_no_file(tmp_path):
    queue = Queue()
    while queue.put(("task", b"x" * 100_000), str(tmp_path)):
        pass
    assert not queue.put(("task", b"x" * 200_000), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    queue.close()


def test_a_directory_that_somebody_removed_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = workdir.OwnDirectory(str(tmp_path / "run" / "folder"), "slot0")
    first = own.enter()
    shutil.rmtree(tmp_path / "run")
    second = own.enter()
    assert str(Path.cwd()) == second != first
    own.step_out()
    shutil.rmtree(tmp_path / "run")
    assert Path(own.enter()).is_dir()


def test_a_secret_is_made_once_and_read_by_its_owner_alone(tmp_path):
    made = identity.secret(str(tmp_path))
    assert len(made) == 64 and identity.secret(str(tmp_path)) == made
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "secret").write_text("torn")
    assert len(identity.secret(str(tmp_path))) == 64


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    identity.check_folder(str(tmp_path / "own"))
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(identity.Taken, match="belongs to another user"):
        identity.check_folder(str(tmp_path / "own"))


def test_an_id_depends_on_hardware_name_user_and_instance_alone():
    first = identity.stable_id("00aa", "host.example.org", 0, 0)
    assert first == identity.stable_id("00aa", "host.example.org", 0, 0)
    others = [("00ab", "host", 0, 0), ("00aa", "other", 0, 0), ("00aa", "host.example.org", 1, 0)]
    assert len({first, *(identity.stable_id(*other) for other in others)}) == 4
    assert identity.stable_id("00aa", "host.example.org", 0, 1).endswith("-1")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("55m", 3300), ("1h30m", 5400), ("1.5h", 5400)])
def test_durations_are_read_as_people_write_them(text, seconds):
    assert command.duration_s(text) == seconds


def test_the_one_file_is_the_same_each_time_and_holds_nothing_but_worker_and_wire():
    data = worker_pyz()
    worker_pyz.cache_clear()
    assert worker_pyz() == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
    assert "__main__.py" in names and "windfall/worker/agent.py" in names
    assert all(name.startswith(("windfall/worker/", "windfall/wire/")) for name in names if name.count("/") > 1)


def test_a_worker_moves_on_to_the_next_address_and_pauses_after_a_round():
    address = Address("http://a:1,http://b:2/x", "t")
    assert address.current == "http://a:1"
    assert address.move_on("http://a:1") is True
    assert (address.current, address.path("/v1")) == ("http://b:2/x", "/x/v1")
    assert address.move_on("http://a:1") is True, "another thread has moved on already"
    assert address.current == "http://b:2/x"
    assert address.move_on("http://b:2/x") is False, "all were asked: pause"
    assert address.current == "http://a:1"
    assert address.answer_s < Address("http://a:1", "t").answer_s
    alone = Address("http://a:1", "t")
    assert alone.move_on("http://a:1") is False and alone.current == "http://a:1"
