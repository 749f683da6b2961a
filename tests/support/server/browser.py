"""Debian's chromium, driven by Playwright, at the console of a server; with axe-core, which judges what pages mean to
screen readers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.cluster import Cluster

PATIENCE_MS = 60_000
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], "resultTypes": ["violations"]}


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips where there is none."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is missing: sh tools/system.sh")
        pytest.skip("chromium is missing: sh tools/system.sh installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody with a browser window of their own, signed in with a token of a role."""

    def __init__(
        self, browser: Any, made: Cluster, role: str = "", *, dark: bool = False, width: int = 1280, script: str = ""
    ) -> None:
        self.url = made.url
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.wrong: list[str] = []
        """What the browser complained about: errors of scripts, and what the security policy forbade."""
        if script:
            self.context.add_init_script(script)
        self.page = self.window()
        self.page.goto(made.url, wait_until="domcontentloaded")
        self.page.wait_for_selector("h1")
        self.token = ""
        if role:
            self.token = made.client().create_token(role, "visitor")["token"]
            self.sign_in(self.token)

    def window(self) -> Any:
        """Another window of the same browser; nothing is open in it."""
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.wrong.append(said.text))
        return page

    def sign_in(self, token: str) -> None:
        self.page.fill("input[name=token]", token)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("html[data-live=yes] nav a")

    def open(self, where: str) -> str:
        """Go to a page; the text of it once it is there."""
        if not self.page.url.endswith(f"/#/{where}"):
            self.page.evaluate("delete document.documentElement.dataset.page")
            self.page.goto(f"{self.url}/#/{where}", wait_until="domcontentloaded")
        self.page.wait_for_selector("html[data-page]")
        return str(self.page.inner_text("main"))

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def judged(self) -> list[str]:
        """What axe-core finds wrong with the page as it stands."""
        import axe_playwright_python

        if not self.page.evaluate("'axe' in window"):  # once for all pages: going to another one loads nothing
            script = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
            # A debugger's evaluation: the page's own security policy would not let the script in.
            self.page.evaluate(script)
        found = self.page.evaluate("rules => axe.run(document, rules)", RULES)
        return [f"{each['id']}: {[node['target'] for node in each['nodes']][:3]}" for each in found["violations"]]

    def sideways(self) -> bool:
        """Whether the whole page must be scrolled sideways to be read."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def close(self) -> None:
        """Leave; what the browser says afterwards is not heard."""
        if self.page is not None:
            self.page = None
            self.context.close()
