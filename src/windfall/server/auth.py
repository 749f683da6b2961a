"""Tokens and roles: random tokens, hashed at rest, compared in constant time. Touches the store's tokens only.

When a token ends and whose it is stands in a text beside the table of tokens (`NOTES`), so that stores and copies of
earlier versions hold it, too.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec import Struct

from windfall.api.small import ListedToken
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


OF_USERS = ("read", "submit")
"""Roles that a token of one user may have: it sees the jobs of that user alone."""
NOTES = "tokens"
"""The name of the text in which the store remembers a `Note` for each token that has one."""
REMEMBERED_HEADERS = 10_000


class Forbidden(BadCredentials):
    """The token is good, but not for this."""

    code = "forbidden"


def digest(secret: str) -> str:
    # Tokens are 256 random bits: a plain hash cannot be searched, and it is quick enough for every exchange.
    return sha256(secret.encode()).hexdigest()


class Note(Struct, omit_defaults=True):
    """What is known of a token beside its row."""

    expires_s: float | None = None
    user: str = ""


class Bearer(Struct, frozen=True):
    """Who asks: a role; a worker of a pool also shows the token of that pool."""

    role: str
    of: PoolToken | None = None
    user: str = ""
    """The only user whose jobs it sees; empty for a token that sees all."""
    expires_s: float | None = None


class Tokens:
    """The tokens of one store, kept in memory by id. `pools` reads those of pools, which are kept nowhere."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self.pools: PoolTokens | None = None
        self._rows = {row.id: row for row in store.tokens()}
        self._notes = _notes_in(store)
        self._known: dict[str, Bearer] = {}
        """Headers that were found good: a worker sends the same one thousands of times."""

    def create(self, role: str, name: str, t: float, life_s: float | None = None, user: str = "") -> str:
        """A new token, good for `life_s` seconds or for ever; `user` sees the jobs of one user alone."""
        if role not in ROLES:
            raise BadInput(f"no role '{role}'", hint=f"roles are: {', '.join(ROLES)}")
        if user and role not in OF_USERS:
            raise BadInput(f"a token of role '{role}' is not of one user", hint=f"roles are: {', '.join(OF_USERS)}")
        ident, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        row = TokenRow(ident, digest(secret), role, name, t)
        if life_s is not None or user:
            self._note(ident, Note(None if life_s is None else t + life_s, user))
        self._store.add_token(*row)
        self._rows[ident] = row
        return f"wf_{ident}_{secret}"

    def rotate(self, ident: str, t: float, grace_s: float = 0.0) -> str | None:
        """A new token in the place of one, which ends after `grace_s` seconds; None if there is no such token."""
        row = self._rows.get(ident)
        if row is None:
            return None
        note = self._notes.get(ident, Note())
        self._refuse_ended(note.expires_s)
        life_s = None if note.expires_s is None else note.expires_s - row.created_s
        made = self.create(row.role, row.name, t, life_s, note.user)
        if grace_s > 0:
            ends_s = t + grace_s if note.expires_s is None else min(t + grace_s, note.expires_s)
            self._note(ident, Note(ends_s, note.user))
            self._known.clear()
        else:
            self.revoke(ident)
        return made

    def _note(self, ident: str, note: Note) -> None:
        """Remember it first: a token that is there without its note would be good for ever."""
        self._notes = {known: each for known, each in self._notes.items() if known in self._rows} | {ident: note}
        self._store.remember(NOTES, msgspec.json.encode(self._notes).decode())

    def _bearer(self, row: TokenRow) -> Bearer:
        note = self._notes.get(row.id, Note())
        return Bearer(row.role, None, note.user, note.expires_s)

    def _refuse_ended(self, expires_s: float | None) -> None:
        if expires_s is not None and self._clock() >= expires_s:
            raise BadCredentials(
                "this token has ended", hint="ask for another one: windfall token create --role ...", code="token-ended"
            )

    def bearer_of(self, authorization: str | None) -> Bearer:
        """The bearer of an `Authorization` header; BadCredentials if its token is not known, or has ended."""
        bearer = self._known.get(authorization or "")
        if bearer is None:
            bearer = self._recognised(authorization)
            if bearer.of is None and authorization is not None and len(self._known) < REMEMBERED_HEADERS:
                self._known[authorization] = bearer
        if bearer.expires_s is not None:
            self._refuse_ended(bearer.expires_s)
        return bearer

    def bearer_by_id(self, ident: str) -> Bearer:
        """Who shows the token of this id; BadCredentials if there is none, or it has ended."""
        row = self._rows.get(ident)
        if row is None:
            raise BadCredentials("you are not signed in", hint="sign in again", code="signed-out")
        bearer = self._bearer(row)
        self._refuse_ended(bearer.expires_s)
        return bearer

    def _recognised(self, authorization: str | None) -> Bearer:
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
                hint="make one on the server's machine: windfall token create --role worker (or submit, for commands)",
                code="bad-token",
            )
        return self._bearer(row)

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
        rows, notes = {row.id: row for row in self._store.tokens()}, _notes_in(self._store)
        if rows != self._rows or notes != self._notes:
            self._rows, self._notes = rows, notes
            self._known = {}

    def row(self, ident: str) -> TokenRow | None:
        """The token of this id, without its secret."""
        return self._rows.get(ident)

    def listing(self) -> list[ListedToken]:
        return [
            {
                "id": row.id, "role": row.role, "name": row.name, "created_s": row.created_s,
                "expires_s": note.expires_s, "user": note.user or None,
            }
            for row in self._rows.values()
            for note in [self._notes.get(row.id, Note())]
        ]  # fmt: skip

    def revoke(self, ident: str) -> bool:
        if ident not in self._rows:
            return False
        self._store.remove_token(ident)
        del self._rows[ident]
        self._known.clear()
        return True


def _notes_in(store: Store) -> dict[str, Note]:
    text = store.remembered(NOTES)
    return msgspec.json.decode(text, type=dict[str, Note]) if text else {}
