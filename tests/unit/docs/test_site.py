"""The site: every page is in its navigation, and the reference is made from the code. `make docs` builds all of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from windfall.policy.names import ATTRIBUTES
from windfall.server.http import openapi, routes

ROOT = Path(__file__).parents[3]


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
