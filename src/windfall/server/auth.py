"""Tokens and roles: random tokens, hashed at rest, compared in constant time. Touches the store's token table only."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

from windfall.errors import BadCredentials, BadInput
from windfall.server.pool_tokens import PREFIX, PoolToken, PoolTokens
from windfall.store.contract import Store, TokenRow

ROLES = ("read", "submit", "worker", "admin")
# Which roles may do what a handler asks for.
ALLOWED = {
    "read": frozenset({"read", "submit", "admin"}),
    "submit": frozenset({"submit", "admin"}),
    "worker": frozenset({"worker", "pool", "admin"}),
    "site": frozenset({"worker", "admin"}),
    "blobs": frozenset({"worker", "pool", "submit", "admin"}),
    "admin": frozenset({"admin"}),
}


REMEMBERED_HEADERS = 10_000


class Forbidden(BadCredentials):
    """The token is good, but not for this."""

    code = "forbidden"


def digest(secret: str) -> str:
    # Tokens are 256 random bits: a plain hash cannot be searched, and it is quick enough for every exchange.
    return sha256(secret.encode()).hexdigest()


class Bearer(Struct, frozen=True):
    """Who asks: a role; a worker of a pool also shows the token of that pool."""

    role: str
    of: PoolToken | None = None


class Tokens:
    """The tokens of one store, kept in memory by id. `pools` reads those of pools, which are kept nowhere."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self.pools: PoolTokens | None = None
        self._rows = {row.id: row for row in store.tokens()}
        self._known: dict[str, Bearer] = {}
        """Headers that were found good: a worker sends the same one thousands of times."""

    def create(self, role: str, name: str, t: float) -> str:
        if role not in ROLES:
            raise BadInput(f"no role '{role}'", hint=f"roles are: {', '.join(ROLES)}")
        ident, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        row = TokenRow(ident, digest(secret), role, name, t)
        self._store.add_token(*row)
        self._rows[ident] = row
        return f"wf_{ident}_{secret}"

    def bearer_of(self, authorization: str | None) -> Bearer:
        """The bearer of an `Authorization` header; BadCredentials if its token is not known."""
        if authorization in self._known:
            return self._known[authorization]
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise BadCredentials(
                "this request carries no token", hint="give one with --token or WINDFALL_TOKEN", code="no-token"
            )
        prefix, _, rest = token.strip().partition("_")
        if prefix == PREFIX and self.pools is not None:
            return Bearer("pool", self.pools.read(token.strip()))
        ident, _, secret = rest.partition("_")
        row = self._rows.get(ident)
        # An unknown id costs the same comparison as a known one.
        good = hmac.compare_digest(digest(secret), row.hash if row else digest(""))
        if prefix != "wf" or row is None or not good:
            raise BadCredentials(
                "the server does not know this token",
                hint="make one on the server's machine: windfall token create --role submit (or worker, for a worker)",
                code="bad-token",
            )
        if authorization is not None and len(self._known) < REMEMBERED_HEADERS:
            self._known[authorization] = Bearer(row.role)
        return Bearer(row.role)

    def require(self, authorization: str | None, what: str) -> Bearer:
        """Who asks, if that is allowed. A pool's token that has ended is judged by the exchange, which renews it."""
        bearer = self.bearer_of(authorization)
        role = bearer.role
        if bearer.of is not None and what != "worker" and self._clock() >= bearer.of.ends_t:
            raise BadCredentials(
                f"the token of pool '{bearer.of.pool}' has ended", hint="ask for work: the answer brings a new one",
                code="expired-token",
            )  # fmt: skip
        if role not in ALLOWED[what]:
            needed = ", ".join(sorted(ALLOWED[what]))
            raise Forbidden(
                f"a token of role '{role}' may not do this (needed: {needed})",
                hint=f"ask for one: windfall token create --role {sorted(ALLOWED[what])[-1]}",
            )
        return bearer

    def reload(self) -> None:
        """Know what another server has made and revoked since."""
        rows = {row.id: row for row in self._store.tokens()}
        if rows != self._rows:
            self._rows = rows
            self._known = {}

    def row(self, ident: str) -> TokenRow | None:
        """The token of this id, without its secret."""
        return self._rows.get(ident)

    def listing(self) -> list[dict[str, object]]:
        return [
            {"id": row.id, "role": row.role, "name": row.name, "created_s": row.created_s}
            for row in self._rows.values()
        ]

    def revoke(self, ident: str) -> bool:
        if ident not in self._rows:
            return False
        self._store.remove_token(ident)
        del self._rows[ident]
        self._known.clear()
        return True
