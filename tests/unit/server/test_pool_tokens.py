"""Tokens of the workers of pools: of one pool, for a short time, renewed while their workers ask for work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import floats, from_regex, integers, text
from msgspec.structs import replace

from tests.support.engine.hand import Hand
from windfall.core.events import HostAsked, OffersConfigured, PoolsConfigured
from windfall.core.liveness.forgetting import TICKET_S
from windfall.core.state.hosts.pools import PoolRules
from windfall.core.state.renting.fleet import MachineState
from windfall.errors import BadCredentials
from windfall.planning.offers import Offer
from windfall.pools.starting.secrets import narrowed, ticket, without_tokens
from windfall.server.pool_tokens import OtherPool, PoolTokens, TicketUsed, check_host, open_tokens
from windfall.store.memory import MemoryStore

TOKENS = PoolTokens(b"k" * 32)
NAMES = from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}", fullmatch=True)


def state(host: str = "", pool: str = "a"):
    hand = Hand()
    hand.step(PoolsConfigured(0.0, [PoolRules("a", limit=4), PoolRules("b", limit=4)]))
    hand.step(OffersConfigured(0.0, "cloud", [Offer(name="x", price_usd=1.0, pool="cloud")]))
    if host:
        hand.step(HostAsked(1.0, host, "boot", 1, 0, 1, {"pool": pool}))
    return hand.state


@given(pool=NAMES, life_s=floats(5, 1e6), t=floats(0, 4e9))
def test_what_was_made_is_read_and_says_its_pool_and_its_end(pool, life_s, t):
    read = TOKENS.read(TOKENS.make(pool, life_s, t))
    assert read.pool == pool and t + life_s - 2 < read.ends_t <= t + life_s


@given(pool=NAMES, other=text(max_size=80))
def test_what_was_not_made_here_is_refused(pool, other):
    token = TOKENS.make(pool, 60.0, 0.0)
    for forged in (other, token[:-1] + ("0" if token[-1] != "0" else "1"), token.replace("_", "_x", 1), ""):
        with pytest.raises(BadCredentials):
            TOKENS.read(forged)
    with pytest.raises(BadCredentials):
        PoolTokens(b"q" * 32).read(token)


@given(pool=NAMES)
def test_no_text_of_a_provider_shows_a_token(pool):
    token = TOKENS.make(pool, 60.0, 0.0)
    assert token not in without_tokens(f"sh: --token {token}: not found")
    secret = "wf_0123abcd_" + "x" * 43
    assert "xxxx" not in without_tokens(f"curl -H 'Bearer {secret}' failed")


@given(pool=NAMES, number=integers(1, 10**6))
def test_a_narrowed_token_is_good_for_its_host_alone_and_cannot_be_widened(pool, number):
    host = f"{pool}-{number}-1"
    token = TOKENS.make(pool, 60.0, 0.0)
    narrow = narrowed(token + "\n", host)
    assert TOKENS.read(narrow) == replace(TOKENS.read(token), host=host)
    assert narrow not in without_tokens(f"sh: --token {narrow}: not found")
    assert token.rpartition("_")[2] not in narrow, "the signature of the whole token stays with the pool"
    said, _, signature = narrow.rpartition("_")
    for forged in (
        narrow.replace(host, f"{pool}-{number}-2"),
        f"{said.partition('~')[0]}_{signature}",
        narrowed(narrow, "x"),
    ):
        if forged != narrow:
            with pytest.raises(BadCredentials):
                TOKENS.read(forged)


def test_a_token_of_one_host_lets_no_other_in_and_its_successor_neither():
    token = TOKENS.read(narrowed(TOKENS.make("a", 60.0, 0.0), "a-3-1"))
    check_host(state(), token, "a-3-1", "b1", {"pool": "a"}, 10.0)
    successor = TOKENS.read(TOKENS.renewed(token, 40.0) or "")
    for held in (token, successor):
        with pytest.raises(OtherPool):
            check_host(state(), held, "a-3-2", "b1", {"pool": "a"}, 10.0)
    assert (successor.host, successor.ends_t) == ("a-3-1", 100.0)


@given(pool=NAMES, number=integers(1, 10**6))
def test_a_ticket_is_good_for_its_host_alone_and_is_made_into_no_other_token(pool, number):
    host = f"{pool}-{number}-1"
    token = TOKENS.make(pool, 60.0, 0.0)
    once = ticket(token + "\n", host)
    assert TOKENS.read(once) == replace(TOKENS.read(token), host=host, once=True)
    assert once not in without_tokens(f"sh: --token {once}: not found")
    for forged in (
        once.replace("~once", ""), once.replace(host, f"{pool}-{number}-2"), narrowed(once, host) + "x",
        narrowed(token, host).replace(host, f"{host}~once"),
    ):  # fmt: skip
        with pytest.raises(BadCredentials):
            TOKENS.read(forged)


def test_a_ticket_enrols_its_host_once_and_then_helps_nobody_who_does_not_show_its_secret():
    once = TOKENS.read(ticket(TOKENS.make("a", 60.0, 0.0), "a-3-1"))
    check_host(state(), once, "a-3-1", "boot", {"pool": "a"}, 10.0)
    for token in (once, TOKENS.read(TOKENS.renewed(once, 40.0) or "")):
        with pytest.raises(TicketUsed):
            check_host(state("a-3-1"), token, "a-3-1", "mine", {"pool": "a"}, 41.0, new_secret=True)
        check_host(state("a-3-1"), token, "a-3-1", "boot", None, 41.0, new_secret=False)
        with pytest.raises(OtherPool):
            check_host(state(), token, "a-3-2", "boot", {"pool": "a"}, 41.0)


def test_the_ticket_of_a_host_that_has_left_is_used():
    hand = Hand()
    hand.step(PoolsConfigured(0.0, [PoolRules("a", limit=4)]))
    hand.step(HostAsked(1.0, "a-3-1", "boot", 1, 0, 1, {"pool": "a"}))
    hand.step(HostAsked(2.0, "a-3-1", "boot", 2, 0, 1, leaving="idle"))
    with pytest.raises(TicketUsed):
        check_host(
            hand.state, TOKENS.read(ticket(TOKENS.make("a", 60.0, 0.0), "a-3-1")), "a-3-1", "x", {"pool": "a"}, 3.0
        )


def rented(phase: str = "running", host: int = 1, name: str = "cloud-m7"):
    found = state(name if host else "", pool="cloud")
    found.fleet.machines[7] = MachineState(
        7, 1, Offer(name="x", price_usd=1.0, pool="cloud"), 0.0, phase=phase, host=host
    )
    return found


def test_a_machine_that_was_stopped_for_longer_than_its_ticket_lives_comes_back_with_its_secret_alone():
    once = TOKENS.read(ticket(TOKENS.make("cloud", 60.0, 0.0), "cloud-m7"))
    ad = {"pool": "cloud", "machine": 7}
    check_host(rented("hibernated"), once, "cloud-m7", "again", ad, 9000.0, new_secret=False)
    with pytest.raises(TicketUsed):
        check_host(rented("hibernated"), once, "cloud-m7", "again", ad, 9000.0, new_secret=True)
    with pytest.raises(TicketUsed, match="not rented any more"):
        check_host(rented("ended"), once, "cloud-m7", "again", ad, 9000.0, new_secret=False)


def test_the_ticket_of_a_machine_is_used_also_if_its_host_was_forgotten():
    once = TOKENS.read(ticket(TOKENS.make("cloud", 60.0, 0.0), "cloud-m7"))
    ad = {"pool": "cloud", "machine": 7}
    check_host(rented("pending", host=0), once, "cloud-m7", "b", ad, 10.0)
    forgotten = rented("running", host=0)
    forgotten.fleet.machines[7].host = 3
    for used in (forgotten, state()):
        with pytest.raises(TicketUsed):
            check_host(used, once, "cloud-m7", "b", ad, 10.0)


def test_no_ticket_lives_longer_than_hosts_of_pools_are_known():
    once = TOKENS.read(ticket(TOKENS.make("a", 9 * TICKET_S, 0.0), "a-3-1"))
    assert (once.ends_t, once.life_s) == (TICKET_S, TICKET_S)


def test_the_file_of_a_pool_never_keeps_a_narrowed_token(tmp_path):
    file = tmp_path / "token"
    file.write_text(narrowed(TOKENS.make("a", 60.0, 0.0), "a-3-1"))
    TOKENS.refresh(file, "a", 60.0, 1.0)
    assert TOKENS.read(file.read_text()).host == ""


def test_what_is_no_token_of_a_pool_is_not_narrowed():
    assert narrowed("wf_0123abcd_x", "a-3-1") == "wf_0123abcd_x"


def test_a_worker_of_the_pool_is_let_in_by_its_name_and_its_ad():
    check_host(state(), TOKENS.read(TOKENS.make("a", 60.0, 0.0)), "a-3-1", "b1", {"pool": "a"}, 10.0)
    check_host(state("a-3-1"), TOKENS.read(TOKENS.make("a", 60.0, 0.0)), "a-3-1", "boot", None, 10.0)
    check_host(state(), TOKENS.read(TOKENS.make("cloud", 60.0, 0.0)), "cloud-m7", "b1", {"pool": "cloud"}, 10.0)


@pytest.mark.parametrize(
    ("name", "ad"),
    [
        ("b-3-1", {"pool": "b"}),
        ("a-3-1", {"pool": "b"}),
        ("a-3-1", {}),
        ("b-3-1", {"pool": "a"}),
        ("node7", {"pool": "a"}),
        ("a-b-3-1", {"pool": "a"}),
    ],
)
def test_a_token_of_one_pool_is_good_for_no_host_of_another(name, ad):
    with pytest.raises(OtherPool):
        check_host(state(), TOKENS.read(TOKENS.make("a", 60.0, 0.0)), name, "b1", ad, 10.0)


def test_a_host_that_is_known_as_one_of_another_pool_cannot_be_taken_over():
    with pytest.raises(OtherPool):
        check_host(state("a-1-1", pool="b"), TOKENS.read(TOKENS.make("a", 60.0, 0.0)), "a-1-1", "boot", None, 10.0)


def test_the_token_of_a_pool_that_is_no_more_lets_nobody_in():
    with pytest.raises(OtherPool, match="any more"):
        check_host(state(), TOKENS.read(TOKENS.make("gone", 60.0, 0.0)), "gone-1-1", "b1", {"pool": "gone"}, 10.0)


def test_a_token_that_has_ended_registers_nobody_but_a_session_goes_on():
    token = TOKENS.read(TOKENS.make("a", 60.0, 0.0))
    for host, boot in (("a-9-1", "b1"), ("a-3-1", "another")):
        with pytest.raises(BadCredentials, match="has ended"):
            check_host(state("a-3-1"), token, host, boot, {"pool": "a"}, 61.0)
    check_host(state("a-3-1"), token, "a-3-1", "boot", None, 5000.0)


def test_a_token_is_renewed_after_half_of_its_life_and_not_before():
    token = TOKENS.read(TOKENS.make("a", 60.0, 100.0))
    assert TOKENS.renewed(token, 129.0) is None
    again = TOKENS.read(TOKENS.renewed(token, 131.0))
    assert (again.pool, again.life_s, again.ends_t) == ("a", 60.0, 191.0)


def test_the_file_of_a_pool_is_rewritten_when_its_token_is_half_over_and_is_private(tmp_path):
    file = tmp_path / "a"
    TOKENS.refresh(file, "a", 60.0, 0.0)
    first = file.read_text()
    TOKENS.refresh(file, "a", 60.0, 20.0)
    assert file.read_text() == first and file.stat().st_mode & 0o077 == 0
    TOKENS.refresh(file, "a", 60.0, 40.0)
    assert TOKENS.read(file.read_text()).ends_t == 100.0


def test_the_key_of_a_state_is_made_once_and_kept_in_its_store(tmp_path):
    store = MemoryStore()
    token = open_tokens(store, tmp_path / "one host").make("a", 60.0, 0.0)
    assert open_tokens(store, tmp_path / "another").read(token).pool == "a"
    assert list(tmp_path.iterdir()) == []


def test_the_key_that_an_older_version_kept_in_a_file_stays_good(tmp_path):
    (tmp_path / "pool-key").write_text("ab" * 32)
    store = MemoryStore()
    token = PoolTokens(b"\xab" * 32).make("a", 60.0, 0.0)
    assert open_tokens(store, tmp_path).read(token).pool == "a"
    (tmp_path / "pool-key").unlink()
    assert open_tokens(store, tmp_path).read(token).pool == "a"
