"""One cloud for the tests of a file: setting one up takes longer than a test."""

from __future__ import annotations

import logging

import pytest
from windfall_nova.cloud.cloud import Cloud


@pytest.fixture(scope="module")
def settings():
    """What the file's cloud has in nova.conf, by (group, option)."""
    return {}


@pytest.fixture(scope="module")
def whole(settings):
    made = Cloud(settings=settings)
    yield made
    made.close()


@pytest.fixture
def cloud(whole):
    """The cloud, without servers and without hosts in service."""
    yield whole
    whole.clear()


@pytest.fixture
def said(caplog):
    """The lines that our scheduler has logged."""
    caplog.set_level(logging.INFO, logger="windfall_nova")
    return lambda: [one.getMessage() for one in caplog.records if one.getMessage().startswith("windfall:")]
