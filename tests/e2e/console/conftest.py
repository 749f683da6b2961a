"""A browser for all tests of a file, and visitors of whom it had nothing to complain about."""

from __future__ import annotations

import pytest

from tests.support.server.browser import Visitor, chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


@pytest.fixture
def visit(browser):
    """Makes visitors; in the end no browser may have complained."""
    visitors = []

    def make(*words, **said):
        visitors.append(Visitor(browser, *words, **said))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.close()
    assert [line for visitor in visitors for line in visitor.wrong] == []
