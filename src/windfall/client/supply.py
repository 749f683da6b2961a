"""Pools, fleets, machines and markets of a server, as the client asks for them. Touches the network."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, overload
from urllib.parse import quote

from msgspec import to_builtins

from windfall.bounds import convert
from windfall.client.transport import Transport, decode, encode

if TYPE_CHECKING:
    from windfall.api.about import AccountFacts, AccountWithKey, FrontAnswer, FrontShown, Invitation
    from windfall.api.answers import Picture, PoolRow, Pools, RentingPool
    from windfall.api.asking import Admission
    from windfall.api.market import ImportedSeries, Learned, LearnedOffer
    from windfall.api.renting import FleetCost, FleetRow, Fleets, MachinePictures, Machines, OneFleet
    from windfall.api.small import Examined, Poked, PoolFindings, RemovedPool
    from windfall.bags.outline import Outline

Json = dict[str, Any]


class Supply(ABC):
    """What a `Client` can ask and say about where tasks run."""

    @property
    @abstractmethod
    def transport(self) -> Transport:
        """What requests are sent through."""

    def pools(self) -> list[PoolRow]:
        answer: Pools = self.transport.get("/v1/pools")
        return answer["pools"]

    def pool_states(self) -> Pools:
        """`pools`: as of `pools()`; `renting`: those that rent machines for plans."""
        answer: Pools = self.transport.get("/v1/pools")
        return answer

    def add_pools(self, pools: list[Json], base: str = "") -> list[str]:
        """Add pools to the server's state, each as it would stand below [[pool]]; paths in them are from `base`."""
        from windfall.api import requests

        return list(self.transport.post("/v1/pools", requests.AddBody(pools, base))["added"])

    def tell_pool(self, name: str, action: str, reason: str = "") -> PoolRow | RentingPool:
        """`pause`, `resume` or `drain` a pool."""
        from windfall.api import requests

        path = f"/v1/pools/{quote(name, safe='')}/{action}"
        row: PoolRow | RentingPool = self.transport.post(path, requests.SwitchBody(reason))
        return row

    @overload
    def tell_front(self, pool: str, what: Literal["show", "rotate", "reload"], /) -> FrontShown: ...
    @overload
    def tell_front(self, pool: str, what: Literal["add-account", "new-key"], /, **body: Any) -> AccountWithKey: ...
    @overload
    def tell_front(self, pool: str, what: Literal["close"], /, **body: Any) -> AccountFacts: ...
    @overload
    def tell_front(self, pool: str, what: Literal["invite"], /, **body: Any) -> Invitation: ...
    def tell_front(self, pool: str, what: str, /, **body: Any) -> FrontAnswer:
        """Say something to the front of a pool of volunteers: `show`, `add-account`, `new-key`, `close`, `invite`,
        `rotate` or `reload`."""
        from windfall.api import requests

        path = f"/v1/pools/{quote(pool, safe='')}/front/{what}"
        answer: FrontAnswer = self.transport.post(path, convert(body, requests.FrontBody, what))
        return answer

    def remove_pool(self, name: str, now: bool = False, wait_s: float = 10.0) -> RemovedPool:
        """Take a pool away that was added; with `now`, end what is there. `left`: what is there still."""
        from windfall.api import requests

        body = encode(requests.RemoveBody(now, wait_s))
        path = f"/v1/pools/{quote(name, safe='')}"
        done: RemovedPool = decode(self.transport.request("DELETE", path, body=body))
        return done

    def create_fleet(
        self, name: str, pools: list[str], planner: str = "", budget_usd: float | None = None,
        budget_s: float | None = None, owner_shares: dict[str, float] | None = None,
        owner_caps: dict[str, int] | None = None,
    ) -> FleetRow:  # fmt: skip
        """Machines that the jobs share which name this fleet; a budget is for each `budget_s`, an hour if not said.

        `owner_shares`: weights of owners while the fleet is too small for all; `owner_caps`: their most cores at once.
        """
        from windfall.api import requests

        body: Json = {"name": name, "pools": pools, "planner": planner, "budget_usd": budget_usd}
        said = {"budget_s": budget_s, "owner_shares": owner_shares, "owner_caps": owner_caps}
        more = {key: value for key, value in said.items() if value is not None}
        made: FleetRow = self.transport.post("/v1/fleets", convert(body | more, requests.FleetBody, "the fleet"))
        return made

    def change_fleet(self, name: str, **changes: Any) -> FleetRow:
        """Other rules for a fleet; keys as of `POST /v1/fleets/FLEET/change`."""
        from windfall.api import requests

        body = convert(changes, requests.FleetChangeBody, "the change")
        changed: FleetRow = self.transport.post(f"/v1/fleets/{quote(name, safe='')}/change", body)
        return changed

    def fleets(self) -> list[FleetRow]:
        answer: Fleets = self.transport.get("/v1/fleets")
        return answer["fleets"]

    def fleet(self, name: str) -> OneFleet:
        """One fleet with its unfinished jobs and its machines."""
        answer: OneFleet = self.transport.get(f"/v1/fleets/{quote(name, safe='')}")
        return answer

    def fleet_pictures(self, name: str) -> list[Picture]:
        """Pictures of a fleet over time: `name`, `html`, `says`."""
        answer: MachinePictures = self.transport.get("/v1/machines/pictures", fleet=name)
        return answer["pictures"]

    def fleet_cost(self, name: str) -> FleetCost:
        """The bill of a fleet, by machine and by job."""
        answer: FleetCost = self.transport.get(f"/v1/fleets/{quote(name, safe='')}/cost")
        return answer

    def ask_fleet(self, name: str, outline: Outline | Json) -> Admission:
        """Whether a fleet would keep the deadline of one more job, and what it would cost. Nothing is submitted.

        `outline`: `{"deadline_s": 7200, "tasks": [{"seconds": 300, "count": 20}]}`; `every_s`: one such job each time.
        """
        body = to_builtins(outline, str_keys=True)
        told: Admission = self.transport.post(f"/v1/fleets/{quote(name, safe='')}/admission", body)
        return told

    def tell_fleet(self, name: str, action: str) -> FleetRow:
        """`pause`, `resume` or `drain` a fleet."""
        answer: FleetRow = self.transport.post(f"/v1/fleets/{quote(name, safe='')}/{action}", {})
        return answer

    def delete_fleet(self, name: str) -> FleetRow:
        """Delete a fleet whose jobs have all ended."""
        answer: FleetRow = decode(self.transport.request("DELETE", f"/v1/fleets/{quote(name, safe='')}"))
        return answer

    def machines(self, pool: str = "", job: int | str = "", there: bool = False) -> Machines:
        """Rented machines (newest first), offers, and machines at the provider that are not this server's."""
        query = {"pool": pool, "job": job, "there": int(there) or ""}
        answer: Machines = self.transport.get("/v1/machines", **query)
        return answer

    def market(self) -> list[LearnedOffer]:
        """What was learned of each offer: see `windfall market show --json`."""
        answer: Learned = self.transport.get("/v1/market")
        return answer["offers"]

    def import_series(self, body: Json) -> ImportedSeries:
        """Add a published series to what is known of an offer: see `POST /v1/market`."""
        told: ImportedSeries = self.transport.post("/v1/market", body)
        return told

    def poke(self, pool: str, machine: str, what: str) -> Poked:
        """Do to a machine of an emulated cloud what a provider would do: hibernate, resume, terminate, notice."""
        path = f"/v1/pools/{quote(pool, safe='')}/machines/{quote(machine, safe='')}/{what}"
        done: Poked = self.transport.post(path)
        return done

    def doctor(self, pool: str, trial: bool = True, wait_s: float = 30.0) -> PoolFindings:
        """What a pool needs and what is wrong with it; `trial` starts a worker, which has to come within `wait_s`."""
        from windfall.api import requests

        path, word = f"/v1/pools/{quote(pool, safe='')}/doctor", os.urandom(3).hex() if trial else ""
        until = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, until - time.monotonic())
            body = requests.DoctorBody(word, min(left_s, 10.0), left_s <= 10.0)
            found: Examined = self.transport.post(path, body)
            if not found["waits"]:
                return {"pool": found["pool"], "ok": found["ok"], "checks": found["checks"]}
