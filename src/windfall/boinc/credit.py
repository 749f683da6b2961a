"""What volunteers have done: hosts, results and credit, counted from the engine's records of their hosts. Pure."""

from __future__ import annotations

from typing import Any

from windfall.boinc.accounts import Account
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.state import State

CREDIT_PER_S = 200.0 / 86400.0
"""A cobblestone is 1/200 of a day of a processor of 1 GFLOPS: the unit that clients show."""


def owner_of(host: Host) -> int:
    """The account of a volunteer's host; 0 if it is none."""
    owner = host.ad.get("owner")
    return int(owner) if isinstance(owner, str) and owner.isdecimal() else 0


def credit_of(host: Host) -> float:
    """For processor seconds of results that were accepted; what does not validate earns nothing."""
    return host.record.granted_s * CREDIT_PER_S


class AccountWork:
    """Sums over the hosts of each account."""

    def __init__(self, state: State) -> None:
        self._by_account: dict[int, list[Host]] = {}
        for host in state.hosts.values():
            if owner := owner_of(host):
                self._by_account.setdefault(owner, []).append(host)

    def of(self, account: Account) -> dict[str, Any]:
        hosts = self._by_account.get(account.id, [])
        return {
            "hosts": len(hosts),
            "done": sum(host.record.done for host in hosts),
            "credit": round(sum(map(credit_of, hosts)), 6),
        }
