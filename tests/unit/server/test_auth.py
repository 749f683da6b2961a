"""Who may do what: tokens, remembered once they were found good, and refused at once when they are revoked."""

from __future__ import annotations

import pytest

from windfall.errors import BadCredentials
from windfall.server.auth import Forbidden, Tokens
from windfall.store.memory import MemoryStore


def test_a_token_that_was_used_is_refused_as_soon_as_it_is_revoked():
    tokens = Tokens(MemoryStore())
    header = f"Bearer {tokens.create('worker', 'w', 0.0)}"
    other = f"Bearer {tokens.create('read', 'r', 0.0)}"
    for _ in range(2):
        assert tokens.require(header, "worker").role == "worker"
        assert tokens.require(other, "read").role == "read"
        with pytest.raises(Forbidden):
            tokens.require(header, "submit")
    assert tokens.revoke(header.split("_")[1])
    with pytest.raises(BadCredentials):
        tokens.require(header, "worker")
    assert tokens.require(other, "read").role == "read"


def test_a_wrong_secret_is_refused_before_and_after_the_right_one():
    tokens = Tokens(MemoryStore())
    good = f"Bearer {tokens.create('worker', 'w', 0.0)}"
    for _ in range(2):
        with pytest.raises(BadCredentials):
            tokens.require(good + "x", "worker")
        assert tokens.require(good, "worker").role == "worker"
