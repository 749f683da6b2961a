"""Sign-in links of the console: codes that work once, for some minutes. Memory only."""

from __future__ import annotations

import secrets

from windfall.errors import BadCredentials

LINK_LIFE_S = 300.0
MOST_LINKS = 1000


class Links:
    """Sign-in links that were given out and not used: a code each, by which token, until when."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}

    def make(self, ident: str, now: float) -> str:
        self._known = {code: link for code, link in self._known.items() if link[1] > now}
        while len(self._known) >= MOST_LINKS:
            del self._known[next(iter(self._known))]
        code = secrets.token_urlsafe(24)
        self._known[code] = (ident, now + LINK_LIFE_S)
        return code

    def use(self, code: str, now: float) -> str:
        """The token's id, once."""
        ident, until = self._known.pop(code, ("", 0.0))
        if not ident or now >= until:
            raise BadCredentials(
                "this sign-in link has been used or has ended", hint="make another one: windfall console",
                code="used-link",
            )  # fmt: skip
        return ident
