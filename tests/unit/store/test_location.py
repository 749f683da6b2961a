"""What names a state: a directory or the URL of a PostgreSQL database, and what of it may be shown."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.errors import BadInput
from windfall.store import open_store
from windfall.store.location import StateLocation, database_url, locate, without_password

pytest.importorskip("psycopg")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("state", ["state", "/tmp/state", "a:b", "~x", Path("deep/er"), "post://gres"[:4]])
def test_a_directory_is_a_directory(state):
    assert locate(state) == StateLocation(Path(state))


@pytest.mark.parametrize("state", ["postgresql://h/db", "postgres://h/db", "PostgreSQL://h/db", " postgresql://h/db\n"])
def test_both_schemes_name_a_database(state, home):
    found = locate(state)
    assert found.url.endswith("://h/db")
    assert found.directory.parent == home / "windfall"
    assert found.directory.name.startswith("h-db-")


@pytest.mark.parametrize(
    "state",
    ["mysql://u:secret@h/x", "sqlite:///x", "https://u:secret@h", "postgresql+psycopg://u:secret@h/x", "file://secret"],
)
def test_another_scheme_is_refused_and_no_folder_of_that_name_is_made(state, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for take in (locate, open_store):
        with pytest.raises(BadInput, match="kept in a directory or in PostgreSQL") as error:
            take(state)
        assert "secret" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["postgresql:/h/db", Path("postgresql://h/db"), "postgres:db"])
def test_a_url_with_too_few_slashes_is_no_directory(state):
    with pytest.raises(BadInput, match="two slashes"):
        locate(state)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:se%zzcret@h/db",
        "postgresql://u:secret@[::1/db",
        "postgresql://u:secret@h/db?nosuch=1",
        "postgresql://u:se/secret@h/db",
        "postgresql://u:12/secret@h/db",
        "postgresql://u:se@secret@h/db",
        "postgresql://u:secret@h:secret/db",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_text(url):
    for take in (locate, without_password, open_store):
        with pytest.raises(BadInput, match="cannot be read") as error:
            take(url)
        assert "secret" not in str(error.value)
        assert "%40 for @" in error.value.hint


def test_one_database_has_one_folder_whoever_logs_in(home):
    same = ["postgresql://h/db", "postgresql://a:x@h:5432/db", "postgres://b:y@h/db?sslmode=require"]
    assert len({locate(url).directory for url in same}) == 1
    others = ["postgresql://h:5433/db", "postgresql://h/other", "postgresql://g/db", "postgresql:///db?host=/run/pg"]
    assert len({locate(url).directory for url in [same[0], *others]}) == 5


def test_a_url_without_host_and_database_goes_by_the_environment(monkeypatch):
    monkeypatch.setenv("PGHOST", "head")
    monkeypatch.setenv("PGDATABASE", "jobs")
    assert locate("postgresql://").directory == locate("postgresql://head/jobs").directory


@given(password=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map("§{}§".format))
def test_no_password_is_shown(password):
    from urllib.parse import quote

    word = quote(password, safe="")
    for url in (f"postgresql://u:{word}@h/db?sslpassword={word}", f"postgresql://u@h/db?password={word}"):
        found = StateLocation(Path("x"), url)
        for text in (str(found), repr(found), without_password(url), f"{found}"):
            assert "§" not in text
            assert quote("§") not in text
        assert str(found) == "postgresql://u@h/db"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://u:p@h:5433/db", "postgresql://u@h:5433/db"),
        ("postgresql://u:p@/db?host=/run/pg", "postgresql://u@/db?host=/run/pg"),
        ("postgresql://u:p@a:1,b:2/db", "postgresql://u@a,b:1,2/db"),
        ("postgresql://u:p@[::1]:5433/db?sslmode=require", "postgresql://u@[::1]:5433/db?sslmode=require"),
        ("postgresql://", "postgresql:///"),
    ],
)
def test_what_is_shown_names_the_same_database(url, shown):
    assert without_password(url) == shown


def test_a_missing_psycopg_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "windfall.store.postgres.store", raising=False)
    for take in (locate, open_store):
        with pytest.raises(BadInput, match="needs psycopg") as error:
            take("postgresql://u:secret@h/db")
        assert "pip install 'windfall[postgres]'" in error.value.hint


def test_a_url_is_taken_as_it_was_given():
    assert database_url("postgresql://u:p%40@h/db?x=1") == "postgresql://u:p%40@h/db?x=1"
