"""The site: every page is in its navigation, the reference is made from the code, and it is built without a warning.

`make docs` builds it with the diagrams and pictures recorded anew.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from windfall.policy.names import ATTRIBUTES
from windfall.server.http import openapi, routes

ROOT = Path(__file__).parents[3]
FOREIGN = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"' >]*""")
"""What a page would load from another host."""


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("mkdocs_site", ROOT / "tools" / "mkdocs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_once(site):
    def paths(part):
        each = part if isinstance(part, list) else part.values() if isinstance(part, dict) else None
        return [part] if each is None else [path for inner in each for path in paths(inner)]

    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    made = {f"reference/{name}.md" for name in site.MADE}
    assert sorted(paths(site.navigation())) == sorted({*there, *made, "index.md"})


def test_the_reference_holds_everything_that_the_code_has(site):
    from windfall.cli import COMMANDS

    text = site.commands()
    assert [name for name in COMMANDS if f"## windfall {name}\n" not in text] == []
    text = site.requests()
    assert all(f"## {method} {path}\n" in text for path, method, *_ in routes.ROUTES if path not in openapi.PAGES)
    assert all(f"`{each.ad}.{each.name}`" in site.attributes() for each in ATTRIBUTES)
    assert "### Client.submit\n" in site.python() and "## JobSubmitted\n" in site.events()
    assert "`lease_s`" in site.settings()


def test_a_link_to_a_file_beside_the_documentation_becomes_its_text(site):
    class Page:
        class file:
            src_uri = "howto/console.md"

    said = site.on_page_markdown(
        "[a](../reference/cli.md#x) [b](../../examples/x.toml) [c](https://d.org)", Page, {}, []
    )
    assert said == "[a](../reference/cli.md#x) b [c](https://d.org)"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site, built as strictly as by `make docs`."""
    if importlib.util.find_spec("material") is None:
        assert os.environ.get("CI") != "true", "mkdocs-material is missing: sh tools/setup.sh installs it"
        pytest.skip("mkdocs-material is missing: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)], cwd=ROOT, text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0 and "WARNING" not in ended.stderr, ended.stdout + ended.stderr
    return folder


def test_the_site_is_built_without_a_warning_and_has_every_page(site, built):
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    pages |= {Path("reference", f"{name}.html") for name in site.MADE} | {Path("index.html")}
    assert [str(page) for page in sorted(pages) if not (built / page).is_file()] == []


def test_the_site_loads_nothing_from_other_hosts_and_has_every_picture_that_it_shows(built):
    for page in built.rglob("*.html"):
        text = page.read_text()
        assert FOREIGN.findall(text) == [], page
        shown = re.findall(r"""<(?:img|source)\b[^>]*\bsrc(?:set)?=["']([^"':]+)["']""", text)
        assert [each for each in shown if not (page.parent / each).is_file()] == [], page
