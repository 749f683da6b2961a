"""Whether machines elsewhere can be told where the server is. Touches the server's own address."""

from __future__ import annotations

import ssl
import urllib.request

from windfall.pools.contract import Check
from windfall.pools.kinds import Place
from windfall.pools.starting.shipped import is_loopback, server_of

LISTEN = 'listen where machines reach it (--listen 0.0.0.0:7272), or say server = "https://..."'


def reach(place: Place, stated: str) -> Check:
    """Whether the address that machines are given can be theirs, and answers here."""
    server = server_of(place, stated)
    what = f"machines can reach the server at {server}"
    if not stated and is_loopback(server):
        return Check(what, "the server listens on this host only", LISTEN)
    context = ssl.create_default_context(cafile=place.cafile) if place.cafile else None
    for url in server.split(","):  # a standby answers as well
        try:
            with urllib.request.urlopen(f"{url.rstrip('/')}/worker.pyz", timeout=10, context=context) as answer:
                answer.read(1)
        except (OSError, ValueError) as error:
            return Check(what, f"not even from here: {url}: {error}", "see `server` in the settings, and the firewall")
    return Check(f"the server answers at {server}, the address that machines are given")
