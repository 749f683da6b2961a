"""The pages of the documentation name only what exists; docs/architecture.md names every room."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def load_checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_checker", ROOT / "tools" / "docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checker = load_checker()


@pytest.mark.parametrize("page", checker.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere_and_every_named_file_exists(page):
    assert [*checker.broken_links(page), *checker.missing_files(page)] == []


def test_links_lead_from_the_readme_to_every_page():
    assert checker.unreachable() == []


def test_a_file_that_commands_write_may_be_there_or_not(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`build/no-such-report.jsonl` `tests/no_such_file.py`\n")
    (ROOT / "build").mkdir(exist_ok=True)
    assert [*checker.missing_files(page)] == ["tests/no_such_file.py"]


def test_a_link_to_a_heading_that_does_not_exist_is_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n## What it is: `this`\n\n[right](page.md#what-it-is-this) [here](#a-page)\n")
    assert [*checker.broken_links(page)] == []
    page.write_text("# A page\n\n[wrong](page.md#nothing) [wrong](#nothing)\n")
    assert [*checker.broken_links(page)] == ["page.md#nothing", "#nothing"]


def test_the_architecture_names_every_package_and_the_rooms_of_engine_and_simulator():
    package = ROOT / "src" / "windfall"
    rooms = [f"{init.parent.name}" for init in package.glob("*/__init__.py")]
    rooms += [
        f"{room}/{init.parent.name}" for room in ("core", "sim") for init in package.glob(f"{room}/*/__init__.py")
    ]
    assert [room for room in rooms if f"`{room}/`" not in ARCHITECTURE] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "`core/nothing.py`",
        "`src/windfall/nothing/`",
        "`tests/unit/nothing.py`",
        "`windfall.core.nothing`",
        "`core.nothing.Thing`",
        "[a page](nothing.md)",
        "```sh\nwindfall run -f examples/nothing.toml\n```",
    ],
)
def test_a_page_that_names_a_missing_file_is_reported(wrong, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"See\n{wrong}\n")
    assert len([*checker.broken_links(page), *checker.missing_files(page)]) == 1


@pytest.mark.parametrize("right", ["`core/engine.py`", "`windfall.core.engine.Engine`", "`pools.toml`", "`a/b.csv`"])
def test_existing_files_and_files_of_the_reader_are_not_reported(right, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"See {right}.\n")
    assert [*checker.broken_links(page), *checker.missing_files(page)] == []


def test_examples_of_servers_use_one_port():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.toml")]
    ports = {port for page in pages for port in re.findall(r"[a-z0-9]:(\d{4,5})\b", page.read_text())}
    assert ports - {"5432", "6443", "8774"} == {"7272"}, "PostgreSQL, Kubernetes and Nova have ports of their own"


def test_the_readme_leads_to_every_page():
    readme = (ROOT / "README.md").read_text()
    pages = [page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "adr"]
    assert pages and [str(page) for page in pages if f"({page})" not in readme] == []


def test_the_page_on_the_console_shows_every_picture_of_it():
    page = (ROOT / "docs" / "howto" / "console.md").read_text()
    pictures = [path.name for path in (ROOT / "docs" / "images" / "console").glob("*.png")]
    looks = {name.rpartition("-")[0]: set() for name in pictures}
    for name in pictures:
        looks[name.rpartition("-")[0]].add(name.rpartition("-")[2])
    assert [name for name in pictures if f"(../images/console/{name})" not in page] == []
    assert {name: found for name, found in looks.items() if found != {"light.png", "dark.png", "phone.png"}} == {}
