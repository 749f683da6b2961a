"""Files that commands write: missing folders are made, what was there stays until the new file is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.errors import BadInput
from windfall.files import check_folder, check_writable, make_room, replacing, write


def test_missing_folders_are_made(tmp_path):
    assert write(tmp_path / "a" / "b" / "c.txt", "text\n").read_text() == "text\n"


def test_an_error_in_the_middle_leaves_what_was_there(tmp_path):
    kept = tmp_path / "kept.csv"
    kept.write_text("old\n")
    with pytest.raises(ZeroDivisionError), replacing(kept) as unfinished:
        unfinished.write_text("half")
        _ = 1 / 0
    assert kept.read_text() == "old\n" and [each.name for each in tmp_path.iterdir()] == ["kept.csv"]


def test_a_link_still_leads_where_it_led_and_the_rights_stay(tmp_path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old\n")
    real.chmod(0o640)
    link.symlink_to(real)
    write(link, "new\n")
    assert link.is_symlink() and real.read_text() == "new\n" and real.stat().st_mode & 0o777 == 0o640


def test_a_device_and_a_pipe_are_written_to_and_not_replaced(tmp_path):
    write("/dev/null", "nothing is kept")
    assert not Path("/dev/null").is_file()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, "through")
        assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_name_of_the_longest_length_can_be_written(tmp_path):
    assert write(tmp_path / ("x" * 250 + ".json"), "{}").read_text() == "{}"


@pytest.mark.parametrize(
    ("place", "word"),
    [("file/x.csv", "a file is in the place of one of its folders"), ("", "empty"), ("folder", "this is a folder")],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_made(place, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for refuse in (check_writable, make_room, lambda path: write(path, "text")):
        with pytest.raises(BadInput) as error:
            refuse(place)
        assert word in error.value.message and error.value.hint
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_folder_is_refused_where_a_file_is(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadInput):
            check_folder(place)
    check_folder(tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()


def test_two_files_of_one_folder_are_written_at_once(tmp_path):
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "b") as second:
        first.write_text("a")
        second.write_text("b")
    assert [(tmp_path / name).read_text() for name in "ab"] == ["a", "b"]
