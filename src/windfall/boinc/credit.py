"""What volunteers have done: hosts, results and credit, counted from the engine's records of their hosts. Pure."""

from __future__ import annotations

from windfall.api.about import Work
from windfall.boinc.accounts import Account
from windfall.core.state.hosts.hosts import ForgottenHosts, Host
from windfall.core.state.state import State


def owner_of(host: Host) -> int:
    """The account of a volunteer's host; 0 if it is none."""
    owner = host.ad.get("owner")
    return int(owner) if isinstance(owner, str) and owner.isdecimal() else 0


class AccountWork:
    """Sums over the hosts of each account, those that were forgotten included."""

    def __init__(self, state: State) -> None:
        self._forgotten = state.hosts.forgotten_by_owner
        self._by_account: dict[int, list[Host]] = {}
        for host in state.hosts.values():
            if owner := owner_of(host):
                self._by_account.setdefault(owner, []).append(host)

    def of(self, account: Account) -> Work:
        hosts = self._by_account.get(account.id, [])
        before = self._forgotten.get(str(account.id), ForgottenHosts())
        return {
            "hosts": len(hosts),
            "done": before.results + sum(host.record.results for host in hosts),
            "credit": round(before.credit + sum(host.record.credit for host in hosts), 6),
        }
