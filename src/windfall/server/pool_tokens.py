"""Tokens of the workers of pools: signed, good for one pool and for a short time. Touches the
key in the store, and the files that workers read their token from.

They are kept nowhere: the signature says that this state made them. A pool narrows its token to one host before it
hands it on (windfall.pools.starting.secrets), so that the token of a worker is good under its own name alone. A worker
that asks for work gets a new one before its token ends (`renewed`). A token that has ended is refused; it only lets a
worker finish a session that goes on, so that a machine that was hibernated for longer than a token lives does not lose
its attempts.

A ticket stands where tasks can read it. It enrols its host once: from then on it is good together with the secret that
the host has shown, and then as long as its machine is rented, so that a machine comes back after a stop.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from windfall.core.liveness.forgetting import TICKET_S
from windfall.core.state.hosts.hosts import GONE, Host, pool_of
from windfall.core.state.state import State
from windfall.errors import BadCredentials
from windfall.pools.starting.secrets import ONCE, narrowed, narrowed_signature, ticket
from windfall.store.contract import Store

PREFIX = "wfp"
KEY_NAME = "pool-key"
_TOKEN = re.compile(
    rf"{PREFIX}_(?P<pool>[A-Za-z0-9._-]{{1,60}})_(?P<ends>[0-9a-f]{{1,12}})_(?P<life>[0-9a-f]{{1,8}})"
    rf"(?:~(?P<host>[A-Za-z0-9._-]{{1,100}})(?P<once>~{ONCE})?)?_[0-9a-f]{{64}}"
)


class PoolToken(Struct, frozen=True):
    """What a token says, once its signature is known to be ours."""

    pool: str
    ends_t: float
    life_s: float
    host: str = ""
    """The only host that it is good for; empty: any of the pool."""
    once: bool = False
    """It is a ticket."""


class OtherPool(BadCredentials):
    """The token is good, but for hosts of another pool."""

    code = "other-pool"


class TicketUsed(OtherPool):
    """A ticket whose host has enrolled, shown without the secret of that host."""

    code = "ticket-used"


class PoolTokens:
    """Makes and reads the tokens of one state."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, pool: str, life_s: float, t: float) -> str:
        said = f"{PREFIX}_{pool}_{int(t + life_s):x}_{int(life_s):x}"
        return f"{said}_{self._signature(said)}"

    def read(self, token: str) -> PoolToken:
        """BadCredentials if this state has not made it. One that has ended is read as well."""
        found = _TOKEN.fullmatch(token)
        said, _, signature = token.rpartition("_")
        said, _, limits = said.partition("~")
        right = self._signature(said)
        if found is None or not hmac.compare_digest(narrowed_signature(right, limits) if limits else right, signature):
            raise BadCredentials(
                "the server does not know this token", hint="it is of a pool of another state", code="bad-token"
            )
        ends_t, life_s = float(int(found["ends"], 16)), float(int(found["life"], 16))
        if found["once"] and life_s > TICKET_S:
            ends_t, life_s = ends_t - life_s + TICKET_S, TICKET_S
        return PoolToken(found["pool"], ends_t, life_s, found["host"] or "", found["once"] is not None)

    def renewed(self, token: PoolToken, t: float) -> str | None:
        """A new token for a worker whose own has lived for half of its time; None if it is younger."""
        if t <= token.ends_t - token.life_s / 2:
            return None
        made = self.make(token.pool, token.life_s, t)
        if token.once:
            return ticket(made, token.host)
        return narrowed(made, token.host) if token.host else made

    def refresh(self, file: Path, pool: str, life_s: float, t: float) -> None:
        """Have the file hold a token that is good for half of its life at least."""
        with contextlib.suppress(OSError, BadCredentials):
            held = self.read(file.read_text())
            if (
                held.pool == pool
                and not held.host
                and held.life_s == float(int(life_s))
                and self.renewed(held, t) is None
            ):
                return
        write_private(file, self.make(pool, life_s, t))

    def _signature(self, said: str) -> str:
        return hmac.new(self._key, said.encode(), sha256).hexdigest()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def open_tokens(store: Store, directory: Path) -> PoolTokens:
    """The tokens of a state; the key is made once, and every server of the state has the same.

    Before it was kept in the store, it was a file of the state directory.
    """
    key = store.remembered(KEY_NAME)
    if key is None:
        with contextlib.suppress(OSError, ValueError):
            if len(bytes.fromhex(kept := (directory / KEY_NAME).read_text().strip())) >= 32:
                key = kept
        key = key or secrets.token_hex(32)
        store.remember(KEY_NAME, key)
    return PoolTokens(bytes.fromhex(key))


def check_host(
    state: State, token: PoolToken, name: str, boot: str, ad: Mapping[str, object] | None, t: float,
    new_secret: bool = True,
) -> None:  # fmt: skip
    """Whether a worker with this token may ask for work under this name. BadCredentials says why not.

    `new_secret`: what it shows is not what the host of this name has shown before.
    """
    host = state.host(name)
    if host is not None and not host.times.ad_version:
        host = None  # it was forgotten while it was away, and has not said yet what it is
    goes_on = host is not None and host.state != GONE and host.session.boot == boot
    if token.host not in ("", name):
        raise OtherPool(
            f"a token of host '{token.host}' is not for host '{name}'",
            hint="each worker of a pool has a token of its own; make one for this host: windfall token create",
        )
    comes_back = token.once and not goes_on and _comes_back(state, name, host, new_secret)
    if t >= token.ends_t and not goes_on and not comes_back:
        raise BadCredentials(
            f"the token of pool '{token.pool}' has ended", hint="the pool gives its next workers a new one",
            code="expired-token",
        )  # fmt: skip
    said = pool_of(dict(ad)) if ad is not None else token.pool if host is None else host.pool
    machine = state.fleet.machines.get(_number((ad or {}).get("machine")))
    pools = {said, token.pool if host is None else host.pool, token.pool if machine is None else machine.offer.pool}
    if pools != {token.pool} or not re.fullmatch(rf"{re.escape(token.pool)}-(m\d+|\d+-\d+|doctor-\w+)", name):
        raise OtherPool(
            f"a token of pool '{token.pool}' is not for host '{name}' of pool '{said}'",
            hint="each pool has tokens of its own; make one for this host: windfall token create --role worker",
        )
    if token.pool not in state.supply.pools and token.pool not in state.fleet.offers and not goes_on:
        raise OtherPool(f"there is no pool '{token.pool}' any more", hint="see them: windfall pool list")


def _comes_back(state: State, name: str, host: Host | None, new_secret: bool) -> bool:
    """Whether the host of a ticket has enrolled before, and shows its secret. TicketUsed if another worker shows it."""
    number = re.fullmatch(r".*-m(\d{1,15})", name)
    machine = None if number is None else state.fleet.machines.get(int(number[1]))
    if number is not None and (machine is None or not machine.there or machine.host_name != name):
        raise TicketUsed(f"machine '{name}' is not rented any more", hint="see them: windfall pool list")
    if new_secret and (host is not None or (machine is not None and machine.host)):
        raise TicketUsed(
            f"the ticket of host '{name}' was used", hint="it enrols one worker; the pool gives the next one a new one"
        )
    # It is the machine itself, after a stop that may have been longer than the life of its ticket.
    return machine is not None and host is not None


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
